//! Chunkers by name.

use crate::{Chunker, fixed::Fixed, sieve::Sieve};

/// No such chunker, or a mean it cannot have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownChunker(pub String);

impl std::fmt::Display for UnknownChunker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownChunker {}

/// All names that [`by_name`] knows.
pub fn names() -> &'static [&'static str] {
    &["sieve", "fixed"]
}

/// The chunker `name` with chunks of `mean` bytes on average; `key` makes the cut points of those that can be keyed secret.
pub fn by_name(
    name: &str,
    mean: usize,
    key: Option<&[u8; 32]>,
) -> Result<Box<dyn Chunker>, UnknownChunker> {
    if !(256..=4 << 20).contains(&mean) {
        return Err(UnknownChunker(format!(
            "a mean chunk of {mean} bytes; 256 to 4194304 can be"
        )));
    }
    match name {
        "fixed" => Ok(Box::new(Fixed::new(mean))),
        "sieve" => Ok(match key {
            Some(key) => Box::new(Sieve::keyed(mean, key)),
            None => Box::new(Sieve::new(mean)),
        }),
        _ => Err(UnknownChunker(format!(
            "no chunker is named \"{name}\"; there are {}",
            names().join(", ")
        ))),
    }
}
