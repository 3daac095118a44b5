//! Chunkers by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::knobs::{Knob, Knobs, Values, split};
use crate::{
    Chunker, adaptive::Adaptive, ae::Ae, fastcdc::FastCdc, fixed::Fixed, gear::Gear, inc_k::IncK,
    rabin::Rabin, ram::Ram, seqcdc::SeqCdc, sieve::Sieve, tttd::Tttd, whole_file::WholeFile,
};
#[cfg(feature = "std")]
use crate::{
    context::Context,
    fbc::{Params, SharedFbc},
};

/// The longest chunk of `whole-file`, in bytes; longer files are cut at this size. A caller holds some chunks in RAM:
/// two dozen of this size stay below 100 MiB. Equal files are found as surely as if they were one chunk each.
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

/// The parameters of the chunker `name`; an empty list for most.
///
/// ```
/// use onefold_chunk::knobs_of;
///
/// assert_eq!(knobs_of("inc-k").iter().map(|knob| knob.default).collect::<Vec<_>>(), ["13", "2048", "65536"]);
/// ```
pub fn knobs_of(name: &str) -> &'static [Knob] {
    match name {
        "rabin" => &RABIN,
        "inc-k" => &INC_K,
        #[cfg(feature = "std")]
        "fbc" => &crate::fbc::KNOBS,
        _ => &[],
    }
}

const MIN: Knob = Knob {
    key: "min",
    values: Values::Whole(64, 1 << 20),
    default: "2048",
    about: "bytes of the shortest chunk",
};
const MAX: Knob = Knob {
    key: "max",
    values: Values::Whole(128, 4 << 20),
    default: "65536",
    about: "bytes of the longest chunk",
};
/// Parameters of `rabin`, with LBFS's defaults.
const RABIN: [Knob; 3] = [bits(31), MIN, MAX];
/// Parameters of `inc-k`, with PRUNE's defaults (§4.2).
const INC_K: [Knob; 3] = [bits(30), MIN, MAX];

const fn bits(most: u64) -> Knob {
    Knob {
        key: "bits",
        values: Values::Whole(1, most),
        default: "13",
        about: "bits of the pattern at a cut; they and the limits make the mean, and --chunk-size counts for nothing",
    }
}

/// Shortest chunk, longest chunk and bits: the given values, or the paper's defaults.
fn pattern(name: &str, knobs: &Knobs) -> Result<(usize, usize, u32), UnknownChunker> {
    let min = knobs.whole("min").unwrap_or(2048);
    let max = knobs.whole("max").unwrap_or(65_536);
    if min >= max {
        return Err(UnknownChunker(format!(
            "{name}: min is {min} and max is {max}; min is less than max"
        )));
    }
    let bits = knobs.whole("bits").unwrap_or(13);
    Ok((min as usize, max as usize, bits as u32))
}

/// The chunker `fbc`: in one pass without parameters, otherwise in the dissertation's two stages.
#[cfg(feature = "std")]
fn shared_fbc(knobs: &Knobs, mean: usize) -> SharedFbc {
    if knobs.is_empty() {
        SharedFbc::one_pass(mean)
    } else {
        SharedFbc::counting(Params::of(knobs, mean))
    }
}

/// The chunker `name`, as for [`by_name`], if it learns from the data that it cuts and can start from an earlier run's
/// sketch: `fbc`; `None` for others. All clones share what they learn.
///
/// ```
/// use onefold_chunk::learning;
///
/// assert!(learning("rabin", 8192)?.is_none());
/// let chunker = learning("fbc:threshold=9", 8192)?.expect("it learns");
/// assert!(chunker.clone().knowing(&chunker.sketch()).is_ok());
/// # Ok::<(), onefold_chunk::UnknownChunker>(())
/// ```
///
/// # Errors
/// [`UnknownChunker`]: a parameter is not in its range.
#[cfg(feature = "std")]
pub fn learning(name: &str, mean: usize) -> Result<Option<SharedFbc>, UnknownChunker> {
    let (name, knobs) = split(name);
    let knobs =
        Knobs::parse(name, knobs, knobs_of(name)).map_err(|error| UnknownChunker(error.0))?;
    Ok((name == "fbc").then(|| shared_fbc(&knobs, mean)))
}

/// The chunker `name`, or `name:key=value,…` with parameters that [`knobs_of`] lists, with chunks of `mean` bytes on
/// average. `key` makes the cut points of `sieve`, `sieve-adaptive` and `sieve-threshold` (and of `context` where it
/// uses these) secret; other chunkers ignore it. `whole-file` ignores the mean: its chunks are files, up to
/// [`WHOLE_FILE_BYTES_MAX`].
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
/// ```
/// use onefold_chunk::by_name;
///
/// let chunker = by_name("rabin:bits=12,min=1024", 8192, None)?;
/// assert_eq!((chunker.limits().min, chunker.limits().max), (1024, 65536));
/// let Err(error) = by_name("rabin:bits=32", 8192, None) else { panic!() };
/// assert_eq!(error.to_string(), "rabin:bits=32: bits is 1 to 31");
/// # Ok::<(), onefold_chunk::UnknownChunker>(())
/// ```
///
/// # Errors
/// [`UnknownChunker`]: no chunker has this name (the message lists the names), a parameter is out of range, or `mean`
/// is not within 256 bytes to 4 MiB.
pub fn by_name(
    name: &str,
    mean: usize,
    key: Option<&[u8; 32]>,
) -> Result<Box<dyn Chunker>, UnknownChunker> {
    if !(256..=4 << 20).contains(&mean) {
        return Err(UnknownChunker(format!(
            "a mean chunk of {mean} bytes, expected 256 to 4194304"
        )));
    }
    let (name, knobs) = split(name);
    let knobs =
        Knobs::parse(name, knobs, knobs_of(name)).map_err(|error| UnknownChunker(error.0))?;
    match name {
        "rabin" if !knobs.is_empty() => {
            let (min, max, bits) = pattern(name, &knobs)?;
            Ok(Box::new(Rabin::with_pattern(min, max, bits)))
        }
        "inc-k" if !knobs.is_empty() => {
            let (min, max, bits) = pattern(name, &knobs)?;
            Ok(Box::new(IncK::with_pattern(min, max, bits)))
        }
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
        "fbc" => Ok(Box::new(shared_fbc(&knobs, mean))),
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
