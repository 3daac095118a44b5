//! The filters of a run in RAM: one mapping for those of all partitions.
//!
//! Always holds: what a partition holds may be in its filter; where a filter is missing, everything may be in it. One
//! mapping, because filters of some kilobytes that live for hours would leave an allocator's heap full of holes.

use onefold_io::os::Mapped;

use super::ribbon::RibbonShape;
use super::run::{Partition, Run};

/// RAM of a partition besides its filter: its lines in [`Run::partitions`](super::run::Run::partitions) and here, and
/// half a line of memory that its filter leaves over.
const PARTITION_RAM: usize = size_of::<Partition>() + size_of::<Placed>() + LINE_BYTES / 2;

/// Bytes of a line of memory: filters begin on one.
const LINE_BYTES: usize = 64;

/// What counts of a run where RAM is divided.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Records.
    pub records: u64,
    /// Bytes that one bit a slot takes in all partitions.
    pub bit_bytes: usize,
    /// Partitions.
    pub partitions: usize,
}

impl RunSize {
    /// RAM of a run without filters, in bytes.
    pub fn bare_ram(&self) -> usize {
        self.partitions * PARTITION_RAM + size_of::<Run>()
    }

    /// RAM of a run with filters, in bytes.
    pub fn ram(&self, share: FilterShare) -> usize {
        self.bare_ram()
            + self.bit_bytes * (usize::from(share.bits) * 256 + usize::from(share.more)) / 256
    }
}

/// How many bits a slot the filters of a run have: `bits`, and some partitions one more, so that RAM need not be left
/// over. Zero bits: no filters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct FilterShare {
    /// Of each partition, at least.
    pub bits: u8,
    /// Of 256 partitions, how many have one bit more.
    pub more: u8,
}

impl FilterShare {
    /// The bits of partition `number` of `partitions`.
    pub fn bits_of(&self, number: usize, partitions: usize) -> u8 {
        self.bits + u8::from(number < partitions * usize::from(self.more) / 256)
    }
}

/// Where a partition's filter is. With zero bits there is none.
#[derive(Clone, Copy, Default)]
struct Placed {
    line: u32,
    shape: RibbonShape,
}

/// A filter in RAM; there may be others behind its blocks.
#[derive(Clone, Copy)]
pub struct Filter<'a> {
    /// Its shape.
    pub shape: &'a RibbonShape,
    /// Its blocks.
    pub blocks: &'a [u8],
}

/// The filters of all partitions of a run, in one mapping.
pub struct RunFilters {
    bytes: Mapped,
    placed: Box<[Placed]>,
    /// What was asked for.
    pub share: FilterShare,
}

impl RunFilters {
    /// Room for filters of these shapes, a partition each; all missing as yet.
    pub fn with_room(shapes: &[Option<RibbonShape>], share: FilterShare) -> RunFilters {
        let bytes = |shape: &RibbonShape| shape.bytes().unwrap_or(0).next_multiple_of(LINE_BYTES);
        RunFilters {
            bytes: Mapped::zeroed(shapes.iter().flatten().map(bytes).sum()),
            placed: vec![Placed::default(); shapes.len()].into(),
            share,
        }
    }

    /// Places the filter of partition `number`, whose `blocks` are as they are stored, behind all that were placed
    /// before, which ends at byte `end`, narrowed to shape `to`. Gives the new end, or the old where there is no room.
    pub fn place(
        &mut self,
        number: usize,
        end: usize,
        (of, blocks): (&RibbonShape, &[u8]),
        to: &RibbonShape,
    ) -> usize {
        let room = to
            .bytes()
            .and_then(|bytes| self.bytes.get_mut(end..end + bytes));
        let Some(room) = room else {
            return end;
        };
        to.lay_out(of, blocks, room);
        let next = end + room.len().next_multiple_of(LINE_BYTES);
        self.placed[number] = Placed {
            line: (end / LINE_BYTES) as u32,
            shape: *to,
        };
        next
    }

    /// These filters with fewer bits, in the same place; what is behind them goes back to the system.
    pub fn narrowed(mut self, share: FilterShare) -> RunFilters {
        let (count, mut end) = (self.placed.len(), 0);
        for (number, placed) in self.placed.iter_mut().enumerate() {
            let wide = std::mem::take(placed);
            let shape = wide.shape.narrowed(share.bits_of(number, count));
            let from = wide.line as usize * LINE_BYTES;
            if let Some(bytes) = shape.bytes() {
                shape.narrow_within(&wide.shape, &mut self.bytes, from, end);
                *placed = Placed {
                    line: (end / LINE_BYTES) as u32,
                    shape,
                };
                end += bytes.next_multiple_of(LINE_BYTES);
            }
        }
        self.bytes.truncate(end);
        RunFilters { share, ..self }
    }

    /// The filter of partition `number`; `None` where there is none.
    #[inline]
    pub fn of(&self, number: usize) -> Option<Filter<'_>> {
        let Placed { line, shape } = &self.placed[number];
        (shape.bits > 0).then(|| Filter {
            shape,
            blocks: &self.bytes[*line as usize * LINE_BYTES..],
        })
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.len() + self.placed.len() * size_of::<Placed>()
    }
}
