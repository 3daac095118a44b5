//! `forest`: the Forest-structured Bloom Filter (Lu, Debnath, Du 2011; dissertation §3.3).
//!
//! ```text
//! layer 0   [0] [1] … [N1−1]            in RAM first; written to flash as a whole when a page is full
//! layer 1   [0 … b−1] [b … 2b−1] …      a page's b children, and so on
//! ```
//!
//! A key has one page in each layer: h0 chooses that of layer 0, and the digits of h1, base b, choose a child in each
//! further one. The paper's Fig 2 computes child `page·b + digit` in steps; the closed form is plainly one-to-one.
//! Invariant: inserts go to the lowest layer alone, so only its pages have updates in RAM, in one pool; a layer is
//! added when some page of the lowest has as many keys as its rate allows. A query asks each layer, at most one read
//! for each.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::varint::put_varint;
use onefold_io::{Dir, Disk};

use super::bit_layer::BitLayer;
use super::buffering::{Accounting, BufferOptions, Buffering};
use super::page_shape::{Full, PAGE_BYTES, PageShape, all_set, digit_of, page_of, set};
use super::saved::{self, Saved, number, put_checksum, put_counts, put_pages, put_shape};
use onefold_index::{Filter, Result};

/// The order in which a query asks the layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traverse {
    /// The oldest layer first: for keys that recur since the first backup.
    TopDown,
    /// The newest layer first: for keys that were inserted lately.
    BottomUp,
}

/// Options of a forest.
#[derive(Clone, Copy, Debug)]
pub struct ForestOptions {
    /// RAM in bytes for layer 0, and for updates once that is on flash.
    pub ram_bytes: usize,
    /// Bits a key and keys a page in layer 0.
    pub shape: PageShape,
    /// Bits a key and keys a page in the layers that grow. Fewer bits a key leave room for more keys in the buffer
    /// (§3.5.6): k' of them need M' = −N·k'/ln(1 − f^(1/k')) bits ([`PageShape::with_hashes`]), so there are more
    /// pages, by a larger `branching`.
    pub grown: PageShape,
    /// Number of children of a page, b.
    pub branching: u32,
    /// The order in which a query asks the layers.
    pub traverse: Traverse,
    /// Number of pages that are flushed together; the paper's best is 1 MB, 256 pages.
    pub group_pages: u32,
    /// Whether layer 0 is on flash from the beginning, and RAM holds updates only.
    pub starts_in_flash: bool,
    /// The rule for adding a layer.
    pub full: Full,
    /// The accounting of buffered updates.
    pub accounting: Accounting,
}

/// The filter `forest`: layers of page-sized Bloom filters that grow with the keys.
pub struct Forest {
    disk: Arc<dyn Disk>,
    options: ForestOptions,
    first_pages: u32,
    /// Layer 0 and the numbers of keys in its pages, while it is in RAM.
    first: Option<(Vec<u8>, Vec<u32>)>,
    /// Number of keys in layer 0 while it is in RAM.
    first_keys: u64,
    layers: Vec<BitLayer>,
    asked: ReadCounts,
}

/// Numbers of queried keys by the pages read for them; the last place counts all keys with more reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadCounts {
    /// Keys that may be in the set.
    pub present: [u64; 8],
    /// Keys that are surely not in the set.
    pub absent: [u64; 8],
}

impl ReadCounts {
    fn note(&mut self, present: bool, reads: usize) {
        let of = if present {
            &mut self.present
        } else {
            &mut self.absent
        };
        of[reads.min(7)] += 1;
    }
}

impl Forest {
    /// An empty forest on an empty disk.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io): there is no room for a first layer on flash.
    pub fn new(disk: Arc<dyn Disk>, options: ForestOptions) -> Result<Forest> {
        let mut forest = Forest {
            disk,
            options,
            first_pages: (options.ram_bytes / PAGE_BYTES).max(1) as u32,
            first: None,
            first_keys: 0,
            layers: Vec::new(),
            asked: ReadCounts::default(),
        };
        if options.starts_in_flash {
            forest.add_layer()?;
        } else {
            let pages = forest.first_pages() as usize;
            forest.first = Some((vec![0; pages * PAGE_BYTES], vec![0; pages]));
        }
        Ok(forest)
    }

    /// The number of layers, including one in RAM.
    pub fn height(&self) -> usize {
        self.layers.len() + usize::from(self.first.is_some())
    }

