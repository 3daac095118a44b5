//! Sparse bytes in RAM that are cheap to copy: the content of disks in [`mem`](crate::mem) and [`sim`](crate::sim).
//!
//! A clone shares all pages and copies a page only when one side writes it. Holes cost nothing and read as zeros.
//! Bytes of the last page behind `len` are always zero, so that growing needs no clearing.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;

type Page = [u8; PAGE_BYTES];

/// An array of bytes with holes.
#[derive(Clone, Default)]
pub(crate) struct SparseBytes {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl SparseBytes {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset`; `false` where the bytes end before.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.len => {}
            _ => return false,
        }
        for (page_no, within, range) in pieces(offset, buf.len()) {
            match self.pages.get(&page_no) {
                Some(page) => buf[range].copy_from_slice(&page[within]),
                None => buf[range].fill(0),
            }
        }
        true
    }

    /// Writes all of `data`, growing where needed. The caller must check that the end fits into a `u64`.
    pub fn write(&mut self, data: &[u8], offset: u64) {
        for (page_no, within, range) in pieces(offset, data.len()) {
            let page = self
                .pages
                .entry(page_no)
                .or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within].copy_from_slice(&data[range]);
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    /// Cuts the bytes to `len`, or extends them with zeros.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            if let Some(page) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(page)[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// Makes whole pages within the range into holes, which read as zeros.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len) / PAGE;
        let start = offset.div_ceil(PAGE);
        let gone: Vec<u64> = if start < end {
            self.pages.range(start..end).map(|(no, _)| *no).collect()
        } else {
            Vec::new()
        };
        for page_no in gone {
            self.pages.remove(&page_no);
        }
    }
}

/// Cuts `len` bytes at `offset` at page borders: page number, range in the page, range in the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE) as usize;
        let count = (PAGE_BYTES - start).min(len - done);
        let piece = (at / PAGE, start..start + count, done..done + count);
        done += count;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Write(u64, usize, u8),
        SetLen(u64),
        Punch(u64, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..20_000u64, 0..9000usize, any::<u8>()).prop_map(|(o, l, b)| Op::Write(o, l, b)),
            (0..20_000u64).prop_map(Op::SetLen),
            (0..20_000u64, 0..20_000u64).prop_map(|(o, l)| Op::Punch(o, l)),
        ]
    }

    fn apply_naively(twin: &mut Vec<u8>, op: &Op) {
        match *op {
            Op::Write(_, 0, _) => {}
            Op::Write(offset, len, byte) => {
                let end = offset as usize + len;
                twin.resize(twin.len().max(end), 0);
                twin[offset as usize..end].fill(byte);
            }
            Op::SetLen(len) => twin.resize(len as usize, 0),
            Op::Punch(offset, len) => {
                let start = (offset as usize).next_multiple_of(PAGE_BYTES);
                let end = ((offset + len) as usize).min(twin.len()) / PAGE_BYTES * PAGE_BYTES;
                if start < end {
                    twin[start..end].fill(0);
                }
            }
        }
    }

    fn apply(pages: &mut SparseBytes, op: &Op) {
        match *op {
            Op::Write(offset, len, byte) => pages.write(&vec![byte; len], offset),
            Op::SetLen(len) => pages.set_len(len),
            Op::Punch(offset, len) => pages.punch(offset, len),
        }
    }

    fn all(pages: &SparseBytes) -> Vec<u8> {
        let mut bytes = vec![0xEE; pages.len() as usize];
        assert!(pages.read(&mut bytes, 0));
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_vec_and_copies_stay_as_they_were(ops in proptest::collection::vec(op(), 0..30)) {
            let (mut pages, mut twin) = (SparseBytes::default(), Vec::new());
            let mut copies = Vec::new();
            for op in &ops {
                copies.push((pages.clone(), twin.clone()));
                apply(&mut pages, op);
                apply_naively(&mut twin, op);
            }
            copies.push((pages, twin));
            for (pages, twin) in copies {
                prop_assert_eq!(all(&pages), twin);
            }
        }
    }

    #[test]
    fn reading_behind_the_end_is_refused() {
        let mut pages = SparseBytes::default();
        pages.write(b"abc", 0);
        assert!(!pages.read(&mut [0; 4], 0));
        assert!(!pages.read(&mut [0; 1], u64::MAX));
        assert!(pages.read(&mut [], 3));
    }
}
