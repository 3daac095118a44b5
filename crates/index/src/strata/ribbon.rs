//! A ribbon filter: a set in some 1.03 × `bits` a key that never grows.
//!
//! Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021), the standard form with 128
//! coefficients a key. Invariant: [`RibbonShape::near`] and [`RibbonShape::far`] are true for every key it was built
//! from. For other keys both are with probability 2^-bits. Why this one: it takes an eighth less than a binary fuse
//! filter of some ten thousand keys, which halves false reads where RAM gives five bits; a question touches two
//! neighbouring cache lines instead of three far ones; a filter of fewer bits is made from one of more by leaving out
//! columns ([`RibbonShape::lay_out`]), so each opener of a run keeps as many bits as its own budget allows; and a
//! filter is built from the run's hashes alone, so it can always be built again.
//!
//! A key is an equation over 128 neighbouring slots; the slots' bits are a solution of all equations, a column a bit.
//! Slots lie in blocks of 128: as stored, of each block the columns one after the other, 16 bytes each. In RAM the
//! first four columns of all blocks stand together, a line of memory a block, and the others behind them
//! ([`RibbonShape::lay_out`]): a question touches two neighbouring lines, which answer "absent" fifteen times in
//! sixteen without a branch that depends on them, so that a processor asks for many at once. Building takes some 30
//! bytes a key for a moment, which is why a run has a filter for each of its partitions.

use onefold_io::os::prefetch;

/// Coefficients of a key's equation, and slots of a block.
const WIDTH: usize = u128::BITS as usize;
/// Bytes that a column takes in a block.
const COLUMN_BYTES: usize = WIDTH / 8;
/// Number of seeds tried for each size.
const TRIES: u64 = 4;
/// Number of sizes tried, each two percent larger.
const SIZES: u32 = 24;
/// Largest number of bits (columns) of a filter.
const BITS_MAX: u8 = 16;
/// Number of columns that stand together in RAM and are asked first.
const NEAR: usize = 4;
/// Bytes of the first [`NEAR`] columns of a block: one line of memory.
const NEAR_BYTES: usize = NEAR * COLUMN_BYTES;
/// The seed that builders try first; most filters need no other.
const FIRST_SEED: u64 = mix(1);

/// The shape of a filter: everything that a question needs besides the slots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RibbonShape {
    /// Bits a slot, 1 to 16; 0 where there is no filter.
    pub bits: u8,
    /// Blocks of 128 slots, 1 at least where there is a filter.
    pub blocks: u32,
    /// Seed with which hashes are mixed.
    pub seed: u64,
}

/// A filter as it is built and stored.
#[derive(Debug)]
pub struct Ribbon {
    shape: RibbonShape,
    blocks: Vec<u8>,
}

/// A key as filters are asked for it: its equation with the first seed, worked out once for all filters.
#[derive(Clone, Copy, Default)]
pub struct Question {
    key: u64,
    /// The key, mixed with the seed. The upper bits give the first slot, the lower 16 the wanted sums, a bit a column.
    mixed: u64,
    /// Which of the 128 slots from the first on are summed, a bit each; the first always is.
    coefficients: u128,
}

impl Question {
    /// The question for `key`.
    #[inline]
    pub fn new(key: u64) -> Question {
        Question::seeded(key, FIRST_SEED)
    }

    #[inline]
    fn seeded(key: u64, seed: u64) -> Question {
        let mixed = mix(key ^ seed);
        let half = |salt: u64| u128::from(fold(mixed ^ salt));
        Question {
            key,
            mixed,
            coefficients: half(0x9e37_79b9_7f4a_7c15) << 64 | half(0xd6e8_feb8_6659_fd93) | 1,
        }
    }

    /// The key that the question was made from.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The wanted sums of the slots, a bit a column.
    #[inline]
    fn print(&self) -> u16 {
        self.mixed as u16
    }
}

