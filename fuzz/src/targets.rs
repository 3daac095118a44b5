//! All targets: a decoder, seeds that it takes, how checksums are made true again, and what it may allocate beyond its
//! input.

mod backup;
mod chunk;
mod export;
mod index;
mod io;
mod lab;
mod papers;
mod program;
mod reach;
mod repository;
mod store;
mod volume;
mod volume_depots;
mod volume_log;

use crate::mend::Mend;
pub use reach::Reach;

/// Function that runs a decoder on an input, and returns how far the input came.
pub type Run = Box<dyn Fn(&[u8]) -> Reach>;

/// One decoder under test.
pub struct Target {
    /// crate/decoder.
    pub name: String,
    /// Whole inputs, to be changed.
    pub seeds: Vec<Vec<u8>>,
    /// Function that makes the checksums of a changed input true again, where there are any.
    pub mend: Option<Mend>,
    /// The input is pages, which stay at their places.
    pub in_pages: bool,
    /// Allocations that do not depend on the input.
    pub base_bytes: usize,
    pub run: Run,
}

impl Target {
    /// Makes a target of a decoder without checksums, or with such as [`mended`](Self::mended) sets. The result of
    /// `run` is how far the input came: `()` means that nothing stops it.
    fn new<R: Into<Reach>>(
        name: &str,
        seeds: Vec<Vec<u8>>,
        run: impl Fn(&[u8]) -> R + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            seeds,
            mend: None,
            in_pages: false,
            base_bytes: 1 << 20,
            run: Box::new(move |bytes| run(bytes).into()),
        }
    }

    fn allowing(self, base_bytes: usize) -> Self {
        Self { base_bytes, ..self }
    }

    fn mended(self, mend: impl Fn(&mut [u8]) + 'static) -> Self {
        Self {
            mend: Some(Box::new(mend)),
            ..self
        }
    }

    fn in_pages(self) -> Self {
        Self {
            in_pages: true,
            ..self
        }
    }
}

/// Every target; none without a seed.
pub fn all() -> Vec<Target> {
    let all: Vec<Target> = [
        io::targets(),
        chunk::targets(),
        index::targets(),
        papers::targets(),
        lab::targets(),
        store::targets(),
        repository::targets(),
        backup::targets(),
        export::targets(),
        program::targets(),
        volume::targets(),
        volume_log::targets(),
        volume_depots::targets(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let is_bare = |target: &&Target| target.seeds.iter().all(Vec::is_empty);
    let bare = all.iter().find(is_bare);
    assert!(
        bare.is_none(),
        "{} has no seeds",
        bare.map_or("", |target| &target.name)
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::Mutator;

    /// Its checksums are a library's, which nothing here makes true again.
    const FOREIGN: &str = "btree/btree";
    /// Changed inputs of each target.
    const INPUTS: usize = 60;
    /// Inputs that must get past the checksums, of those that were made to look whole, and inputs that must be stopped,
    /// of the others: one in five.
    const SHARE_MIN: usize = INPUTS / 5;

    fn changed(target: &Target, mutator: &mut Mutator) -> Vec<u8> {
        loop {
            let bytes = mutator.changed(target);
            if !target.seeds.contains(&bytes) {
                return bytes;
            }
        }
    }

    /// The checksums that are computed here are those of the engine, over the same bytes.
    #[test]
    fn what_is_whole_is_not_mended() {
        for target in all() {
            let Some(mend) = &target.mend else { continue };
            for seed in &target.seeds {
                let mut bytes = seed.clone();
                mend(&mut bytes);
                assert!(bytes == *seed, "{}: its seed is changed", target.name);
            }
        }
    }

    #[test]
    fn what_is_whole_gets_past_the_checksums() {
        for target in all() {
            for seed in &target.seeds {
                assert_eq!((target.run)(seed), Reach::Inside, "{}", target.name);
            }
        }
    }

    /// Else a target tests its checksum and nothing else, and nobody sees it.
    #[test]
    fn of_what_is_changed_and_mended_much_gets_past_the_checksums() {
        for target in all().iter().filter(|target| target.name != FOREIGN) {
            let mut mutator = Mutator::new(1);
            let is_inside = |_: &usize| {
                let mut bytes = changed(target, &mut mutator);
                if let Some(mend) = &target.mend {
                    mend(&mut bytes);
                }
                (target.run)(&bytes) == Reach::Inside
            };
            let inside = (0..INPUTS).filter(is_inside).count();
            let name = &target.name;
            assert!(inside >= SHARE_MIN, "{name}: {inside} of {INPUTS} inputs");
        }
    }

    /// Else the test above could not see a checksum either.
    #[test]
    fn of_what_is_changed_alone_much_is_seen_to_be_stopped() {
        for target in all().iter().filter(|target| target.mend.is_some()) {
            let mut mutator = Mutator::new(1);
            let is_stopped =
                |_: &usize| (target.run)(&changed(target, &mut mutator)) == Reach::Door;
            let stopped = (0..INPUTS).filter(is_stopped).count();
            let name = &target.name;
            assert!(stopped >= SHARE_MIN, "{name}: {stopped} of {INPUTS} inputs");
        }
    }
}
