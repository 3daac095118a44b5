//! The bytes of a snapshot as a stream, of which a backup reads only what changed (FORMAT.md, "Control socket"):
//! written by the process that has the depot open, read by the backup.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use onefold_backup::Xattrs;
use onefold_backup::backup::{ChangedDevice, DeviceStream, DeviceStretch};
use onefold_export::control;
use onefold_volume::depot::{CheckProgress, Head, Piece};
use onefold_volume::front::WhenFull;
use onefold_volume::{Depot, HeadId};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::requested_head;
use super::source::{VolumeSource, open_depot};
use crate::error::{Error, Result};

/// The attribute that says which snapshot a backup holds.
const MARK: &[u8] = b"user.onefold.volume";
/// Stretches that are known ahead of their bytes.
const STRETCHES_AHEAD: usize = 64;
/// Bytes that are copied at once.
const COPIED_BYTES: usize = 256 << 10;

/// Looks in a row that find a client that takes nothing: half an hour, then it is left.
const LOOKS_MAX: u32 = 1800;

/// Kinds of a stretch on the wire.
const END: u8 = 0;
const SAME: u8 = 1;
const HOLE: u8 = 2;
const DATA: u8 = 3;

/// Answers the request `changes`, which [`send`] follows: which snapshot it is, and whether it is compared with the
/// base.
pub fn describe(depot: &Depot, request: &Value) -> onefold_volume::Result<Value> {
    let head = requested_head::named(depot, request)?;
    let mark = mark(&depot.config().depot, &head);
    Ok(json!({
        "name": head.name,
        "bytes": head.bytes,
        "mark": mark,
        "compared": base(depot, &head, request).is_some(),
    }))
}

/// Sends the stretches of a snapshot.
///
/// # Errors
/// The depot is closed or damaged, or nobody takes the bytes.
pub fn send(source: &VolumeSource, request: &Value, out: &mut dyn Write) -> Result<()> {
    source.with_depot(|depot, progress| {
        let head = requested_head::named(depot, request)?;
        let base = base(depot, &head, request);
        let mut write = |bytes: &[u8]| write_patiently(out, bytes, progress);
        depot.changes(head.id, base, &mut |piece| match piece {
            Piece::Same(bytes) => write(&header(SAME, bytes)),
            Piece::Hole(bytes) => write(&header(HOLE, bytes)),
            Piece::DataFollows(bytes) => write(&header(DATA, bytes)),
            Piece::Data(bytes) => write(bytes),
        })?;
        write(&header(END, 0))
    })
}

fn header(kind: u8, bytes: u64) -> Vec<u8> {
    let mut header = vec![kind];
    header.extend(bytes.to_le_bytes());
    header
}