    /// Writes buffered updates to flash, and saves the rest as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) where written
    /// pages are missing; the name then belongs to the old content or to the whole new one.
    pub fn save(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
        if let Some(lowest) = self.layers.last_mut() {
            lowest.flush()?;
        }
        self.disk.sync()?;
        let mut body = Vec::new();
        put_shape(&mut body, self.options.shape);
        put_shape(&mut body, self.options.grown);
        put_varint(&mut body, self.first_pages().into());
        put_varint(&mut body, self.options.branching.into());
        match &self.first {
            Some((bytes, keys)) => {
                put_varint(&mut body, 0);
                put_counts(&mut body, keys);
                put_pages(&mut body, bytes);
            }
            None => {
                put_varint(&mut body, self.layers.len() as u64);
                self.layers
                    .iter()
                    .for_each(|layer| put_counts(&mut body, layer.keys()));
            }
        }
        let end = self.layers.last().map_or(0, BitLayer::end);
        put_checksum(&mut body, &*self.disk, end)?;
        saved::save(dir, name, Saved::Forest, &body)
    }

    /// Loads the forest that was saved as file `name` of `dir` and has its layers on `disk`. Shapes, branching and the
    /// pages of layer 0 are the saved ones; `options` decide the RAM for updates, and the order of a query.
    ///
    /// # Errors
    /// [`Error::Damaged`](onefold_index::Error::Damaged) where the file is not whole or holds another kind of filter,
    /// or the pages on `disk` have changed; [`Error::Io`](onefold_index::Error::Io), also where there is no file.
    pub fn load(
        disk: Arc<dyn Disk>,
        dir: &dyn Dir,
        name: &str,
        options: ForestOptions,
    ) -> Result<Forest> {
        saved::load(dir, name, Saved::Forest, |reader| {
            let (shape, grown) = (saved::shape(reader)?, saved::shape(reader)?);
            let first_pages = number(reader, 1, 1 << 28)? as u32;
            let branching = number(reader, 2, 1 << 16)? as u32;
            let height = number(reader, 0, 32)?;
            let mut forest = Forest {
                disk,
                options: ForestOptions {
                    shape,
                    grown,
                    branching,
                    ..options
                },
                first_pages,
                first: None,
                first_keys: 0,
                layers: Vec::new(),
                asked: ReadCounts::default(),
            };
            if height == 0 {
                let keys = saved::counts(reader)?;
                let bytes = saved::pages(reader, first_pages as usize)?;
                if keys.len() != first_pages as usize {
                    return Err(reader.damaged(format!("{} counts", keys.len())).into());
                }
                forest.first_keys = keys.iter().map(|keys| u64::from(*keys)).sum();
                forest.first = Some((bytes, keys));
            }
            let of_layers = (0..height).map(|_| saved::counts(reader));
            let of_layers: Vec<Vec<u32>> = of_layers.collect::<Result<_>>()?;
            let end = saved::check_pages(reader, &*forest.disk)?;
            let mut expected = u64::from(first_pages);
            let sizes_fit = of_layers.iter().all(|keys| {
                let fits = keys.len() as u64 == expected;
                expected *= u64::from(branching);
                fits
            });
            let pages: usize = of_layers.iter().map(Vec::len).sum();
            if !sizes_fit || pages as u64 != end {
                return Err(reader
                    .damaged(format!("{height} layers of {pages} pages, {end} on flash"))
                    .into());
            }
            for keys in of_layers {
                forest.add_layer()?;
                forest
                    .layers
                    .last_mut()
                    .expect("a layer")
                    .restore_keys(keys);
            }
            Ok(forest)
        })
    }

    /// The costs of queries so far: the numbers of present and absent keys for which 0, 1, 2 … pages were read (table
    /// 3.5's qlen).
    pub fn asked(&self) -> &ReadCounts {
        &self.asked
    }

    fn first_pages(&self) -> u32 {
        self.first_pages
    }

    /// The page of `key` in `layer`.
    fn page_in(&self, key: &Fingerprint, layer: usize) -> u32 {
        let b = self.options.branching;
        (0..layer as u32).fold(page_of(key, self.first_pages()), |page, above| {
            child(page, digit_of(key, above, b), b)
        })
    }

    fn add_layer(&mut self) -> Result<()> {
        let ForestOptions {
            ram_bytes,
            branching,
            group_pages,
            accounting,
            ..
        } = self.options;
        let shape = if self.layers.is_empty() {
            self.options.shape
        } else {
            self.options.grown
        };
        if let Some(lowest) = self.layers.last_mut() {
            lowest.flush()?;
        }
        let pages = self
            .layers
            .last()
            .map_or(self.first_pages(), |lowest| lowest.pages() * branching);
        let start = self.layers.last().map_or(0, |lowest| lowest.end());
        self.layers.push(BitLayer::new(
            Arc::clone(&self.disk),
            start,
            pages,
            group_pages,
            shape,
            BufferOptions {
                buffering: Buffering::Pooled,
                bytes: ram_bytes,
                accounting,
            },
        )?);
        Ok(())
    }

    /// Writes layer 0 to flash in one piece, and uses its RAM for updates of layer 1.
    fn leave_ram(&mut self) -> Result<()> {
        if let Some((bytes, _)) = self.first.take() {
            self.disk.write_at(&bytes, 0)?;
            self.add_layer()?;
            self.add_layer()?;
        }
        Ok(())
    }

