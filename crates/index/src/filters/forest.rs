//! `forest`: the Forest-structured Bloom Filter (Lu, Debnath, Du 2011; dissertation §3.3).
//!
//! ```text
//! layer 0   [0] [1] … [N1−1]            in RAM first; written to flash as a whole when a page is full
//! layer 1   [0 … b−1] [b … 2b−1] …      a page's b children, and so on
//! ```
//!
//! A key has one page in each layer: h0 chooses that of layer 0, and the digits of h1, base b, choose a child at each further one. Child
//! `page·b + digit` is what the paper's Fig 2 computes in steps; like this it is plainly one-to-one. Always holds: inserts
//! go to the lowest layer alone, so only its pages have updates in RAM, in one pool; a layer is added when some page of the lowest has
//! as many keys as its rate allows. A query asks each layer, at most one read for each.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Disk;

use super::bit_layer::{BitLayer, Buffering};
use super::page_shape::{PAGE_BYTES, PageShape, all_set, digit_of, page_of, set};
use crate::{Filter, Result};

/// In which order a query asks the layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traverse {
    /// The oldest first: for what is asked for again and again since the first backup.
    TopDown,
    /// The newest first: for what was inserted lately.
    BottomUp,
}

/// What a forest is like.
#[derive(Clone, Copy, Debug)]
pub struct ForestOptions {
    /// RAM for layer 0, and for updates once that is on flash.
    pub ram_bytes: usize,
    /// Bits a key, keys a page.
    pub shape: PageShape,
    /// Children of a page, b.
    pub branching: u32,
    /// The order of a query.
    pub traverse: Traverse,
    /// Pages that are flushed together; the paper's best is 1 MB, 256 pages.
    pub group_pages: u32,
    /// Layer 0 is on flash from the beginning and RAM holds updates only.
    pub starts_in_flash: bool,
}

/// See the module.
pub struct Forest {
    disk: Arc<dyn Disk>,
    options: ForestOptions,
    /// Layer 0 and the keys of its pages, as long as it is in RAM.
    first: Option<(Vec<u8>, Vec<u32>)>,
    layers: Vec<BitLayer>,
}

impl Forest {
    /// An empty forest on an empty disk.
    pub fn new(disk: Arc<dyn Disk>, options: ForestOptions) -> Result<Forest> {
        let mut forest = Forest {
            disk,
            options,
            first: None,
            layers: Vec::new(),
        };
        if options.starts_in_flash {
            forest.add_layer()?;
        } else {
            let pages = forest.first_pages() as usize;
            forest.first = Some((vec![0; pages * PAGE_BYTES], vec![0; pages]));
        }
        Ok(forest)
    }

    /// Layers, that in RAM included.
    pub fn height(&self) -> usize {
        self.layers.len() + usize::from(self.first.is_some())
    }

    fn first_pages(&self) -> u32 {
        (self.options.ram_bytes / PAGE_BYTES).max(1) as u32
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
            shape,
            branching,
            group_pages,
            ..
        } = self.options;
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
            Buffering::Pooled,
            ram_bytes,
        )?);
        Ok(())
    }

    /// Layer 0 goes to flash in one piece, and its RAM to updates of layer 1.
    fn leave_ram(&mut self) -> Result<()> {
        if let Some((bytes, _)) = self.first.take() {
            self.disk.write_at(&bytes, 0)?;
            self.add_layer()?;
            self.add_layer()?;
        }
        Ok(())
    }

    fn insert_one(&mut self, key: &Fingerprint) -> Result<()> {
        let page = page_of(key, self.first_pages()) as usize;
        if self
            .first
            .as_ref()
            .is_some_and(|(_, keys)| keys[page] >= self.options.shape.keys)
        {
            self.leave_ram()?;
        }
        if let Some((bytes, keys)) = &mut self.first {
            keys[page] += 1;
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
            .is_some_and(|lowest| lowest.page_is_full(page))
        {
            self.add_layer()?;
        }
        let page = self.page_in(key, self.layers.len() - 1);
        self.layers
            .last_mut()
            .expect("a layer on flash")
            .insert(page, key)
    }
}

/// The page, in the next layer, of child `digit` of `page`.
///
/// Fig 2 counts blocks through all layers: with R root blocks, the children of block i are R + i·b to R + i·b + b − 1. It takes R + i·b for the last of
/// them and goes back from there, into other blocks' children and even into the root; from the first of them on, as here, it is one-to-one.
fn child(page: u32, digit: u32, branching: u32) -> u32 {
    page * branching + digit
}

impl Filter for Forest {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        present.fill(false);
        if let Some((bytes, _)) = &self.first {
            for (key, present) in keys.iter().zip(present) {
                let page = page_of(key, self.first_pages()) as usize;
                *present = all_set(
                    &bytes[page * PAGE_BYTES..][..PAGE_BYTES],
                    self.options.shape.bits(key),
                );
            }
            return Ok(());
        }
        let mut order: Vec<usize> = (0..self.layers.len()).collect();
        if self.options.traverse == Traverse::BottomUp {
            order.reverse();
        }
        for layer in order {
            let places: Vec<usize> = (0..keys.len()).filter(|i| !present[*i]).collect();
            let asked: Vec<_> = places
                .iter()
                .map(|i| (self.page_in(&keys[*i], layer), &keys[*i]))
                .collect();
            for (place, found) in places.into_iter().zip(self.layers[layer].ask(&asked)?) {
                present[place] = found;
            }
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
