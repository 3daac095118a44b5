//! Reader threads: small files whole, many in one job; large files in segments that other threads read.
//!
//! Small files are cut and fingerprinted by the thread that read them, while their bytes are in its cache. A reader of
//! a large file sends out its segments ([`super::segment`]), so that a single file keeps the disk and all cores busy. A
//! file of a job that grew since it was looked at, or has many attributes, is read as a large one by the job's reader,
//! and so are the files behind it: what was reserved holds for the sizes that were known. A reader of a large file
//! waits until the store has taken earlier segments, its own or those of files before it ([`super::ahead`]); the store
//! waits for readers and segments; segments wait for segments before them. So no threads wait in a circle.

mod device;
mod small;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::Receiver;
use onefold_store::Fingerprinter;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::ahead::LargeFileQueue;
use super::buffers::Buffers;
use super::file_end::{Abandoned, FileEnd};
use super::hint::{Hint, TraceVerdict};
use super::outlook::Outlook;
use super::parts::{LargePart, PartSender, large_channel};
use super::read::{self, Source};
use super::retrace::Traces;
use super::segment::{FileCutter, Queues};
use super::segments::SegmentSender;
use super::windows::{DIGESTED_BYTES_MIN, WINDOW_BYTES};
use super::work::Work;
use crate::{Progress, Xattrs};

/// Largest number of bytes of attributes of a job's files, beside what is reserved for the job: enough for the labels
/// and access control lists of most files.
const JOB_XATTRS_BYTES_MAX: usize = 64 << 10;
/// A reader thread.
pub struct Reader<'a> {
    pub cutter: Arc<Mutex<FileCutter>>,
    /// Lengths of the chunks that were cut last, in bytes.
    pub lengths: Vec<u32>,
    pub fingerprinter: Fingerprinter,
    pub buffers: &'a Buffers,
    pub progress: &'a Progress,
    pub queues: Queues,
    pub outlook: &'a Outlook,
    /// See [`SegmentSender`].
    pub carries_much: Arc<AtomicBool>,
    pub traces: &'a Traces<'a>,
}