    fn insert_one(&mut self, key: &Fingerprint) -> Result<()> {
        if self.first_is_full(key) {
            self.leave_ram()?;
        }
        if let Some((bytes, keys)) = &mut self.first {
            let page = page_of(key, self.first_pages) as usize;
            keys[page] += 1;
            self.first_keys += 1;
            set(
                &mut bytes[page * PAGE_BYTES..][..PAGE_BYTES],
                self.options.shape.bits(key),
            );
            return Ok(());
        }
        let page = self.page_in(key, self.layers.len() - 1);
        if self
            .layers
            .last()
            .is_some_and(|lowest| self.is_full(lowest, page))
        {
            self.add_layer()?;
        }
        let page = self.page_in(key, self.layers.len() - 1);
        self.layers
            .last_mut()
            .expect("a layer on flash")
            .insert(page, key)
    }

    /// Whether layer 0 is in RAM and has no room for `key`.
    fn first_is_full(&self, key: &Fingerprint) -> bool {
        let most = self.options.shape.keys;
        self.first
            .as_ref()
            .is_some_and(|(_, keys)| match self.options.full {
                Full::FullestPage => keys[page_of(key, self.first_pages) as usize] >= most,
                Full::MeanPage => self.first_keys >= keys.len() as u64 * u64::from(most),
            })
    }

    fn is_full(&self, layer: &BitLayer, page: u32) -> bool {
        match self.options.full {
            Full::FullestPage => layer.page_is_full(page),
            Full::MeanPage => layer.is_full_on_the_mean(),
        }
    }
}

/// The page, in the next layer, of child `digit` of `page`.
///
/// Fig 2 counts blocks through all layers: with R root blocks, the children of block i are R + i·b to R + i·b + b − 1.
/// The figure takes R + i·b for the last child and goes back from there, into other blocks' children and even into the
/// root; counted from the first child on, as here, the mapping is one-to-one.
fn child(page: u32, digit: u32, branching: u32) -> u32 {
    page * branching + digit
}

impl Filter for Forest {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        present.fill(false);
        if let Some((bytes, _)) = &self.first {
            for (key, present) in keys.iter().zip(present) {
                let page = page_of(key, self.first_pages()) as usize;
                let bytes = &bytes[page * PAGE_BYTES..][..PAGE_BYTES];
                *present = all_set(bytes, self.options.shape.bits(key));
                self.asked.note(*present, 0);
            }
            return Ok(());
        }
        let mut order: Vec<usize> = (0..self.layers.len()).collect();
        if self.options.traverse == Traverse::BottomUp {
            order.reverse();
        }
        let mut reads = vec![0; keys.len()];
        // buffered bits cost nothing, in either order
        let lowest = self.layers.len() - 1;
        for (key, present) in keys.iter().zip(present.iter_mut()) {
            *present = self.layers[lowest].is_buffered(self.page_in(key, lowest), key);
        }
        for layer in order {
            let places: Vec<usize> = (0..keys.len()).filter(|i| !present[*i]).collect();
            let asked: Vec<_> = places
                .iter()
                .map(|i| (self.page_in(&keys[*i], layer), &keys[*i]))
                .collect();
            let answers = self.layers[layer].ask(&asked)?;
            for (place, answer) in places.into_iter().zip(answers) {
                present[place] = answer.is_present;
                reads[place] += usize::from(answer.was_read);
            }
        }
        for (present, reads) in present.iter().zip(reads) {
            self.asked.note(*present, reads);
        }
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        keys.iter().try_for_each(|key| self.insert_one(key))
    }

    fn ram_bytes(&self) -> usize {
        let first = self
            .first
            .as_ref()
            .map_or(0, |(bytes, keys)| bytes.capacity() + keys.capacity() * 4);
        first
            + self
                .layers
                .iter()
                .map(|layer| layer.ram_bytes())
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fig 2 repaired: the child of a block that is numbered through all layers.
    fn by_fig_2(block: u32, cpos: u32, branching: u32, root: u32) -> u32 {
        block * branching + root + cpos
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_page_has_one_parent_and_one_digit(root in 1u32..40, branching in 2u32..9) {
            let (mut first, mut pages) = (0, root);
            for _ in 0..3 {
                let mut taken = vec![false; (pages * branching) as usize];
                for page in 0..pages {
                    for digit in 0..branching {
                        let place = child(page, digit, branching);
                        let numbered = by_fig_2(first + page, digit, branching, root);
                        prop_assert_eq!(numbered, first + pages + place);
                        prop_assert!(!std::mem::replace(&mut taken[place as usize], true));
                    }
                }
                prop_assert!(taken.iter().all(|taken| *taken));
                (first, pages) = (first + pages, pages * branching);
            }
        }
    }
}
