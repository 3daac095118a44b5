//! How deep a check looks: which containers it reads.

use onefold_index::ContainerId;
use onefold_io::mix64;

/// How deep a check looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckDepth {
    /// Every root, all metadata, every container's header, footer and descriptors, and that every reference leads
    /// somewhere.
    Structure,
    /// That, and the content of every block in part `part` of `of` parts, from 1 on.
    Data {
        /// Which part of the containers.
        part: u32,
        /// Number of parts in all.
        of: u32,
    },
    /// Structure, and the content of every block in some containers, chosen at random.
    Sample {
        /// Share of all containers, in millionths; at least one is read.
        per_million: u32,
        /// Another choice for each.
        seed: u64,
    },
}

impl CheckDepth {
    /// Whether each container's content is read.
    pub(super) fn chooser(self, listed: &[ContainerId]) -> impl Fn(ContainerId) -> bool {
        // Ids are random, but those that a repository keeps need not be: mixed, neither they nor their order say
        // anything.
        let mixed = |id: ContainerId, seed| mix64(id.0 ^ mix64(seed));
        let last = match self {
            Self::Sample { per_million, seed } if !listed.is_empty() => {
                let wanted = listed.len() as u128 * u128::from(per_million.min(1_000_000));
                let wanted = wanted.div_ceil(1_000_000).max(1) as usize;
                let mut all: Vec<u64> = listed.iter().map(|id| mixed(*id, seed)).collect();
                *all.select_nth_unstable(wanted - 1).1
            }
            _ => 0,
        };
        move |id| match self {
            Self::Structure => false,
            Self::Data { part, of } => id.0 % u64::from(of.max(1)) + 1 == u64::from(part),
            Self::Sample { seed, .. } => mixed(id, seed) <= last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_share_that_was_asked_for_and_is_another_each_time() {
        let listed: Vec<_> = (0..1000).map(|n| ContainerId(n * 4)).collect();
        let sample = |per_million, seed| -> Vec<ContainerId> {
            let is_chosen = CheckDepth::Sample { per_million, seed }.chooser(&listed);
            listed.iter().copied().filter(|id| is_chosen(*id)).collect()
        };
        for (per_million, count) in [(1, 1), (25_000, 25), (600_000, 600), (1_000_000, 1000)] {
            assert_eq!(sample(per_million, 7).len(), count);
        }
        assert_eq!(sample(400_000, 7), sample(400_000, 7));
        assert_ne!(sample(400_000, 7), sample(400_000, 8));
        let none = CheckDepth::Sample {
            per_million: 1,
            seed: 1,
        }
        .chooser(&[]);
        assert!(!none(ContainerId(1)));
    }
}
