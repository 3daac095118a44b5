//! The contestants: all our chunkers, and those of other crates with the same interface.

use mothcdc::mincdc::{MinCdcHash4, SliceChunker};
use onefold_chunk::ae::{Ae, Isa::Scalar};
use onefold_chunk::fastcdc::FastCdc;
use onefold_chunk::ram::Ram;
use onefold_chunk::seqcdc::SeqCdc;
use onefold_chunk::sieve::{Sieve, SieveIsa};
use onefold_chunk::{ChunkLimits, Chunker, by_name, names};

/// A chunker that can be made for any mean.
pub struct Contestant {
    pub name: String,
    /// Whether its cuts differ from all other contestants'; the instruction sets of one chunker cut alike.
    pub distinct: bool,
    make: Box<dyn Fn(usize) -> Box<dyn Chunker> + Sync>,
}

/// The peer with which others are compared.
pub const PEER: &str = "fastcdc crate v2020";

/// All our chunkers except `whole-file`, `sieve` on every instruction set and keyed, others byte by byte, and the
/// crates last.
pub fn all() -> Vec<Contestant> {
    let mut all = Vec::new();
    let mut add = |name: String, distinct, make: Box<dyn Fn(usize) -> Box<dyn Chunker> + Sync>| {
        all.push(Contestant {
            name,
            distinct,
            make,
        });
    };
    let best = SieveIsa::available().pop();
    for isa in SieveIsa::available() {
        let make = move |mean| -> Box<dyn Chunker> {
            Box::new(Sieve::new(mean).on(isa).expect("one of those available"))
        };
        let distinct = Some(isa) == best;
        let name = if distinct { "sieve" } else { "sieve on" };
        add(format!("{name} {isa:?}"), distinct, Box::new(make));
    }
    let keyed = |mean| -> Box<dyn Chunker> { Box::new(Sieve::keyed(mean, &[7; 32])) };
    add("sieve keyed".into(), true, Box::new(keyed));
    for name in names() {
        // Without names of files `context` cuts like `sieve`.
        if !["sieve", "whole-file", "fastcdc", "context"].contains(name) {
            let make = |mean| by_name(name, mean, None).expect("a name of the list");
            add((*name).into(), true, Box::new(make));
        }
    }
    let scalar =
        |mean| -> Box<dyn Chunker> { Box::new(Ram::new(mean).on(Scalar).expect("everywhere")) };
    add("ram Scalar".into(), false, Box::new(scalar));
    let scalar =
        |mean| -> Box<dyn Chunker> { Box::new(Ae::new(mean).on(Scalar).expect("everywhere")) };
    add("ae Scalar".into(), false, Box::new(scalar));
    let scalar =
        |mean| -> Box<dyn Chunker> { Box::new(SeqCdc::new(mean).on(Scalar).expect("everywhere")) };
    add("seqcdc Scalar".into(), false, Box::new(scalar));
    let fastcdc = |mean| -> Box<dyn Chunker> {
        let ChunkLimits { min, mean, max } = fastcdc_sizes(mean);
        Box::new(FastCdc::with(min, mean, max, 1))
    };
    add("fastcdc".into(), true, Box::new(fastcdc));
    add(
        "mothcdc crate".into(),
        true,
        Box::new(|mean| Box::new(MothCrate::new(mean))),
    );
    add(
        PEER.into(),
        true,
        Box::new(|mean| Box::new(FastCdcCrate::new(mean))),
    );
    all
}

/// The range of means that every chunker accepts.
const ASKED_MIN: f64 = 256.0;
const ASKED_MAX: f64 = (4 << 20) as f64;

/// A mean that was asked for, and its result.
pub struct Tried<T> {
    pub asked: f64,
    pub mean: f64,
    pub outcome: T,
}

impl Contestant {
    /// The chunker for a given mean.
    pub fn chunker(&self, asked: f64) -> Box<dyn Chunker> {
        (self.make)(asked.clamp(ASKED_MIN, ASKED_MAX) as usize)
    }

