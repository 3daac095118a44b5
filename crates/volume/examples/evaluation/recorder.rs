//! A device that writes down what a file system of this host does to it: which chunks are written, in which order, and
//! which of them are the file system's own.
//!
//! Files are written so that each chunk of them begins with [`MARK`] and a number. A chunk that holds something and has
//! no mark is metadata: nothing has to be guessed.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onefold_io::{Disk, mix64};
use onefold_volume::hints::FileSystem;
use onefold_volume::{BlockDevice, ExtentKind, Geometry, Op, Request, Result, Visit};

use crate::setup::{CHUNK_BYTES, ZEROS};
use crate::trimmed_disk::TrimmedDisk;

/// First bytes of each chunk of a file; a number of eight bytes follows.
pub const MARK: [u8; 8] = *b"\xF1LE-data";
/// Bytes of the longest request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The owner of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The chunk is all zeros.
    Zero,
    /// The chunk belongs to a file.
    Data,
    /// The chunk belongs to the file system.
    Metadata,
}

/// A chunk that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The owner.
    pub kind: Kind,
    /// A hash of the bytes; [`ZEROS`] of zeros.
    pub content: u64,
    /// Whether `onefold_volume` takes it for metadata, which nobody told it.
    pub is_inferred: bool,
}

impl Chunk {
    /// The chunk with these bytes, behind which zeros may be left out.
    pub fn of(bytes: &[u8]) -> Self {
        let len = bytes.iter().rposition(|byte| *byte != 0).map(|at| at + 1);
        let kind = match len {
            None => Kind::Zero,
            Some(_) if bytes.starts_with(&MARK) => Kind::Data,
            Some(_) => Kind::Metadata,
        };
        Self {
            kind,
            content: len.map_or(ZEROS, |len| hash(&bytes[..len])),
            is_inferred: false,
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(eight)
    });
    let hash = words.fold(1, |hash, word| mix64(hash ^ word).wrapping_add(1));
    // The numbers of zeros, and of nothing at all, are taken.
    hash >> 1
}

/// A request, as the file system sent it.
#[derive(Clone, Debug)]
pub enum Event {
    /// Neighbouring chunks, from a place on.
    Write(u64, Vec<Chunk>),
    /// Places that were read.
    Read(Range<u64>),
    /// Everything before has to survive a crash.
    Flush,
    /// All before prepared the load that is measured.
    Begin,
}

/// The device.
pub struct Recorder {
    disk: TrimmedDisk,
    bytes: u64,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    is_on: bool,
    events: Vec<Event>,
    file_system: FileSystem,
}

