//! How the updates of a layer on flash are kept in RAM until they are flushed, and what they count.

/// How a layer's buffer is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// An equal share for each page; the first page whose share is full causes a flush (dissertation §3.2.2).
    Compartments,
    /// All pages share it; a flush comes when all of it is full ("set-dictionary", §3.3).
    Pooled,
}

/// Which page group is flushed when the buffer is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The one with the most updates (§3.2.2, §3.3).
    Dirtiest,
    /// The one whose update found no room. The sizes of the flushes that tables 3.3 and 3.4 print are those of such a
    /// choice.
    Overflowing,
}

/// What a buffered update counts in RAM, and who makes room for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounting {
    /// Bits an update.
    pub update_bits: usize,
    /// Bytes of a page that has updates, beside them: its line in the table.
    pub page_overhead_bytes: usize,
    /// What is flushed.
    pub victim: Victim,
}

impl Accounting {
    /// What this code takes: two bytes an update, a line of the table a page.
    pub const OURS: Accounting = Accounting {
        update_bits: 16,
        page_overhead_bytes: 32,
        victim: Victim::Dirtiest,
    };

    /// What the sizes of flushes in the dissertation's tables 3.3 and 3.4 amount to: 15 bits for one of the 32,768
    /// places of a page, nothing for the page, and no look at which group is the dirtiest. For comparisons; RAM is then
    /// counted too low.
    pub const PRINTED: Accounting = Accounting {
        update_bits: 15,
        page_overhead_bytes: 0,
        victim: Victim::Overflowing,
    };

    /// Bits of a page that has updates, beside them.
    pub(super) fn page_bits(&self) -> usize {
        self.page_overhead_bytes * 8
    }

    /// Bits of all updates of a page.
    pub(super) fn bits_of(&self, updates: &[u16]) -> usize {
        self.page_bits() + updates.len() * self.update_bits
    }
}

/// The buffer of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferOptions {
    /// How it is divided.
    pub buffering: Buffering,
    /// RAM for updates.
    pub bytes: usize,
    /// What they count.
    pub accounting: Accounting,
}

impl BufferOptions {
    /// A buffer of `bytes` that counts what it takes.
    pub fn new(buffering: Buffering, bytes: usize) -> BufferOptions {
        BufferOptions {
            buffering,
            bytes,
            accounting: Accounting::OURS,
        }
    }
}
