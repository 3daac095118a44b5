//! Names as the store has them: sorted, in one allocation.

use super::Names;

/// A sorted set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sorted<T>(Vec<T>);

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> From<Vec<T>> for Sorted<T> {
    fn from(mut names: Vec<T>) -> Self {
        names.sort_unstable();
        names.dedup();
        Self(names)
    }
}

impl<T: Ord> Sorted<T> {
    /// All of them, in order.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// Whether this is one of them.
    pub fn contains(&self, name: &T) -> bool {
        self.0.binary_search(name).is_ok()
    }
}

impl<T: Ord + Clone> Names for Sorted<T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        all.extend(other.0.iter().filter(|name| !self.contains(name)).cloned());
        all.sort_unstable();
        Self(all)
    }

    fn minus(&self, other: &Self) -> Self {
        let left = self.0.iter().filter(|name| !other.contains(name));
        Self(left.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sums_and_differences_are_those_of_sets() {
        let set = |bits: u32| (0..6).filter(move |number| bits >> number & 1 == 1);
        for (a, b) in (0..64).flat_map(|a| (0..64).map(move |b| (a, b))) {
            let [one, other] = [a, b].map(|bits| Sorted::from(set(bits).rev().collect::<Vec<_>>()));
            let [naive_one, naive_other] = [a, b].map(|bits| set(bits).collect::<BTreeSet<u32>>());
            let both: Vec<_> = naive_one.union(&naive_other).copied().collect();
            let left: Vec<_> = naive_one.difference(&naive_other).copied().collect();
            assert_eq!(one.plus(&other).as_slice(), both);
            assert_eq!(one.minus(&other).as_slice(), left);
        }
    }
}
