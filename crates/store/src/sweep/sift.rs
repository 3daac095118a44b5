//! Picks the references that may lead to chunks that go, by one look at all references.
//!
//! A filter in RAM holds some millions of chunks that go, and there may be any number. So these chunks and the
//! references are put on shelves by the beginnings of their fingerprints, in the sweep's working file, and then each
//! shelf has a filter of its own. Invariant: every reference to a chunk that goes comes out, and few others do; RAM is
//! one filter, and a piece for each shelf. The file takes 8 bytes for each chunk that goes, and 16 for each reference.

use std::ops::Range;
use std::sync::Arc;

use onefold_index::{ContainerId, Filter};
use onefold_io::mix64;

use super::chunk_filter::{filter_for, key, met};
use crate::Result;
use crate::sweep::marks::{ContainerMarks, MarkOrigin, Marks};
use crate::sweep::spilled::{CHECKSUM_BYTES, Spilled, is_full, seal};

/// With more, each filter errs more often: of two billion chunks that go.
const SHELVES_MAX: u64 = 256;
/// Bytes of a shelf that are written at once.
const PIECE_BYTES: usize = 32 << 10;

/// References that came out.
pub(super) struct Sifted {
    pub(super) marks: Marks,
    /// Number of the references.
    pub(super) references: u64,
}

/// Function that visits the prefixes of all chunks that go, or all references.
pub(super) type Each<'a, T> = &'a mut dyn FnMut(&mut dyn FnMut(T) -> Result<()>) -> Result<()>;