impl RibbonShape {
    /// The shape for `keys` keys, with `more` percent of slots beyond those that are enough most of the time.
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

    /// Writes the blocks `stored`, of shape `of`, to `out` in the layout for RAM and with this shape, which has as many
    /// blocks and no more bits.
    pub fn lay_out(&self, of: &RibbonShape, stored: &[u8], out: &mut [u8]) {
        let (near, far) = (self.near_bytes(), self.far_bytes());
        let (near_out, far_out) = out.split_at_mut(self.blocks as usize * near);
        for (block, row) in stored.chunks_exact(of.row_bytes()).enumerate() {
            near_out[block * near..][..near].copy_from_slice(&row[..near]);
            far_out[block * far..][..far].copy_from_slice(&row[near..near + far]);
        }
    }

    /// Moves a filter of shape `of` in RAM from byte `from` of `bytes` to byte `to`, which is not behind `from`, and
    /// drops the columns that this shape has not.
    pub fn narrow_within(&self, of: &RibbonShape, bytes: &mut [u8], from: usize, to: usize) {
        let blocks = self.blocks as usize;
        let mut narrow = |from: usize, wide: usize, to: usize, narrow: usize| {
            for block in 0..blocks {
                let start = from + block * wide;
                bytes.copy_within(start..start + narrow, to + block * narrow);
            }
        };
        let (wide, near) = (of.near_bytes(), self.near_bytes());
        narrow(from, wide, to, near);
        let (from, to) = (from + blocks * wide, to + blocks * near);
        narrow(from, of.far_bytes(), to, self.far_bytes());
    }

    /// The slot with which the equation of `question` begins.
    #[inline]
    pub fn start(&self, question: &Question) -> u32 {
        self.start_of(self.seeded(question).mixed) as u32
    }

    /// Tells the processor to fetch the `blocks` that [`RibbonShape::near`] will read.
    #[inline]
    pub fn prefetch_near(&self, blocks: &[u8], start: u32) {
        prefetch_rows(blocks, start, self.near_bytes());
    }

    /// Tells the processor to fetch the `blocks` that [`RibbonShape::far`] will read.
    #[inline]
    pub fn prefetch_far(&self, blocks: &[u8], start: u32) {
        let near = self.blocks as usize * self.near_bytes();
        prefetch_rows(&blocks[near..], start, self.far_bytes());
    }

    /// Whether the first [`NEAR`] columns allow the key of `question`, whose first slot is `start`, to be in the set.
    /// `blocks` are in the layout for RAM.
    #[inline]
    pub fn near(&self, blocks: &[u8], question: &Question, start: u32) -> bool {
        let question = self.seeded(question);
        let (rows, print) = (EquationRows::new(&question, start), question.print());
        if usize::from(self.bits) < NEAR {
            rows.agree(blocks, self.bits.into(), print)
        } else {
            (rows.near_sums(blocks) ^ print) & ((1 << NEAR) - 1) == 0
        }
    }

    /// Like [`RibbonShape::near`], for the other columns.
    #[inline]
    pub fn far(&self, blocks: &[u8], question: &Question, start: u32) -> bool {
        let columns = usize::from(self.bits).saturating_sub(NEAR);
        let question = self.seeded(question);
        let near = self.blocks as usize * self.near_bytes();
        EquationRows::new(&question, start).agree(
            &blocks[near..],
            columns,
            question.print() >> NEAR,
        )
    }

    /// Bytes that the slots of this shape take; `None` for a shape that no builder makes.
    pub fn bytes(&self) -> Option<usize> {
        let sane = (1..=BITS_MAX).contains(&self.bits) && (1..1 << 25).contains(&self.blocks);
        sane.then(|| self.blocks as usize * self.row_bytes())
    }

    /// Bytes of all columns of a block.
    #[inline]
    fn row_bytes(&self) -> usize {
        usize::from(self.bits) * COLUMN_BYTES
    }