    /// Two tries whose means are close to `target` below and above it. Either is missing where no mean that can be
    /// asked for gives it.
    ///
    /// `attempt` returns the resulting mean, and any other result.
    pub fn around<T>(
        &self,
        target: f64,
        mut attempt: impl FnMut(&mut dyn Chunker) -> (f64, T),
    ) -> (Option<Tried<T>>, Option<Tried<T>>) {
        let (mut below, mut above) = (None::<Tried<T>>, None::<Tried<T>>);
        let mut asked = target;
        for _ in 0..TRIES {
            let (mean, outcome) = attempt(&mut *self.chunker(asked));
            let tried = Tried {
                asked,
                mean,
                outcome,
            };
            if mean < target {
                below = Some(tried);
            } else {
                above = Some(tried);
            }
            asked = match (&below, &above) {
                (Some(low), Some(high)) if high.mean / low.mean < NEAR => break,
                (Some(low), Some(high)) if high.asked / low.asked < SAME => break,
                (Some(low), Some(high)) => (low.asked * high.asked).sqrt(),
                (Some(low), None) => low.asked * (target / low.mean) * PAST,
                (None, Some(high)) => high.asked * (target / high.mean) / PAST,
                (None, None) => break,
            };
            if !(ASKED_MIN..=ASKED_MAX).contains(&asked) {
                break;
            }
        }
        (below, above)
    }

    /// The mean to ask for so that chunks of `data` are as near to `target` as possible.
    pub fn asked_for(&self, target: f64, data: &[u8]) -> f64 {
        let (below, above) = self.around(target, |chunker| {
            (data.len() as f64 / count(chunker, data) as f64, ())
        });
        let off = |tried: &Tried<()>| (tried.mean / target).ln().abs();
        let both = below.into_iter().chain(above);
        both.min_by(|a, b| off(a).total_cmp(&off(b)))
            .map_or(target, |tried| tried.asked)
    }
}

const TRIES: usize = 12;
/// Largest ratio of two means between which interpolation is sound.
const NEAR: f64 = 1.012;
/// Largest ratio of two means to ask for between which no other one lies.
const SAME: f64 = 1.003;
/// Factor beyond the expected place of the target.
const PAST: f64 = 1.004;

/// The number of chunks of `data`.
pub fn count(chunker: &mut dyn Chunker, data: &[u8]) -> usize {
    let mut chunks = 0;
    chunker.cuts(data, true, &mut |_| chunks += 1);
    chunks
}

/// Sizes for FastCDC. Its masks have whole bits, the nearest to its `mean`, so that the mean of its chunks leaps where
/// their number changes: from 1.08 to 1.44 times the requested one. Behind each leap, for the first third of an octave,
/// only `min` grows to its usual quarter, which makes most of the means between possible.
fn fastcdc_sizes(asked: usize) -> ChunkLimits {
    let octaves = (asked as f64).log2() + 0.5;
    let (bits, share) = (octaves.floor() - 0.5, octaves.fract());
    let grown = (share * 3.0).min(1.0);
    let mean = (bits + ((share - 1.0 / 3.0) * 1.5).max(0.0)).exp2().ceil();
    let min = mean / 4.0 * (0.25 + 0.75 * grown);
    let even = |size: f64| (size as usize).next_multiple_of(2);
    ChunkLimits {
        min: even(min).max(64),
        mean: even(mean).max(256),
        max: even(4.0 * mean).max(1024),
    }
}

/// `fastcdc::v2020` with the parameters of our own `fastcdc`.
struct FastCdcCrate {
    limits: ChunkLimits,
    masks: (u64, u64),
}

impl FastCdcCrate {
    fn new(asked: usize) -> Self {
        let limits = fastcdc_sizes(asked);
        let level = fastcdc::v2020::Normalization::Level1;
        let masks = fastcdc::v2020::select_masks(limits.mean, level);
        Self { limits, masks }
    }
}

impl Chunker for FastCdcCrate {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let (ChunkLimits { min, mean, max }, (small, large)) = (self.limits, self.masks);
        fastcdc::v2020::cut(data, min, mean, max, small, large, small << 1, large << 1).1
    }
}

/// MinCDC of the crate `mothcdc`, between half and one and a half times the mean as it recommends. Its layer that joins
/// equal neighbours is left out: it changes records, not chunks.
struct MothCrate {
    limits: ChunkLimits,
}

impl MothCrate {
    fn new(mean: usize) -> Self {
        let limits = ChunkLimits {
            min: mean / 2,
            mean,
            max: mean + mean / 2,
        };
        Self { limits }
    }

    fn over<'a>(&self, data: &'a [u8]) -> SliceChunker<'a, MinCdcHash4> {
        SliceChunker::new(data, self.limits.min, self.limits.max, MinCdcHash4::new())
    }
}

impl Chunker for MothCrate {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        self.over(data).next().map_or(0, |chunk| chunk.len())
    }

    fn cuts(&mut self, data: &[u8], _ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        // The benchmark passes whole streams only.
        self.over(data).for_each(|next| chunk(next.len()));
        data.len()
    }
}
