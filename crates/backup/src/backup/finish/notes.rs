//! Carries out a batch's notes once the references to its chunks are there: recipes, entries and counts, in order.

use std::sync::atomic::Ordering::Relaxed;

use onefold_store::Written;

use super::{Finisher, Note};
use crate::backup::moved;
use crate::backup::names::FirstNames;
use crate::backup::plan::{ContentFrom, Planned};
use crate::leaf::recipe::Builder;
use crate::{Change, Content, Entry, Error, Flags, Item, Kind, Progress, Result, path};

impl Finisher<'_> {
    /// Takes items of the parent, whose chunks may have been moved since.
    pub(super) fn kept(&mut self, items: Vec<Item>) {
        self.digest(None);
        for mut item in items {
            self.long_chunks.pass_hole(item.span());
            moved::relocate(self.long_chunks.session(), &mut item);
            self.batch.notes.push(match item.data() {
                Some(slice) => Note::Kept(slice),
                None => Note::Hole(item.span()),
            });
        }
    }

    /// Takes a hole of the current file.
    pub(super) fn hole(&mut self, len: u64) {
        if let Some(digest) = &mut self.digest {
            digest.hole(len);
        }
        self.batch.notes.push(Note::Hole(len));
    }

    pub(super) fn note(
        &mut self,
        note: Note,
        written: &mut dyn Iterator<Item = Written>,
    ) -> Result<()> {
        let metadata = &mut self.metadata;
        let store = &mut |bytes: Vec<u8>| metadata.store(&bytes);
        match note {
            Note::Chunks(n) => {
                for written in written.take(n) {
                    let Some(chunk) = written.chunk() else {
                        self.has_lost = true;
                        continue;
                    };
                    let span = u64::from(chunk.len);
                    Progress::add(&self.progress.bytes_of_current, span);
                    if matches!(written, Written::New(_)) {
                        self.new_bytes += span;
                    }
                    self.recipe.push(Item::Chunk { chunk, span }, store)?;
                }
                Ok(())
            }
            Note::Kept(slice) => {
                Progress::add(&self.progress.bytes_of_current, slice.len.into());
                self.recipe.push(slice.into(), store)
            }
            Note::Hole(len) => {
                Progress::add(&self.progress.bytes_of_current, len);
                self.recipe.push(Item::Hole { len }, store)
            }
            Note::Again => {
                (self.recipe, self.new_bytes) = (Builder::default(), 0);
                self.progress.bytes_of_current.store(0, Relaxed);
                Ok(())
            }
            Note::Unread(names) => {
                self.remembered(|links| links.forget(names));
                Ok(())
            }
            Note::File(folder, mut planned) => {
                let content = &mut planned.entry.content;
                *content = Content {
                    digest: content.digest,
                    ..self.recipe.finish(store)?
                };
                self.file(&folder, *planned)
            }
            Note::Known(folder, planned) => self.file(&folder, *planned),
            Note::Entry(folder, mut planned) => {
                match planned.content {
                    ContentFrom::FirstName => self.recall(&folder, &mut planned),
                    ContentFrom::Moved => {
                        let content = &mut planned.entry.content;
                        *content = moved::write(self.long_chunks.session(), content, store)?;
                    }
                    ContentFrom::Entry | ContentFrom::Job => {}
                }
                self.done(&folder, *planned, 0)
            }
        }
    }

    /// Finishes a file that was read and has its content.
    fn file(&mut self, folder: &[u8], mut planned: Planned) -> Result<()> {
        let items = planned.entry.content.items.iter();
        planned.entry.size = items.map(Item::span).sum();
        if let Some(names) = planned.link {
            self.remembered(|links| links.remember(names, &planned.entry));
        }
        let new_bytes = std::mem::take(&mut self.new_bytes);
        self.done(folder, planned, new_bytes)
    }

    /// Runs `remember`. Where there is no room to remember, further names of files are reported as not read.
    fn remembered(&mut self, remember: impl FnOnce(&mut FirstNames) -> Result<()>) {
        if let Err(e) = remember(&mut self.links) {
            self.events
                .warning(b"", &format!("further names of files: {e}"));
            self.links.give_up();
        }
    }

    /// Fills in a further name of a file that was read before. The file under the first name may have been another one
    /// by then.
    fn recall(&mut self, folder: &[u8], planned: &mut Planned) {
        let recall = |names| self.links.recall(names, &mut planned.entry);
        match planned.link.map(recall) {
            Some(Ok(true)) => {}
            other => {
                let path = path::join(folder, &planned.entry.name);
                let why = match other {
                    Some(Err(e)) => e.to_string(),
                    _ => "so could not another name of the same file".into(),
                };
                self.failed(&path, &Error::io("read", &path, std::io::Error::other(why)));
                mark_unreadable(planned);
            }
        }
    }

    fn done(&mut self, folder: &[u8], planned: Planned, new_bytes: u64) -> Result<()> {
        let Planned {
            mut entry,
            mut change,
            before,
            ..
        } = planned;
        if before.is_some_and(|before| before.agrees_with(&mut entry)) {
            change = Change::Unchanged;
        }
        if entry.is_unreadable() {
            return self.metadata.push(folder, entry);
        }
        self.count(&entry, change);
        if self.events.wants_entries() {
            let path = path::join(folder, &entry.name);
            self.events.entry(&path, change, new_bytes);
        }
        self.metadata.push(folder, entry)
    }

    fn count(&mut self, entry: &Entry, change: Change) {
        let summary = &mut self.summary;
        let (files, dirs) = match change {
            Change::New => (&mut summary.files_new, &mut summary.dirs_new),
            Change::Modified => (&mut summary.files_changed, &mut summary.dirs_changed),
            // A backup removes nothing.
            Change::Unchanged | Change::Removed => {
                (&mut summary.files_unmodified, &mut summary.dirs_unmodified)
            }
        };
        match entry.kind {
            Kind::File => {
                self.progress.bytes_of_current.store(0, Relaxed);
                *files += 1;
                summary.total_files_processed += 1;
                summary.total_bytes_processed += entry.size;
                Progress::add(&self.progress.files_done, 1);
                Progress::add(&self.progress.bytes_done, entry.size);
            }
            Kind::Dir => {
                *dirs += 1;
                Progress::add(&self.progress.dirs_done, 1);
            }
            _ => summary.others += 1,
        }
    }
}

/// Flags an entry as not read: it keeps what `stat` said, and has no content.
pub(super) fn mark_unreadable(planned: &mut Planned) {
    let entry = &mut planned.entry;
    entry.flags = Flags::UNREADABLE;
    (entry.size, entry.content) = (0, Content::default());
    (planned.content, planned.link) = (ContentFrom::Entry, None);
}