    /// Bytes of the first [`NEAR`] columns of a block, which stand together in RAM.
    #[inline]
    fn near_bytes(&self) -> usize {
        self.row_bytes().min(NEAR_BYTES)
    }

    #[inline]
    fn far_bytes(&self) -> usize {
        self.row_bytes() - self.near_bytes()
    }

    #[inline]
    fn start_of(&self, mixed: u64) -> usize {
        let starts = (self.slots() - (WIDTH - 1)) as u128;
        ((u128::from(mixed) * starts) >> 64) as usize
    }

    fn slots(&self) -> usize {
        self.blocks as usize * WIDTH
    }

    /// The question with the seed of this filter.
    #[inline]
    fn seeded(&self, question: &Question) -> Question {
        if self.seed == FIRST_SEED {
            *question
        } else {
            Question::seeded(question.key, self.seed)
        }
    }
}

/// The two neighbouring blocks that an equation covers, and its slots in them.
struct EquationRows {
    first: usize,
    second: usize,
    /// The slots of the first block that are summed, a bit each.
    low: u128,
    /// The slots of the second block that are summed, a bit each.
    high: u128,
}

impl EquationRows {
    #[inline]
    fn new(question: &Question, start: u32) -> EquationRows {
        let (block, shift) = (start as usize / WIDTH, start as usize % WIDTH);
        EquationRows {
            first: block,
            // an equation that begins at the first slot of a block ends with it
            second: block + usize::from(shift > 0),
            low: question.coefficients << shift,
            high: (question.coefficients >> 1) >> (WIDTH - 1 - shift),
        }
    }

    /// The sums of the first [`NEAR`] columns, a bit each, without branches.
    #[inline]
    fn near_sums(&self, blocks: &[u8]) -> u16 {
        let first = &blocks[self.first * NEAR_BYTES..][..NEAR_BYTES];
        let second = &blocks[self.second * NEAR_BYTES..][..NEAR_BYTES];
        let columns = first
            .chunks_exact(COLUMN_BYTES)
            .zip(second.chunks_exact(COLUMN_BYTES));
        let sums = columns.map(|(first, second)| self.sum(first, second));
        (0..).zip(sums).map(|(column, sum)| sum << column).sum()
    }

    /// Whether the sums of all columns equal `print`; `blocks` have `columns` columns each.
    #[inline]
    fn agree(&self, blocks: &[u8], columns: usize, print: u16) -> bool {
        let row = columns * COLUMN_BYTES;
        let first = &blocks[self.first * row..][..row];
        let second = &blocks[self.second * row..][..row];
        let pairs = first
            .chunks_exact(COLUMN_BYTES)
            .zip(second.chunks_exact(COLUMN_BYTES));
        (0..)
            .zip(pairs)
            .all(|(column, (first, second))| self.sum(first, second) == print >> column & 1)
    }

    #[inline]
    fn sum(&self, first: &[u8], second: &[u8]) -> u16 {
        let slots = (word(first) & self.low) ^ (word(second) & self.high);
        (slots.count_ones() & 1) as u16
    }
}

impl Ribbon {
    /// Builds a filter of `keys`, all different, with a false-positive rate of 2^-`bits`. `None` where no seed fits,
    /// which in practice does not happen for different keys; the run then has no filter.
    pub fn build(keys: &[u64], bits: u8) -> Option<Ribbon> {
        let sizes = (0..SIZES).flat_map(|size| (0..TRIES).map(move |try_| (size * 2, try_)));
        sizes.into_iter().find_map(|(more, number)| {
            Self::try_build(
                keys,
                RibbonShape::for_keys(keys.len(), bits, more, mix(number + 1)),
            )
        })
    }

    /// The shape of the filter.
    pub fn shape(&self) -> RibbonShape {
        self.shape
    }