impl Recorder {
    /// A device of zeros, of whole chunks, that notes nothing yet.
    pub fn new(bytes: u64) -> Self {
        Self {
            disk: TrimmedDisk::new(bytes),
            bytes,
            noted: Mutex::default(),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to note requests. The file system has been made.
    ///
    /// # Errors
    /// None that a disk in RAM has.
    pub fn start(&self) -> Result<()> {
        let file_system = FileSystem::find(self.bytes, &mut |offset, buffer| {
            Ok(self.disk.read_at(buffer, offset)?)
        })?;
        *self.noted() = Noted {
            is_on: true,
            events: Vec::new(),
            file_system,
        };
        Ok(())
    }

    /// Notes that the load begins that is measured.
    pub fn begin(&self) {
        self.noted().events.push(Event::Begin);
    }

    /// Ends noting, and returns all that was noted.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.noted()).events
    }

    /// All chunks that the device holds now, but for those that nobody wrote.
    pub fn chunks(&self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        self.disk.visit(&mut |bytes| chunks.push(Chunk::of(bytes)));
        chunks
    }

    fn carry_out(&self, request: &mut Request) -> Result<()> {
        let (offset, end) = (request.offset, request.offset + request.bytes);
        let places = offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        match request.op {
            Op::Read => {
                self.disk.read_at(&mut request.buffer, offset)?;
                self.note(Event::Read(places));
            }
            Op::Write => self.write(offset, &request.buffer, places)?,
            Op::Discard | Op::WriteZeroes => {
                for at in (offset..end).step_by(REQUEST_BYTES_MAX as usize) {
                    let zeros = vec![0; (end - at).min(REQUEST_BYTES_MAX) as usize];
                    let places = at / CHUNK_BYTES..(at + zeros.len() as u64).div_ceil(CHUNK_BYTES);
                    self.write(at, &zeros, places)?;
                }
            }
            Op::Flush => {}
        }
        if request.fua || request.op == Op::Flush {
            self.note(Event::Flush);
        }
        Ok(())
    }

    fn note(&self, event: Event) {
        let mut noted = self.noted();
        if noted.is_on {
            noted.events.push(event);
        }
    }

    /// Writes, and notes what the chunks hold then: a write may be shorter than they are.
    fn write(&self, offset: u64, data: &[u8], places: Range<u64>) -> Result<()> {
        let mut noted = self.noted();
        self.disk.write_at(data, offset)?;
        if noted.is_on {
            let mut whole = vec![0; ((places.end - places.start) * CHUNK_BYTES) as usize];
            self.disk.read_at(&mut whole, places.start * CHUNK_BYTES)?;
            let bytes = whole.chunks_exact(CHUNK_BYTES as usize);
            let chunks = bytes.zip(places.clone()).map(|(bytes, place)| Chunk {
                is_inferred: noted.file_system.has_metadata(place * CHUNK_BYTES, bytes),
                ..Chunk::of(bytes)
            });
            let event = Event::Write(places.start, chunks.collect());
            noted.events.push(event);
        }
        Ok(())
    }
}

impl BlockDevice for Recorder {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes,
            chunk_bytes: CHUNK_BYTES as u32,
            io_bytes_max: REQUEST_BYTES_MAX as u32,
            is_writable: true,
            name: "recorder".into(),
        }
    }

    fn submit(&self, requests: &mut Vec<Request>) {
        for mut request in requests.drain(..) {
            let done = self.carry_out(&mut request);
            request.completion.done(done.map(|()| request.buffer));
        }
    }

    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        visit(range, ExtentKind::Data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(number: u8) -> Vec<u8> {
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8] = number;
        bytes
    }

    #[test]
    fn chunks_are_told_apart_by_their_mark_and_their_bytes() {
        let (one, two) = (marked(1), marked(2));
        assert_eq!(Chunk::of(&one).kind, Kind::Data);
        assert_ne!(Chunk::of(&one).content, Chunk::of(&two).content);
        assert_eq!(Chunk::of(&one), Chunk::of(&one[..9]), "zeros at the end");
        assert_eq!(Chunk::of(&[0; 4096]).kind, Kind::Zero);
        assert_eq!(Chunk::of(&[0, 7]).kind, Kind::Metadata);
        assert_ne!(Chunk::of(&[0, 7]).content, Chunk::of(&[7]).content);
    }

    #[test]
    fn a_part_of_a_chunk_is_noted_as_the_whole_chunk() {
        let recorder = Recorder::new(1 << 20);
        recorder.write(0, &[5; 10], 0..1).expect("RAM");
        recorder.start().expect("RAM");
        let whole = marked(1);
        recorder.write(8192, &whole[..512], 2..3).expect("RAM");
        recorder.write(8192 + 512, &[9; 512], 2..3).expect("RAM");
        let events = recorder.take();
        let kinds: Vec<Kind> = events.iter().flat_map(written).collect();
        assert_eq!(kinds, [Kind::Data, Kind::Data], "{events:?}");
        assert_eq!(recorder.chunks().len(), 2);
        assert!(recorder.take().is_empty());
    }

    fn written(event: &Event) -> Vec<Kind> {
        match event {
            Event::Write(_, chunks) => chunks.iter().map(|chunk| chunk.kind).collect(),
            _ => Vec::new(),
        }
    }
}
