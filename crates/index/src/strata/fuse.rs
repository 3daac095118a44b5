//! A binary fuse filter with cells of any width: a set in 1.13–1.2 × `bits` a key that never grows.
//!
//! Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters" (2022), the 3-wise form. Always holds: `contains` is true for
//! every key it was built from. For other keys it is true with probability 2^-bits. Two properties decided for it:
//! a filter of fewer bits is made from one of more by dropping the upper bits of each cell ([`Fuse::narrowed`]), so each opener of
//! a run keeps what its own budget allows; and it is built from the run's hashes alone, so it can always be made again.
//!
//! Building takes some 30 bytes a key for a moment, which is why a run has a filter for each of its partitions.

use onefold_io::Mapped;

use super::bits;

/// How often another seed is tried; each try fails with a probability of some percent at most.
const TRIES: u64 = 64;

/// The shape of a filter: all that is needed beside its cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FuseShape {
    /// Bits a cell, 1 to 32.
    pub bits: u8,
    /// Segments are of 2^this cells.
    pub segment_log2: u8,
    /// Segments where a key's first cell may lie; there are two more.
    pub segments: u32,
    /// What the hashes are mixed with.
    pub seed: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Fuse {
    shape: FuseShape,
    cells: Mapped,
}

impl FuseShape {
    fn for_keys(keys: usize, bits: u8, seed: u64) -> FuseShape {
        let n = (keys.max(2)) as f64;
        let segment_log2 = (n.ln() / 3.33f64.ln() + 2.25).floor().min(18.0) as u8;
        let factor = (0.875 + 0.25 * 1e6f64.ln() / n.ln()).max(1.125);
        let capacity = (n * factor).round() as usize;
        let segments = capacity
            .div_ceil(1 << segment_log2)
            .saturating_sub(2)
            .max(1) as u32;
        FuseShape {
            bits,
            segment_log2,
            segments,
            seed,
        }
    }

    fn cells(&self) -> usize {
        (self.segments as usize + 2) << self.segment_log2
    }

    /// Bytes that the cells of this shape take; `None` for a shape that no builder makes.
    pub fn bytes(&self) -> Option<usize> {
        let sane =
            (1..=32).contains(&self.bits) && self.segment_log2 <= 18 && self.segments < 1 << 28;
        sane.then(|| (self.cells() * self.bits as usize).div_ceil(8))
    }

    #[inline]
    fn slots(&self, mixed: u64) -> [usize; 3] {
        let segment = 1usize << self.segment_log2;
        let first =
            ((u128::from(mixed) * ((self.segments as u128) << self.segment_log2)) >> 64) as usize;
        let second = (first + segment) ^ ((mixed >> 18) as usize & (segment - 1));
        let third = (first + 2 * segment) ^ (mixed as usize & (segment - 1));
        [first, second, third]
    }
}

impl Fuse {
    /// A filter of `keys`, all different, with a false-positive rate of 2^-`bits`. `None` where no seed fits, which for different keys
    /// does not happen in practice; do without a filter then.
    pub fn build(keys: &[u64], bits: u8) -> Option<Fuse> {
        (0..TRIES).find_map(|seed| {
            Self::try_build(keys, FuseShape::for_keys(keys.len(), bits, mix(seed + 1)))
        })
    }

    /// A filter from its stored cells, or `None` where they don't fit the shape.
    pub fn from_cells(shape: FuseShape, cells: Mapped) -> Option<Fuse> {
        (shape.bytes() == Some(cells.len())).then_some(Fuse { shape, cells })
    }

    /// Whether `key` may be in the set.
    #[inline]
    pub fn contains(&self, key: u64) -> bool {
        let mixed = mix(key ^ self.shape.seed);
        let width = u32::from(self.shape.bits);
        let [a, b, c] = self
            .shape
            .slots(mixed)
            .map(|slot| bits::get(&self.cells, slot * width as usize, width));
        a ^ b ^ c == print(mixed) & bits::mask(width)
    }