    /// The shape and the blocks of the filter.
    pub fn into_parts(self) -> (RibbonShape, Vec<u8>) {
        (self.shape, self.blocks)
    }

    /// The blocks of the filter, as they are stored.
    pub fn blocks(&self) -> &[u8] {
        &self.blocks
    }

    fn try_build(keys: &[u64], shape: RibbonShape) -> Option<Ribbon> {
        let mut band = Band::new(shape.slots());
        for key in keys {
            let question = Question::seeded(*key, shape.seed);
            band.add(shape.start_of(question.mixed), &question)?;
        }
        let mut blocks = vec![0; shape.bytes()?];
        band.solve(shape.row_bytes(), &mut blocks);
        Some(Ribbon { shape, blocks })
    }
}

/// The equations in echelon form: the equation at slot i has its first coefficient there.
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

    /// Adds an equation, reduced by those that begin at the same slots; `None` where it contradicts them.
    fn add(&mut self, mut start: usize, question: &Question) -> Option<()> {
        let (mut coefficients, mut print) = (question.coefficients, question.print());
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

    /// Solves from the last slot to the first: an equation decides the bit of its first slot; slots without one are 0.
    fn solve(&self, row_bytes: usize, blocks: &mut [u8]) {
        // for each column, its 128 slots from the current one on
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

/// Slots for each key with which some nine in ten seeds fit, as measured for filters of some thousand keys or more.
/// More keys have more places where they crowd.
fn slots_a_key(keys: usize) -> f64 {
    1.022 + 0.002 * ((keys.max(2) as f64).log2() - 14.0).max(0.0)
}

/// Tells the processor to fetch the first lines of an equation's two rows, `row` bytes each.
#[inline]
fn prefetch_rows(blocks: &[u8], start: u32, row: usize) {
    let first = start as usize / WIDTH * row;
    prefetch(blocks, first);
    prefetch(blocks, first + row);
}

#[inline]
fn word(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(bytes.try_into().expect("sixteen bytes"))
}

/// Mixes `x`: folds the halves of a product onto each other, so that every bit depends on every bit.
#[inline]
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * 0xa076_1d64_78bd_642f;
    (product >> 64) as u64 ^ product as u64
}

/// The finaliser of MurmurHash3.
#[inline]
const fn mix(mut h: u64) -> u64 {
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
                shape.lay_out(&wide.shape(), wide.blocks(), &mut blocks);
                let contains = |key: u64| {
                    let question = Question::new(key);
                    let start = shape.start(&question);
                    shape.near(&blocks, &question, start) && shape.far(&blocks, &question, start)
                };
                assert!(
                    keys.iter().all(|key| contains(*key)),
                    "{n} keys, {bits} bits"
                );
                let wrong = (0..20_000u64)
                    .filter(|i| contains(mix(i + (1 << 40)) >> 8))
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
    fn narrowed_where_it_is_it_is_as_if_laid_out_so() {
        let keys: Vec<u64> = (0..700).map(|i| mix(i + 5) >> 8).collect();
        let stored = Ribbon::build(&keys, 9).expect("builds");
        let laid_out = |bits: u8| {
            let shape = stored.shape().narrowed(bits);
            let mut blocks = vec![0; shape.bytes().expect("sane")];
            shape.lay_out(&stored.shape(), stored.blocks(), &mut blocks);
            (shape, blocks)
        };
        for (wide, narrow, gap) in [
            (9, 9, 0),
            (9, 7, 0),
            (9, 4, 3),
            (7, 3, 1),
            (3, 1, 0),
            (9, 5, 64),
        ] {
            let ((of, blocks), (shape, expected)) = (laid_out(wide), laid_out(narrow));
            let mut bytes = vec![0xff; gap];
            bytes.extend_from_slice(&blocks);
            shape.narrow_within(&of, &mut bytes, gap, 0);
            assert!(
                bytes[..expected.len()] == expected,
                "{wide} to {narrow} bits"
            );
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
