//! A weighted distinct-count sketch: it estimates the number of different chunks, and their bytes, in memory that does
//! not grow.
//!
//! ```text
//! fingerprint ─▶ register j (16 bits), u in (0, 1) (40 other bits) ─▶ chunks[j] = min u,  bytes[j] = min u / length
//! ```
//!
//! Invariant: a chunk met again changes nothing, so neither copies nor the order nor the host matter, and two
//! sketches merge by the smaller of each register into the sketch of all.
//!
//! How it is read: places u / w of chunks of weight w are evenly spread over 0..1/w, so over 0..τ with τ = 1 / (largest
//! w) the places of all chunks of a register are a Poisson process of rate W/m, W being the sum of all weights and m
//! the number of registers; the smallest is exponential, or beyond τ. The most likely rate of such values, cut off at
//! τ, is the number of those below τ over the sum of all, each at most τ: no table of corrections and no special case
//! for few chunks. Weighted minima are from Cohen, *Size-estimation framework* (1997), registers in place of many
//! hashes from Flajolet et al., HyperLogLog (2007); both take −ln u for u, which with registers is right for many
//! chunks a register only.

/// Registers: the standard error is 1/√m, 0.39 %, and up to 0.7 % of the bytes where few chunks are nearly as long as
/// the longest.
const REGISTERS: usize = 1 << 16;

/// The smallest values of a register's chunks; infinite without chunks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SketchRegister {
    /// The smallest u / length.
    pub(crate) bytes: f32,
    /// The smallest u.
    pub(crate) chunks: f32,
}

impl SketchRegister {
    pub(crate) const EMPTY: Self = Self {
        bytes: f32::INFINITY,
        chunks: f32::INFINITY,
    };

    fn lower(&mut self, other: Self) {
        self.bytes = self.bytes.min(other.bytes);
        self.chunks = self.chunks.min(other.chunks);
    }
}

/// A sketch of different chunks, without keeping any of them.
#[derive(Clone, Default, Debug)]
pub struct Sketch {
    /// Registers; empty before the first chunk.
    registers: Vec<SketchRegister>,
}

/// The estimate of a sketch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sketched {
    /// Number of different chunks.
    pub chunks: f64,
    /// Bytes of the different chunks.
    pub bytes: f64,
    /// Standard error of `bytes`, or a little more.
    pub bytes_error: f64,
}

impl Sketch {
    /// RAM of a sketch with registers, in bytes.
    pub const BYTES: u64 = (REGISTERS * size_of::<SketchRegister>()) as u64;

    /// Counts a chunk by the first bytes of its fingerprint.
    pub fn add(&mut self, key: u64, bytes: u32) {
        let uniform = ((key >> 24) as f64 + 0.5) / (1u64 << 40) as f64;
        let register = SketchRegister {
            bytes: (uniform / f64::from(bytes)) as f32,
            chunks: uniform as f32,
        };
        self.lower(key as usize % REGISTERS, register);
    }

    /// Adds the chunks that another sketch has counted.
    pub fn merge(&mut self, other: &Self) {
        for (place, register) in other.filled() {
            self.lower(place, register);
        }
    }

    /// Estimates number and bytes of chunks, none of which is longer than `bytes_max`.
    pub fn read(&self, bytes_max: u32) -> Sketched {
        let (chunks, _) = self.sum(|register| register.chunks, 1.0);
        let (bytes, below) = self.sum(|register| register.bytes, f64::from(bytes_max));
        // The variance of the Poisson process, less that of the number of its points, which is known here.
        let variance = (1.0 / below.max(1.0) - 1.0 / chunks.max(1.0)).max(0.0);
        Sketched {
            chunks,
            bytes,
            bytes_error: bytes * variance.sqrt(),
        }
    }

    /// The sum of all weights, each at most `weight_max`, and the number of registers that contribute to it.
    fn sum(&self, value: fn(&SketchRegister) -> f32, weight_max: f64) -> (f64, f64) {
        let (mut below, mut sum) = (0.0, 0.0);
        for register in &self.registers {
            let share = f64::from(value(register)) * weight_max;
            below += f64::from(u8::from(share < 1.0));
            sum += share.min(1.0);
        }
        if below > 0.0 {
            (below / sum * REGISTERS as f64 * weight_max, below)
        } else {
            (0.0, 0.0)
        }
    }

    /// The registers with chunks, and their numbers.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, SketchRegister)> + '_ {
        let all = self.registers.iter().copied().enumerate();
        all.filter(|(_, register)| *register != SketchRegister::EMPTY)
    }

    /// Lowers a register to the smaller values. `None` if there is no such register.
    pub(crate) fn lower(&mut self, place: usize, register: SketchRegister) -> Option<()> {
        if self.registers.is_empty() {
            self.registers = vec![SketchRegister::EMPTY; REGISTERS];
        }
        self.registers.get_mut(place)?.lower(register);
        Some(())
    }
}
