//! All targets: a decoder, seeds that it takes, and what it may allocate beyond its input.

mod backup;
mod chunk;
mod index;
mod io;
mod lab;
mod papers;
mod store;

/// What is run on each input.
pub type Run = Box<dyn Fn(&[u8])>;

/// One decoder under test.
pub struct Target {
    /// crate/decoder.
    pub name: String,
    /// Whole inputs, to be changed.
    pub seeds: Vec<Vec<u8>>,
    /// Allocations that do not depend on the input.
    pub base_bytes: usize,
    pub run: Run,
}

impl Target {
    fn new(name: &str, seeds: Vec<Vec<u8>>, run: impl Fn(&[u8]) + 'static) -> Self {
        Self {
            name: name.into(),
            seeds,
            base_bytes: 1 << 20,
            run: Box::new(run),
        }
    }

    fn allowing(self, base_bytes: usize) -> Self {
        Self { base_bytes, ..self }
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
        backup::targets(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let bare = all.iter().find(|target| target.seeds.is_empty());
    assert!(
        bare.is_none(),
        "{} has no seeds",
        bare.map_or("", |target| &target.name)
    );
    all
}
