//! A ribbon filter: a set in some 1.05 × `bits` a key that never grows.
//!
//! Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021), the standard form with 128 coefficients a key. Always holds: [`RibbonShape::contains`] is
//! true for every key it was built from. For other keys it is true with probability 2^-bits. Why this one: it takes an eighth less than a binary fuse filter of
//! some ten thousand keys, which halves false reads where RAM gives five bits; a question touches two or three neighbouring cache lines instead of three far
//! ones; a filter of fewer bits is made from one of more by leaving out columns ([`RibbonShape::narrow`]), so each opener of a run keeps what its own budget allows;
//! and it is built from the run's hashes alone, so it can always be made again.
//!
//! A key is an equation over 128 neighbouring slots; the slots' bits are a solution of all equations, a column a bit. Slots lie in blocks of 128: of each block the columns one
//! after the other, 16 bytes each. Building takes some 30 bytes a key for a moment, which is why a run has a filter for each of its partitions.

/// Coefficients a key, and slots a block.
const WIDTH: usize = u128::BITS as usize;
/// Bytes of a column of a block.
const COLUMN_BYTES: usize = WIDTH / 8;
/// How many seeds are tried for a size.
const TRIES: u64 = 4;
/// How many sizes are tried, each two percent larger.
const SIZES: u32 = 24;
/// No filter has more bits.
const BITS_MAX: u8 = 16;

/// The shape of a filter: all that is needed beside its slots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RibbonShape {
    /// Bits a slot, 1 to 16; 0 where there is no filter.
    pub bits: u8,
    /// Blocks of 128 slots, 1 at least where there is a filter.
    pub blocks: u32,
    /// What the hashes are mixed with.
    pub seed: u64,
}

/// A filter as it is made.
#[derive(Debug)]
pub struct Ribbon {
    shape: RibbonShape,
    blocks: Vec<u8>,
}

/// What a key asks of the slots.
#[derive(Clone, Copy)]
struct Equation {
    /// The first slot.
    start: usize,
    /// Which of the 128 slots from there on are summed; the first always is.
    coefficients: u128,
    /// What the sum has to be, a bit a column.
    print: u16,
}

impl RibbonShape {
    /// `more`: percent of slots beyond those that are enough most of the time.
    fn for_keys(keys: usize, bits: u8, more: u32, seed: u64) -> RibbonShape {
        let slots = keys as f64 * (slots_a_key(keys) + f64::from(more) * 0.01);
        let blocks = (slots as usize).div_ceil(WIDTH).max(1) as u32;
        RibbonShape { bits, blocks, seed }
    }

    /// The shape of the same set with at most `bits` bits a slot.
    pub fn narrowed(&self, bits: u8) -> RibbonShape {
        RibbonShape {
            bits: bits.min(self.bits),
            ..*self
        }
    }

    /// Makes from `wide`, which are blocks of shape `of`, those of this shape, which has as many blocks and no more bits.
    pub fn narrow(&self, of: &RibbonShape, wide: &[u8], narrow: &mut [u8]) {
        let (from, to) = (of.row_bytes(), self.row_bytes());
        for (narrow, wide) in narrow.chunks_exact_mut(to).zip(wide.chunks_exact(from)) {
            narrow.copy_from_slice(&wide[..to]);
        }
    }

    /// As [`RibbonShape::narrow`], from byte `from` of `bytes` to byte `to`, which is not behind it.
    pub fn narrow_within(&self, of: &RibbonShape, bytes: &mut [u8], from: usize, to: usize) {
        let (wide, narrow) = (of.row_bytes(), self.row_bytes());
        for block in 0..self.blocks as usize {
            let start = from + block * wide;
            bytes.copy_within(start..start + narrow, to + block * narrow);
        }
    }

    /// Whether `key` may be in the set with these `blocks`, as many bytes as [`RibbonShape::bytes`] says.
    #[inline]
    pub fn contains(&self, blocks: &[u8], key: u64) -> bool {
        let Equation {
            start,
            coefficients,
            print,
        } = self.equation(key);
        let (row, shift) = (self.row_bytes(), start % WIDTH);
        let first = start / WIDTH * row;
        // an equation that begins at the first slot of a block ends with it
        let second = if shift == 0 { first } else { first + row };
        let low = coefficients << shift;
        let high = (coefficients >> 1) >> (WIDTH - 1 - shift);
        let (first, second) = (&blocks[first..first + row], &blocks[second..second + row]);
        let columns = first
            .chunks_exact(COLUMN_BYTES)
            .zip(second.chunks_exact(COLUMN_BYTES));
        (0..).zip(columns).all(|(column, (first, second))| {
            let sum = (word(first) & low) ^ (word(second) & high);
            sum.count_ones() & 1 == u32::from(print >> column) & 1
        })
    }

    /// Bytes that the slots of this shape take; `None` for a shape that no builder makes.
    pub fn bytes(&self) -> Option<usize> {
        let sane = (1..=BITS_MAX).contains(&self.bits) && (1..1 << 28).contains(&self.blocks);
        sane.then(|| self.blocks as usize * self.row_bytes())
    }

    /// Bytes of a block.
    #[inline]
    fn row_bytes(&self) -> usize {
        usize::from(self.bits) * COLUMN_BYTES
    }

    /// The byte where the blocks that `key` asks begin.
    #[inline]
    pub fn place_of(&self, key: u64) -> usize {
        self.start(mix(key ^ self.seed)) / WIDTH * self.row_bytes()
    }

    #[inline]
    fn start(&self, mixed: u64) -> usize {
        let starts = (self.slots() - (WIDTH - 1)) as u128;
        ((u128::from(mixed) * starts) >> 64) as usize
    }

    fn slots(&self) -> usize {
        self.blocks as usize * WIDTH
    }

