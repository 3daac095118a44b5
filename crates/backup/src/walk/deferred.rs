//! Names of subfolders that are looked at much later: a folder may have millions. The first names stay in RAM, the
//! others go to a nameless file.
//!
//! Without room for a temporary file all names stay in RAM: a backup that takes more RAM than it should is better than
//! none.

use onefold_io::os::Scratch;
use parking_lot::Mutex;

/// Largest number of bytes of names that stay in RAM.
const RAM_BYTES_MAX: usize = 4 << 20;

/// A subfolder that is to be listed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subfolder {
    pub name: Vec<u8>,
    /// Whether its own entry says already that it cannot be listed.
    pub is_flagged: bool,
}

/// Store of names that were deferred, in RAM or in a file.
#[derive(Default)]
pub(super) struct Deferred(Mutex<DeferredSpace>);

#[derive(Default)]
struct DeferredSpace {
    ram_bytes: usize,
    file: Option<Scratch>,
    /// Bytes of the file that are in use.
    end: u64,
    /// Number of pieces in the file.
    pieces: usize,
}

/// Names that were deferred, or their place in the file.
pub(super) enum DeferredNames {
    Ram(Vec<u8>),
    File { start: u64, bytes: usize },
}

impl Deferred {
    /// Keeps `names` for later.
    pub fn put(&self, names: &[Subfolder]) -> DeferredNames {
        let bytes = encode(names);
        let mut state = self.0.lock();
        if state.ram_bytes + bytes.len() > RAM_BYTES_MAX
            && let Some(kept) = state.write(&bytes)
        {
            return kept;
        }
        state.ram_bytes += bytes.len();
        DeferredNames::Ram(bytes)
    }

    /// Gives names back. Errors: the temporary file cannot be read.
    pub fn take(&self, kept: DeferredNames) -> onefold_io::Result<Vec<Subfolder>> {
        let mut state = self.0.lock();
        let bytes = match kept {
            DeferredNames::Ram(bytes) => {
                state.ram_bytes -= bytes.len();
                bytes
            }
            DeferredNames::File { start, bytes } => state.read(start, bytes)?,
        };
        Ok(decode(&bytes))
    }
}

impl DeferredSpace {
    /// Writes to the file; `None` where there is no room for it.
    fn write(&mut self, bytes: &[u8]) -> Option<DeferredNames> {
        if self.file.is_none() {
            self.file = Some(Scratch::create().ok()?);
        }
        let start = self.end;
        self.file.as_ref()?.write_at(bytes, start).ok()?;
        self.end += bytes.len() as u64;
        self.pieces += 1;
        Some(DeferredNames::File {
            start,
            bytes: bytes.len(),
        })
    }

    fn read(&mut self, start: u64, len: usize) -> onefold_io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if let Some(file) = &self.file {
            file.read_at(&mut bytes, start)?;
        }
        self.pieces -= 1;
        // In a tree of nested folders the last one is taken back first.
        if start + len as u64 == self.end {
            self.end = start;
        }
        if self.pieces == 0 {
            self.end = 0;
        }
        Ok(bytes)
    }
}

/// Encodes names: a flag, the name, and a zero byte, which no name has.
fn encode(names: &[Subfolder]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(names.iter().map(|one| one.name.len() + 2).sum());
    for Subfolder { name, is_flagged } in names {
        bytes.push(u8::from(*is_flagged));
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Vec<Subfolder> {
    let mut names = Vec::new();
    while let Some((&flag, rest)) = bytes.split_first() {
        let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
        names.push(Subfolder {
            name: rest[..end].to_vec(),
            is_flagged: flag != 0,
        });
        bytes = rest.get(end + 1..).unwrap_or_default();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_ram_and_from_the_file() {
        let deferred = Deferred::default();
        let names = |piece: usize| -> Vec<Subfolder> {
            let name = |n: usize| Subfolder {
                name: format!("{piece}-{n}\n\u{1}").into_bytes(),
                is_flagged: n.is_multiple_of(3),
            };
            (0..50_000).map(name).collect()
        };
        // The second round shows that names which were taken back make room.
        for _ in 0..2 {
            let kept: Vec<_> = (0..20).map(|piece| deferred.put(&names(piece))).collect();
            let in_ram = |kept: &&DeferredNames| matches!(kept, DeferredNames::Ram(_));
            assert!((1..20).contains(&kept.iter().filter(in_ram).count()));
            for (piece, kept) in kept.into_iter().enumerate() {
                assert_eq!(deferred.take(kept).unwrap(), names(piece));
            }
            let state = deferred.0.lock();
            assert_eq!((state.ram_bytes, state.end), (0, 0));
        }
    }

    #[test]
    fn what_is_taken_back_first_makes_room_for_the_next() {
        let deferred = Deferred::default();
        let names = [Subfolder {
            name: vec![b'a'; RAM_BYTES_MAX / 2],
            is_flagged: false,
        }];
        let kept: Vec<_> = (0..3).map(|_| deferred.put(&names)).collect();
        let end = deferred.0.lock().end;
        for _ in 0..5 {
            let last = deferred.put(&names);
            assert_eq!(deferred.take(last).unwrap(), names);
            assert_eq!(deferred.0.lock().end, end);
        }
        kept.into_iter().for_each(|kept| drop(deferred.take(kept)));
    }
}