/// Writes to a client that may take its time, unless the depot is to be closed: that does not wait for backups.
fn write_patiently(
    out: &mut dyn Write,
    mut bytes: &[u8],
    progress: &CheckProgress,
) -> onefold_volume::Result<()> {
    let mut looks = 0;
    while !bytes.is_empty() {
        progress.add(0)?;
        match out.write(bytes) {
            Ok(count) if count > 0 => (bytes, looks) = (&bytes[count..], 0),
            Err(error) if is_timeout(&error) && looks < LOOKS_MAX => looks += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            failed => {
                let error = failed.err().unwrap_or(io::ErrorKind::WriteZero.into());
                let error = onefold_io::Error::from_io("send", "the control socket", error);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// The name of a snapshot that no other one has or will have. Its time is a part of it: where a depot's folder was put
/// back to an older state, numbers and names are given again.
fn mark(depot: &[u8], head: &Head) -> String {
    let depot: String = depot.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{depot}:{}:{}:{}", head.id.0, head.created, head.name)
}

/// The snapshot that a mark names, if this depot still has it and it is one of the same volume.
fn base(depot: &Depot, head: &Head, request: &Value) -> Option<HeadId> {
    let wanted = request["base"].as_str()?;
    let volume = |head: &Head| head.name.split('@').next().map(str::to_owned);
    let heads = depot.heads();
    let depot = &depot.config().depot;
    let base = heads.iter().find(|base| mark(depot, base) == wanted)?;
    let fits = !base.is_writable && !head.is_writable && volume(base) == volume(head);
    fits.then_some(base.id)
}

/// A snapshot of a volume that is backed up.
#[derive(Debug)]
pub struct ChangedVolume {
    /// Folder of the depot.
    pub depot: PathBuf,
    /// Names the snapshot, as requests do.
    pub request: Value,
    /// Takes the outcome of reading.
    pub outcome: BackgroundReading,
}

/// Reading that goes on beside the backup.
#[derive(Clone, Default, Debug)]
pub struct BackgroundReading(Arc<Mutex<Option<JoinHandle<io::Result<()>>>>>);

impl BackgroundReading {
    /// Waits until all is read, where anything was.
    ///
    /// # Errors
    /// The snapshot could not be read to its end.
    pub fn ended_well(&self) -> onefold_backup::Result<()> {
        let Some(thread) = self.0.lock().take() else {
            return Ok(());
        };
        let done = thread
            .join()
            .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
        done.map_err(|error| onefold_backup::Error::HalfInput(format!("the snapshot: {error}")))
    }
}

impl ChangedDevice for ChangedVolume {
    fn begin(self: Box<Self>, marks: Option<&Xattrs>) -> io::Result<DeviceStream> {
        let known = |marks: &Xattrs| {
            let mark = marks.iter().find(|(name, _)| &**name == MARK)?;
            String::from_utf8(mark.1.to_vec()).ok()
        };
        let mut request = self.request.clone();
        if let Some(mark) = marks.and_then(known) {
            request["base"] = mark.into();
        }
        let (answer, stream) =
            open(&self.depot, &request).map_err(|error| io::Error::other(error.chain()))?;
        let (reader, pipe) = io::pipe()?;
        let (sender, stretches) = sync_channel(STRETCHES_AHEAD);
        let thread = std::thread::Builder::new()
            .name("volume-reader".into())
            .spawn(move || receive(stream, pipe, &sender))?;
        *self.outcome.0.lock() = Some(thread);
        let mark = answer["mark"].as_str().unwrap_or_default();
        Ok(DeviceStream {
            bytes: reader.into(),
            stretches: Box::new(stretches.into_iter().map(Ok)),
            size: answer["bytes"].as_u64().unwrap_or(0),
            marks: vec![(MARK.into(), mark.as_bytes().into())],
        })
    }
}

/// Opens the stream of a snapshot: from the process that has the depot open, or from the depot itself.
fn open(folder: &std::path::Path, request: &Value) -> Result<(Value, BufReader<UnixStream>)> {
    let asked = control::ask_for_stream(&folder.join("control"), "changes", request.clone())?;
    if let Some(answered) = asked {
        return Ok(answered);
    }
    let source = VolumeSource::depot(open_depot(folder, None, WhenFull::Fail)?);
    let answer = source.with_depot(|depot, _| describe(depot, request))?;
    let failed = |error| Error::io("open a stream", error);
    let (near, mut far) = UnixStream::pair().map_err(failed)?;
    let request = request.clone();
    std::thread::Builder::new()
        .name("volume-changes".into())
        .spawn(move || {
            let sent = send(&source, &request, &mut far);
            let closed = source.close();
            // The other end learns of a failure by the end of the stream.
            drop((sent, closed, far));
        })
        .map_err(failed)?;
    Ok((answer, BufReader::new(near)))
}

/// Parts the stream: stretches go to `stretches`, bytes into the pipe.
fn receive(
    mut stream: BufReader<UnixStream>,
    mut pipe: io::PipeWriter,
    stretches: &SyncSender<DeviceStretch>,
) -> io::Result<()> {
    let mut buffer = vec![0; COPIED_BYTES];
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).map_err(ended_early)?;
        let [kind, bytes @ ..] = header;
        let bytes = u64::from_le_bytes(bytes);
        let stretch = match kind {
            END => return Ok(()),
            SAME => DeviceStretch::Same(bytes),
            HOLE => DeviceStretch::Hole(bytes),
            DATA => DeviceStretch::Data(bytes),
            other => return Err(io::Error::other(format!("a stretch of kind {other}"))),
        };
        if stretches.send(stretch).is_err() {
            return Ok(());
        }
        let mut left = if kind == DATA { bytes } else { 0 };
        while left > 0 {
            let part = &mut buffer[..left.min(COPIED_BYTES as u64) as usize];
            stream.read_exact(part).map_err(ended_early)?;
            pipe.write_all(part)?;
            left -= part.len() as u64;
        }
    }
}

fn ended_early(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other(
            "it could not be read to its end: the depot was closed, or is damaged (`onefold volume check --read-data`)",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is put back to an older state gives numbers and names again: a backup must not take the snapshot
    /// that has them now for the one that it holds.
    #[test]
    fn a_snapshot_of_another_time_has_another_mark() {
        let head = |created| Head {
            id: HeadId(3),
            name: "main@monday".into(),
            bytes: 4096,
            is_writable: false,
            created,
        };
        assert_eq!(mark(&[7; 16], &head(1)), mark(&[7; 16], &head(1)));
        assert_ne!(mark(&[7; 16], &head(1)), mark(&[7; 16], &head(2)));
    }
}
