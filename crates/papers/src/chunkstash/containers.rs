//! The pages of the log that hold a container's metadata: they come into the cache with a hit. Also the number of a
//! container's keys before each of its keys.
//!
//! Invariant: records are entered in the order of the log, so the containers are in the order of their pages.

use onefold_index::ContainerId;

/// The containers of the log, as runs of its pages: 8 bytes each.
#[derive(Default)]
pub(super) struct LogContainers {
    /// First and last page of each container, in the order of the log; neighbours may share a page.
    runs: Vec<[u32; 2]>,
    /// The last container, and the number of its keys so far.
    last: Option<(ContainerId, u64)>,
}

impl LogContainers {
    /// Forgets all containers.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.last = None;
    }

    /// Enters a key of `container` on page `page`. Returns the number of keys of this container before it.
    pub(super) fn enter(&mut self, container: ContainerId, page: u32) -> u64 {
        match (&mut self.last, self.runs.last_mut()) {
            (Some((last, keys)), Some([_, end])) if *last == container => {
                *end = page;
                *keys += 1;
                *keys - 1
            }
            _ => {
                self.runs.push([page, page]);
                self.last = Some((container, 1));
                0
            }
        }
    }

    /// The pages of all containers that have keys on page `page`; the page alone where there are none.
    pub(super) fn pages_of(&self, page: u32) -> std::ops::Range<u32> {
        let from = self.runs.partition_point(|[_, end]| *end < page);
        let of_page = self.runs[from..]
            .iter()
            .take_while(|[first, _]| *first <= page);
        let both = of_page.fold([page, page], |[first, last], [from, end]| {
            [first.min(*from), last.max(*end)]
        });
        both[0]..both[1] + 1
    }

    /// RAM of the runs, in bytes.
    pub(super) fn ram_bytes(&self) -> usize {
        self.runs.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_brings_the_containers_that_it_has_keys_of() {
        let mut containers = LogContainers::default();
        let told = [
            (1, 0),
            (1, 0),
            (1, 1),
            (2, 1),
            (2, 2),
            (3, 2),
            (3, 5),
            (1, 6),
        ];
        let before = told.map(|(id, page)| containers.enter(ContainerId(id), page));
        assert_eq!(before, [0, 1, 2, 0, 1, 0, 1, 0]);
        let pages = [0, 1, 2, 3, 5, 6, 7].map(|page| containers.pages_of(page));
        assert_eq!(pages, [0..2, 0..3, 1..6, 2..6, 2..6, 6..7, 7..8]);
    }
}