/// Picks the references to chunks that go. `chunks` is the number of these, of which at most `at_once` are in a filter.
/// `None` where there is no room.
pub(super) fn sift(
    file: &Arc<Spilled>,
    (chunks, at_once): (u64, u64),
    going: Each<'_, u64>,
    references: Each<'_, ContainerMarks>,
) -> Result<Option<Sifted>> {
    let before = file.end();
    match sift_into(file, (chunks, at_once), going, references) {
        Err(error) if is_full(&error) => {
            file.cut(before);
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn sift_into(
    file: &Arc<Spilled>,
    (chunks, at_once): (u64, u64),
    going: Each<'_, u64>,
    references: Each<'_, ContainerMarks>,
) -> Result<Sifted> {
    let count = chunks.div_ceil(at_once.max(1)).clamp(1, SHELVES_MAX) as usize;
    let mut of_going: SiftShelves<'_, 1> = SiftShelves::new(file, count);
    going(&mut |prefix| of_going.put([prefix]))?;
    let mut of_references: SiftShelves<'_, 2> = SiftShelves::new(file, count);
    references(&mut |marks| {
        let mut prefixes = marks.prefixes.iter();
        prefixes.try_for_each(|prefix| of_references.put([*prefix, marks.id.0]))
    })?;
    let mut sifted = Sifted {
        marks: Marks::behind(file),
        references: 0,
    };
    for (going, references) in of_going.shelves.iter().zip(&of_references.shelves) {
        let mut filter = filter_for(going.entries)?;
        going.for_each_piece(file, &mut |prefixes| {
            let keys: Vec<_> = prefixes.iter().map(|[prefix]| key(*prefix)).collect();
            Ok(filter.insert(&keys)?)
        })?;
        references.for_each_piece(file, &mut |references| {
            let prefixes: Vec<_> = references.iter().map(|[prefix, _]| *prefix).collect();
            let met = met(&mut filter, &prefixes)?;
            for ([prefix, holder], _) in references.iter().zip(met).filter(|(_, met)| *met) {
                sifted.references += 1;
                let holder = ContainerId(*holder);
                sifted
                    .marks
                    .add_prefix(holder, *prefix, MarkOrigin::Direct)?;
            }
            Ok(())
        })?;
    }
    Ok(sifted)
}

/// Entries of some numbers, by the first of them.
struct SiftShelves<'a, const NUMBERS: usize> {
    file: &'a Spilled,
    shelves: Vec<SiftShelf<NUMBERS>>,
}

#[derive(Clone)]
struct SiftShelf<const NUMBERS: usize> {
    entries: u64,
    /// Where its pieces lie in the file.
    pieces: Vec<Range<u64>>,
    /// Entries that are not written yet.
    ready: Vec<[u64; NUMBERS]>,
}

impl<'a, const NUMBERS: usize> SiftShelves<'a, NUMBERS> {
    fn new(file: &'a Spilled, count: usize) -> Self {
        let empty = SiftShelf {
            entries: 0,
            pieces: Vec::new(),
            ready: Vec::new(),
        };
        Self {
            file,
            shelves: vec![empty; count],
        }
    }

    fn put(&mut self, entry: [u64; NUMBERS]) -> Result<()> {
        // Not by its highest bits: a filter goes by those.
        let at = (u128::from(mix64(entry[0])) * self.shelves.len() as u128) >> 64;
        let shelf = &mut self.shelves[at as usize];
        shelf.entries += 1;
        shelf.ready.push(entry);
        if shelf.ready.len() >= PIECE_BYTES / (8 * NUMBERS) {
            shelf.write(self.file)
        } else {
            Ok(())
        }
    }
}

impl<const NUMBERS: usize> SiftShelf<NUMBERS> {
    fn write(&mut self, file: &Spilled) -> Result<()> {
        let mut bytes = Vec::with_capacity(PIECE_BYTES + CHECKSUM_BYTES);
        let numbers = self.ready.as_flattened().iter();
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        seal(&mut bytes, 0);
        let start = file.append(&bytes)?;
        self.pieces.push(start..start + bytes.len() as u64);
        self.ready.clear();
        Ok(())
    }

    fn for_each_piece(
        &self,
        file: &Spilled,
        visit: &mut dyn FnMut(&[[u64; NUMBERS]]) -> Result<()>,
    ) -> Result<()> {
        for place in &self.pieces {
            let bytes = file.piece(place.start, (place.end - place.start) as usize)?;
            let (numbers, _) = bytes.as_chunks::<8>();
            let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
            visit(numbers.as_chunks::<NUMBERS>().0)?;
        }
        visit(&self.ready)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_io::Dir;
    use onefold_io::sim::{Faults, SimDir};

    use super::*;

    const GOING: u64 = 50_000;
    const REFERENCES: u64 = 200_000;

    /// Scattered numbers; a tenth of the chunks that go are referred to.
    fn scattered(i: u64) -> u64 {
        mix64(i + 1)
    }

    /// All that is referred to, in two hundred containers.
    fn references() -> impl Iterator<Item = ContainerMarks> {
        (0..REFERENCES / 1000).map(|container| ContainerMarks {
            id: ContainerId(container),
            prefixes: (container * 1000..(container + 1) * 1000)
                .map(|i| match i % 40 {
                    0 => scattered(i / 4 % GOING),
                    _ => scattered(GOING + i),
                })
                .collect(),
            followed: false,
        })
    }

    fn sift_at_once(device: &SimDir, at_once: u64) -> Result<Option<Sifted>> {
        let folder: Arc<dyn Dir> = Arc::new(device.clone());
        let file = Arc::new(Spilled::create(Some(&*folder))?);
        sift(
            &file,
            (GOING, at_once),
            &mut |visit| (0..GOING).map(scattered).try_for_each(visit),
            &mut |visit| references().try_for_each(visit),
        )
    }

    #[test]
    fn all_that_is_referred_to_of_what_goes_comes_out_and_little_else() {
        let going: BTreeSet<u64> = (0..GOING).map(scattered).collect();
        let of_marks = |marks: &ContainerMarks| {
            let id = marks.id;
            let prefixes = marks.prefixes.iter().copied();
            prefixes.map(move |prefix| (id, prefix)).collect::<Vec<_>>()
        };
        let all = references().flat_map(|marks| of_marks(&marks));
        let expected: BTreeSet<_> = all.filter(|(_, prefix)| going.contains(prefix)).collect();
        assert_eq!(expected.len() as u64, REFERENCES / 40);
        for at_once in [GOING, GOING / 7, 100] {
            let mut sifted = sift_at_once(&SimDir::new(1), at_once).unwrap().unwrap();
            let mut found = BTreeSet::new();
            let mut visit = |marks: ContainerMarks| {
                found.extend(of_marks(&marks));
                Ok(())
            };
            sifted.marks.for_each(&mut visit).unwrap();
            assert!(found.is_superset(&expected), "{at_once} at once");
            assert_eq!(sifted.references, found.len() as u64);
            let others = found.len() - expected.len();
            assert!(others < 1000, "{at_once} at once: {others} others");
        }
    }

    #[test]
    fn without_room_nothing_comes_of_it_and_the_room_is_given_back() {
        let device = SimDir::new(1);
        device.inject(Faults {
            capacity_bytes: Some(1 << 20),
            ..Faults::default()
        });
        assert!(sift_at_once(&device, 1000).unwrap().is_none());
        assert_eq!(device.len_of("marks").unwrap(), 0);
    }

    #[test]
    fn a_piece_that_comes_back_otherwise_is_told() {
        let device = SimDir::new(1);
        let rehearsal = device.fork();
        sift_at_once(&rehearsal, 1000).unwrap();
        let reads = rehearsal.counts().reads;
        for flipped in [0, reads / 2, reads - 1] {
            let device = device.fork();
            device.inject(Faults {
                flip_read: onefold_io::sim::When::Once(flipped),
                ..Faults::default()
            });
            let told = sift_at_once(&device, 1000).err().unwrap().to_string();
            assert!(told.contains("checksum"), "{told}");
        }
    }
}
