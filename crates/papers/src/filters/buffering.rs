//! Buffering of a layer's updates in RAM until they are flushed, and their accounting.

/// The division of a layer's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// An equal share for each page; the first page whose share is full causes a flush (dissertation §3.2.2).
    Compartments,
    /// One buffer for all pages; a flush comes when it is full ("set-dictionary", §3.3).
    Pooled,
}

/// The page group that is flushed when the buffer is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The group with the most updates (§3.2.2, §3.3).
    Dirtiest,
    /// The group whose update found no room. The sizes of flushes printed in tables 3.3 and 3.4 are those of this
    /// choice.
    Overflowing,
}

/// The accounting of buffered updates: the RAM that they count for, and the group that is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounting {
    /// Bits that an update counts for.
    pub update_bits: usize,
    /// Bytes that a page with updates counts for besides them: its entry in the table.
    pub page_overhead_bytes: usize,
    /// The page group that is flushed when the buffer is full.
    pub victim: Victim,
}

impl Accounting {
    /// The real RAM of this code: two bytes an update, an entry of the table a page.
    pub const OURS: Accounting = Accounting {
        update_bits: 16,
        page_overhead_bytes: 32,
        victim: Victim::Dirtiest,
    };

    /// The accounting that explains the sizes of flushes in the dissertation's tables 3.3 and 3.4: 15 bits for one of
    /// the 32,768 places of a page, nothing for the page, and no search for the dirtiest group. For comparisons; RAM is
    /// then counted too low.
    pub const PRINTED: Accounting = Accounting {
        update_bits: 15,
        page_overhead_bytes: 0,
        victim: Victim::Overflowing,
    };

    /// Bits that a page with updates counts for besides them.
    pub(super) fn page_bits(&self) -> usize {
        self.page_overhead_bytes * 8
    }

    /// Bits that all updates of a page count for, the page's own included.
    pub(super) fn bits_of(&self, updates: &[u16]) -> usize {
        self.page_bits() + updates.len() * self.update_bits
    }
}

/// Options of a layer's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferOptions {
    /// The division of the buffer.
    pub buffering: Buffering,
    /// RAM for updates, in bytes.
    pub bytes: usize,
    /// The accounting of updates.
    pub accounting: Accounting,
}

impl BufferOptions {
    /// A buffer of `bytes` bytes that counts its real RAM.
    pub fn new(buffering: Buffering, bytes: usize) -> BufferOptions {
        BufferOptions {
            buffering,
            bytes,
            accounting: Accounting::OURS,
        }
    }
}
