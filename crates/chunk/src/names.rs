//! Chunkers by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::{
    Chunker, adaptive::Adaptive, ae::Ae, fastcdc::FastCdc, fixed::Fixed, gear::Gear, inc_k::IncK,
    rabin::Rabin, ram::Ram, seqcdc::SeqCdc, sieve::Sieve, tttd::Tttd, whole_file::WholeFile,
};
#[cfg(feature = "std")]
use crate::{context::Context, fbc::Fbc};

/// The longest chunk of `whole-file`, in bytes; longer files are cut at this. Whoever cuts holds some chunks in RAM:
/// with this two dozen of them stay below 100 MiB. Files that are alike are found as surely as if they were one chunk
/// each.
pub const WHOLE_FILE_BYTES_MAX: usize = 4 << 20;

/// No such chunker, or a mean it cannot have.
///
/// ```
/// use onefold_chunk::by_name;
///
/// let Err(error) = by_name("cheese", 8192, None) else { panic!() };
/// assert!(error.to_string().starts_with("no chunker is named \"cheese\"; there are sieve"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownChunker(pub String);

impl core::fmt::Display for UnknownChunker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for UnknownChunker {}

/// All names that [`by_name`] knows.
///
/// ```
/// use onefold_chunk::{by_name, names};
///
/// assert!(names().iter().all(|name| by_name(name, 8192, None).is_ok()));
/// ```
pub fn names() -> &'static [&'static str] {
    &[
        "sieve",
        "sieve-adaptive",
        "sieve-threshold",
        "fixed",
        "whole-file",
        "rabin",
        "inc-k",
        "gear",
        "fastcdc",
        "tttd",
        "ae",
        "ram",
        "seqcdc",
        #[cfg(feature = "std")]
        "context",
        #[cfg(feature = "std")]
        "fbc",
    ]
}

/// The chunker `name` with chunks of `mean` bytes on average; `key` makes the cut points of `sieve`, `sieve-adaptive`
/// and `sieve-threshold` (and of `context` where it uses that) secret, and the others disregard it. `whole-file`
/// disregards the mean: its chunks are files, up to [`WHOLE_FILE_BYTES_MAX`].
///
/// ```
/// use onefold_chunk::{Chunker, by_name};
///
/// let mut chunker = by_name("fastcdc", 4096, None)?;
/// assert_eq!((chunker.limits().min, chunker.limits().max), (1024, 16384));
/// assert_eq!(chunker.cut(b"a stream that ends before the minimum"), 37);
/// # Ok::<(), onefold_chunk::UnknownChunker>(())
/// ```
///
/// # Errors
/// [`UnknownChunker`]: there is none of the name (the message has those that there are), or `mean` is not within 256
/// bytes to 4 MiB.
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
        "whole-file" => Ok(Box::new(WholeFile::new(WHOLE_FILE_BYTES_MAX))),
        "rabin" => Ok(Box::new(Rabin::new(mean))),
        "inc-k" => Ok(Box::new(IncK::new(mean))),
        "gear" => Ok(Box::new(Gear::new(mean))),
        "fastcdc" => Ok(Box::new(FastCdc::new(mean))),
        "tttd" => Ok(Box::new(Tttd::new(mean))),
        "ae" => Ok(Box::new(Ae::new(mean))),
        "ram" => Ok(Box::new(Ram::new(mean))),
        #[cfg(feature = "std")]
        "fbc" => Ok(Box::new(Fbc::one_pass(mean))),
        "seqcdc" => Ok(Box::new(SeqCdc::new(mean))),
        #[cfg(feature = "std")]
        "context" => Ok(Box::new(Context::new(
            mean,
            key,
            alloc::sync::Arc::default(),
        ))),
        "sieve" => Ok(match key {
            Some(key) => Box::new(Sieve::keyed(mean, key)),
            None => Box::new(Sieve::new(mean)),
        }),
        "sieve-adaptive" => Ok(match key {
            Some(key) => Box::new(Adaptive::keyed(mean, key)),
            None => Box::new(Adaptive::new(mean)),
        }),
        "sieve-threshold" => Ok(match key {
            Some(key) => Box::new(Sieve::threshold_keyed(mean, key)),
            None => Box::new(Sieve::threshold(mean)),
        }),
        _ => Err(UnknownChunker(format!(
            "no chunker is named \"{name}\"; there are {}",
            names().join(", ")
        ))),
    }
}