    /// The same set with fewer bits a cell.
    pub fn narrowed(&self, bits: u8) -> Fuse {
        let (from, to) = (
            u32::from(self.shape.bits),
            u32::from(bits.min(self.shape.bits)),
        );
        let shape = FuseShape {
            bits: to as u8,
            ..self.shape
        };
        let cell =
            |slot: usize| bits::get(&self.cells, slot * from as usize, from) & bits::mask(to);
        Fuse {
            shape,
            cells: pack(shape, (0..shape.cells()).map(cell)),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> FuseShape {
        self.shape
    }

    /// Its cells, as they are stored.
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    fn try_build(keys: &[u64], shape: FuseShape) -> Option<Fuse> {
        let mixed: Vec<u64> = keys.iter().map(|key| mix(key ^ shape.seed)).collect();
        let order = peel(&mixed, shape)?;
        let mut cells = vec![0u32; shape.cells()];
        let mask = bits::mask(u32::from(shape.bits)) as u32;
        for (key, own) in order.into_iter().rev() {
            let hash = mixed[key as usize];
            let [a, b, c] = shape.slots(hash);
            let slot = [a, b, c][own as usize];
            cells[slot] = 0;
            cells[slot] = (print(hash) as u32 & mask) ^ cells[a] ^ cells[b] ^ cells[c];
        }
        Some(Fuse {
            shape,
            cells: pack(shape, cells.into_iter().map(u64::from)),
        })
    }
}

/// In which order keys can be given their own cell (the last first), and which of their three it is.
fn peel(mixed: &[u64], shape: FuseShape) -> Option<Vec<(u32, u8)>> {
    // of each cell: the keys that use it, as a count and as the XOR of their numbers
    let mut counts = vec![0u8; shape.cells()];
    let mut keys = vec![0u32; shape.cells()];
    for (number, hash) in mixed.iter().enumerate() {
        for slot in shape.slots(*hash) {
            counts[slot] = counts[slot].checked_add(1)?;
            keys[slot] ^= number as u32;
        }
    }
    let mut alone: Vec<u32> = (0..shape.cells() as u32)
        .filter(|slot| counts[*slot as usize] == 1)
        .collect();
    let mut order = Vec::with_capacity(mixed.len());
    while let Some(slot) = alone.pop() {
        if counts[slot as usize] != 1 {
            continue;
        }
        let number = keys[slot as usize];
        let mut own = 0;
        for (which, other) in shape.slots(mixed[number as usize]).into_iter().enumerate() {
            if other == slot as usize {
                own = which as u8;
            }
            counts[other] -= 1;
            keys[other] ^= number;
            if counts[other] == 1 {
                alone.push(other as u32);
            }
        }
        order.push((number, own));
    }
    (order.len() == mixed.len()).then_some(order)
}

fn pack(shape: FuseShape, cells: impl Iterator<Item = u64>) -> Mapped {
    let width = u32::from(shape.bits);
    let mut packed = Mapped::zeroed((shape.cells() * width as usize).div_ceil(8));
    for (slot, cell) in cells.enumerate() {
        bits::put(&mut packed, slot * width as usize, width, cell);
    }
    packed
}

#[inline]
fn print(mixed: u64) -> u64 {
    mixed ^ (mixed >> 32)
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
        for n in [0usize, 1, 2, 3, 10, 100, 5000, 60_000] {
            let keys: Vec<u64> = (0..n as u64).map(|i| mix(i + 77) >> 8).collect();
            let wide = Fuse::build(&keys, 12).expect("builds");
            for bits in [12, 8, 4] {
                let fuse = wide.narrowed(bits);
                assert!(
                    keys.iter().all(|key| fuse.contains(*key)),
                    "{n} keys, {bits} bits"
                );
                let wrong = (0..20_000u64)
                    .filter(|i| fuse.contains(mix(i + (1 << 40)) >> 8))
                    .count();
                let expected = 20_000.0 / f64::from(1 << bits);
                assert!(
                    (wrong as f64) < expected * 2.0 + 20.0,
                    "{n} keys, {bits} bits: {wrong} false, expected {expected}"
                );
                let mut cells = Mapped::zeroed(fuse.cells().len());
                cells.copy_from_slice(fuse.cells());
                let again = Fuse::from_cells(fuse.shape(), cells).expect("fits");
                assert!(keys.iter().all(|key| again.contains(*key)));
            }
        }
    }
}