impl Reader<'_> {
    /// Works until all senders are gone.
    pub fn run(mut self, work: &Receiver<Work>) {
        for work in work {
            match work {
                Work::Small {
                    mut wanted,
                    buffer_bytes,
                    done,
                } => {
                    let mut result = self.small(&mut wanted, buffer_bytes);
                    let read = result.files.len();
                    let parts = (read < wanted.len()).then(|| {
                        // The rest is read one segment at a time, outside of the budget.
                        let (parts, receiver) = large_channel(&LargeFileQueue::new(1));
                        result.rest = Some(receiver);
                        parts
                    });
                    let _ = done.send(result);
                    drop(done);
                    if let Some(parts) = parts {
                        let mut rest = wanted.iter().skip(read);
                        let _ = rest.try_for_each(|(dir, name, _)| {
                            self.large(dir, name, Hint::Nothing, &parts)
                        });
                    }
                }
                Work::Large {
                    dir,
                    name,
                    hint,
                    parts,
                } => {
                    let _ = self.large(&dir, &name, hint, &parts);
                }
                Work::Special {
                    dir,
                    name,
                    stat,
                    parts,
                } => {
                    self.begins(&name);
                    let _ = match read::open_special(dir.as_fd(), &name) {
                        Ok(fd) => self.stream(Source::stream(fd, stat, self.progress), &parts),
                        Err(e) => parts.send(LargePart::End(Err(e))),
                    };
                }
                Work::Device { work, parts } => {
                    self.begins(b"");
                    let _ = self.device(*work, &parts);
                }
                Work::Stream {
                    fd,
                    name,
                    stat,
                    parts,
                } => {
                    self.begins(&name);
                    let _ = self.stream(Source::stream(fd, stat, self.progress), &parts);
                }
            }
        }
    }

    /// Notes that a file of this name is cut next.
    fn begins(&self, name: &[u8]) {
        self.cutter.lock().begin(name);
    }

    pub(super) fn segments<'s>(&'s self, parts: &'s PartSender, maps: bool) -> SegmentSender<'s> {
        SegmentSender {
            cutter: &self.cutter,
            buffers: self.buffers,
            queues: &self.queues,
            outlook: maps.then_some(self.outlook),
            parts,
            is_digested: false,
            carries_much: &self.carries_much,
        }
    }

    fn large(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        hint: Hint,
        parts: &PartSender,
    ) -> Result<(), Abandoned> {
        match read::open(dir.as_fd(), name) {
            Ok(source) => self.large_file(name, source, hint, parts),
            Err(e) => parts.send(LargePart::End(Err(e))),
        }
    }

    fn stream(&mut self, source: Source, parts: &PartSender) -> Result<(), Abandoned> {
        let end = self.segments(parts, false).send(&source, 0..u64::MAX)?;
        let end = end.map(|_| FileEnd::new(source, false));
        parts.send(LargePart::End(end))
    }

    fn large_file(
        &mut self,
        name: &[u8],
        mut source: Source,
        hint: Hint,
        parts: &PartSender,
    ) -> Result<(), Abandoned> {
        source.read_ahead();
        let compared_bytes = match self.compare(name, &source, hint, parts)? {
            TraceVerdict::Unknown => 0,
            TraceVerdict::Same(content, compared_bytes) => {
                let end = FileEnd {
                    content: Some(content),
                    compared_bytes,
                    ..FileEnd::new(source, false)
                };
                return parts.send(LargePart::End(Ok(end)));
            }
            TraceVerdict::Other(compared_bytes) => match source.look_again() {
                Ok(()) => compared_bytes,
                Err(e) => return parts.send(LargePart::End(Err(e))),
            },
        };
        self.begins(name);
        let maps = source.stat.size >= WINDOW_BYTES as u64;
        let content = self.large_content(&source, parts, maps)?;
        let mut changed = content.and_then(|()| source.changed());
        // Mapped bytes must not vanish until the store has taken them.
        if let Ok(has_changed) = changed
            && (has_changed || parts.has_mapped())
        {
            let end = FileEnd {
                stat: source.stat,
                xattrs: std::mem::replace(&mut source.xattrs, Ok(Xattrs::new())),
                changed: has_changed,
                content: None,
                compared_bytes,
            };
            if parts.is_done(end)? {
                return Ok(());
            }
            self.begins(name);
            changed = match source.look_again() {
                Ok(()) => self
                    .large_content(&source, parts, false)?
                    .and_then(|()| source.changed()),
                Err(e) => Err(e),
            };
        }
        let end = changed.map(|changed| FileEnd {
            compared_bytes,
            ..FileEnd::new(source, changed)
        });
        parts.send(LargePart::End(end))
    }

    /// Reads a large file's content. Mapped bytes may vanish before the store has taken them ([`PartSender::is_done`]).
    fn large_content(
        &mut self,
        source: &Source,
        parts: &PartSender,
        maps: bool,
    ) -> Result<Result<(), Errno>, Abandoned> {
        let mut at = 0;
        loop {
            let data = match source.run_from(at) {
                Ok(data) => data,
                Err(e) => return Ok(Err(e)),
            };
            let hole = data.start - at;
            if hole > 0 {
                parts.send(LargePart::Hole(hole))?;
            }
            if data.is_empty() {
                return Ok(Ok(()));
            }
            let segments = SegmentSender {
                // Two runs of data without a hole between them mean that there was a hole when the first one's end was
                // asked for.
                is_digested: source.stat.size >= DIGESTED_BYTES_MIN && (hole > 0 || at == 0),
                ..self.segments(parts, maps)
            };
            match segments.send(source, data.clone())? {
                Ok(end) if end == data.end && end < source.stat.size => at = end,
                Ok(_) => return Ok(Ok(())),
                Err(e) => return Ok(Err(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
