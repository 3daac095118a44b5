//! The filters of a run in RAM: one mapping for those of all partitions.
//!
//! Invariant: a filter may contain every key of its partition; where a filter is missing, any key may be there.
//! There is one mapping, because filters of some kilobytes that live for hours would leave an allocator's heap full of
//! holes.

use onefold_io::os::Mapped;

use super::ribbon::RibbonShape;

/// Bytes of a line of memory: filters begin at the start of a line.
const LINE_BYTES: usize = 64;

/// Bits a slot of a run's filters: `bits`, and in some partitions one more, so that no RAM is left over. Zero bits: no
/// filters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct FilterShare {
    /// Bits a slot of every partition, at least.
    pub bits: u8,
    /// Number of partitions, out of 256, that have one bit more.
    pub more: u8,
}

impl FilterShare {
    /// The bits a slot of partition `number` out of `partitions`.
    pub fn bits_of(&self, number: usize, partitions: usize) -> u8 {
        self.bits + u8::from(number < partitions * usize::from(self.more) / 256)
    }
}

/// The place of a partition's filter in the mapping. A shape of zero bits means no filter.
#[derive(Clone, Copy, Default)]
struct Placed {
    line: u32,
    shape: RibbonShape,
}

/// A filter in RAM; other filters may follow behind its blocks.
#[derive(Clone, Copy)]
pub struct PartitionFilter<'a> {
    /// Shape of the filter.
    pub shape: &'a RibbonShape,
    /// Blocks of the filter, in the layout for RAM.
    pub blocks: &'a [u8],
}

/// The filters of all partitions of a run, in one mapping.
pub struct RunFilters {
    bytes: Mapped,
    placed: Box<[Placed]>,
    /// The share that was asked for when the filters were read.
    pub share: FilterShare,
}

impl RunFilters {
    /// RAM of a partition besides its filter, in bytes: its entry in the table of places, and half a line of memory,
    /// lost in the mean behind its filter.
    pub const PARTITION_BYTES: usize = size_of::<Placed>() + LINE_BYTES / 2;

    /// Room for filters of these shapes, one for each partition, all of them missing yet.
    pub fn with_room(shapes: &[Option<RibbonShape>], share: FilterShare) -> RunFilters {
        let bytes = |shape: &RibbonShape| shape.bytes().unwrap_or(0).next_multiple_of(LINE_BYTES);
        RunFilters {
            bytes: Mapped::zeroed(shapes.iter().flatten().map(bytes).sum()),
            placed: vec![Placed::default(); shapes.len()].into(),
            share,
        }
    }

    /// Adds the filter of partition `number`, whose `blocks` are as stored, at byte `end`, behind all filters that were
    /// placed before, narrowed to shape `to`. Returns the new end, or the old one where there is no room.
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

    /// These filters with fewer bits, moved together in the same mapping; the rest goes back to the system.
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
    pub fn of(&self, number: usize) -> Option<PartitionFilter<'_>> {
        let Placed { line, shape } = &self.placed[number];
        (shape.bits > 0).then(|| PartitionFilter {
            shape,
            blocks: &self.bytes[*line as usize * LINE_BYTES..],
        })
    }

    /// RAM of the mapping and the table of places, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.len() + self.placed.len() * size_of::<Placed>()
    }
}