    #[inline]
    fn equation(&self, key: u64) -> Equation {
        let mixed = mix(key ^ self.seed);
        let half = |salt: u64| u128::from(fold(mixed ^ salt));
        Equation {
            start: self.start(mixed),
            coefficients: half(0x9e37_79b9_7f4a_7c15) << 64 | half(0xd6e8_feb8_6659_fd93) | 1,
            print: mixed as u16,
        }
    }
}

impl Ribbon {
    /// A filter of `keys`, all different, with a false-positive rate of 2^-`bits`. `None` where no seed fits, which for different keys
    /// does not happen in practice; do without a filter then.
    pub fn build(keys: &[u64], bits: u8) -> Option<Ribbon> {
        let sizes = (0..SIZES).flat_map(|size| (0..TRIES).map(move |try_| (size * 2, try_)));
        sizes.into_iter().find_map(|(more, number)| {
            Self::try_build(
                keys,
                RibbonShape::for_keys(keys.len(), bits, more, mix(number + 1)),
            )
        })
    }

    /// Its shape.
    pub fn shape(&self) -> RibbonShape {
        self.shape
    }

    /// Its shape and its blocks.
    pub fn into_parts(self) -> (RibbonShape, Vec<u8>) {
        (self.shape, self.blocks)
    }

    /// Its blocks, as they are stored.
    pub fn blocks(&self) -> &[u8] {
        &self.blocks
    }

    fn try_build(keys: &[u64], shape: RibbonShape) -> Option<Ribbon> {
        let mut band = Band::new(shape.slots());
        for key in keys {
            band.add(shape.equation(*key))?;
        }
        let mut blocks = vec![0; shape.bytes()?];
        band.solve(shape.row_bytes(), &mut blocks);
        Some(Ribbon { shape, blocks })
    }
}

/// The equations in echelon form: that of slot i has its first coefficient there.
struct Band {
    coefficients: Vec<u128>,
    prints: Vec<u16>,
}

impl Band {
    fn new(slots: usize) -> Band {
        Band {
            coefficients: vec![0; slots],
            prints: vec![0; slots],
        }
    }

    /// Adds an equation, less those that stand in its way; `None` where they contradict it.
    fn add(&mut self, equation: Equation) -> Option<()> {
        let Equation {
            mut start,
            mut coefficients,
            mut print,
        } = equation;
        while self.coefficients[start] != 0 {
            coefficients ^= self.coefficients[start];
            print ^= self.prints[start];
            if coefficients == 0 {
                return (print == 0).then_some(());
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            start += zeros as usize;
        }
        (self.coefficients[start], self.prints[start]) = (coefficients, print);
        Some(())
    }

    /// From the last slot to the first: each bit is what its equation leaves for it; where there is none, 0.
    fn solve(&self, row_bytes: usize, blocks: &mut [u8]) {
        // of each column the 128 slots from the current one on
        let mut columns = vec![0u128; row_bytes / COLUMN_BYTES];
        let rows = blocks.chunks_exact_mut(row_bytes).enumerate().rev();
        for (block, row) in rows {
            for slot in (block * WIDTH..(block + 1) * WIDTH).rev() {
                let (coefficients, print) = (self.coefficients[slot], self.prints[slot]);
                for (number, column) in columns.iter_mut().enumerate() {
                    *column <<= 1;
                    if coefficients != 0 {
                        let rest = (coefficients & *column).count_ones() as u16;
                        *column |= u128::from((rest ^ (print >> number)) & 1);
                    }
                }
            }
            for (bytes, column) in row.chunks_exact_mut(COLUMN_BYTES).zip(&columns) {
                bytes.copy_from_slice(&column.to_le_bytes());
            }
        }
    }
}

/// Slots a key with which some nine in ten seeds fit where a filter has some thousand keys or more, as measured; more keys have more places where they crowd.
fn slots_a_key(keys: usize) -> f64 {
    1.022 + 0.002 * ((keys.max(2) as f64).log2() - 14.0).max(0.0)
}

#[inline]
fn word(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(bytes.try_into().expect("sixteen bytes"))
}

/// The halves of a product, one on the other: every bit depends on every bit.
#[inline]
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * 0xa076_1d64_78bd_642f;
    (product >> 64) as u64 ^ product as u64
}

/// MurmurHash3's finaliser.
#[inline]
fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_all_its_keys_and_few_others() {
        for n in [0usize, 1, 2, 3, 10, 100, 128, 300, 5000, 40_000] {
            let keys: Vec<u64> = (0..n as u64).map(|i| mix(i + 77) >> 8).collect();
            let wide = Ribbon::build(&keys, 12).expect("builds");
            for bits in [12, 8, 4, 1] {
                let shape = wide.shape().narrowed(bits);
                let mut blocks = vec![0; shape.bytes().expect("sane")];
                shape.narrow(&wide.shape(), wide.blocks(), &mut blocks);
                assert!(
                    keys.iter().all(|key| shape.contains(&blocks, *key)),
                    "{n} keys, {bits} bits"
                );
                let wrong = (0..20_000u64)
                    .filter(|i| shape.contains(&blocks, mix(i + (1 << 40)) >> 8))
                    .count();
                let expected = 20_000.0 / f64::from(1 << bits);
                assert!(
                    (wrong as f64) < expected * 1.5 + 20.0,
                    "{n} keys, {bits} bits: {wrong} false, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn takes_three_percent_more_than_its_bits() {
        for n in [7_000usize, 20_000, 60_000] {
            let keys: Vec<u64> = (0..n as u64).map(mix).collect();
            let filter = Ribbon::build(&keys, 4).expect("builds");
            let slots = filter.shape().slots() as f64 / n as f64;
            assert!(slots < 1.05, "{n} keys: {slots} slots a key");
        }
    }
}
