//! Headers of an entry in a zip archive: before it, behind it, and in the directory.

use crate::{Entry, Kind};

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;

/// Version needed to read the archive, 4.5: zip64.
pub(super) const VERSION: u16 = 45;
/// Creator, a Unix: the upper half of the attributes is `st_mode`.
pub(super) const MADE_BY: u16 = 3 << 8 | VERSION;
pub(super) const SIZES_FOLLOW: u16 = 1 << 3;
const NAME_IS_UTF8: u16 = 1 << 11;
const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;
/// Contents of the two headers of an entry.
pub(super) struct ZipHeader {
    pub(super) name: Vec<u8>,
    /// Mode and kind, as in `st_mode`.
    mode: u32,
    pub(super) flags: u16,
    pub(super) method: u16,
    date: (u16, u16),
    extra: Vec<u8>,
    pub(super) is_large: bool,
    pub(super) crc: u32,
    pub(super) stored_bytes: u64,
    pub(super) bytes: u64,
    offset: u64,
}

/// Returns the 32-bit form of a number: all ones where a field of 64 bits has the number.
pub(super) fn short(n: u64, is_elsewhere: bool) -> u32 {
    if is_elsewhere { u32::MAX } else { n as u32 }
}

impl ZipHeader {
    pub(super) fn new(entry: &Entry, mut name: Vec<u8>, offset: u64) -> Self {
        let kind = match entry.kind {
            Kind::Dir => 0o04_0000,
            Kind::Symlink => 0o12_0000,
            _ => 0o10_0000,
        };
        if entry.is_dir() {
            name.push(b'/');
        }
        let is_utf8 = !name.is_ascii() && std::str::from_utf8(&name).is_ok();
        Self {
            name,
            mode: kind | u32::from(entry.mode),
            flags: if is_utf8 { NAME_IS_UTF8 } else { 0 },
            method: STORED,
            date: date(entry.mtime.secs),
            extra: extra(entry),
            is_large: false,
            crc: 0,
            stored_bytes: 0,
            bytes: 0,
            offset,
        }
    }

    /// Writes the fields that both headers have, from the version on.
    fn common(&self, out: &mut Vec<u8>, (crc, stored_bytes, bytes): (u32, u32, u32), extra: usize) {
        for n in [VERSION, self.flags, self.method, self.date.1, self.date.0] {
            put16(out, n);
        }
        for n in [crc, stored_bytes, bytes] {
            put32(out, n);
        }
        put16(out, self.name.len() as u16);
        put16(out, extra as u16);
    }

    pub(super) fn local(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put32(&mut out, LOCAL);
        let sizes = [self.stored_bytes, self.bytes].map(|n| short(n, self.is_large));
        let wide = if self.is_large { 20 } else { 0 };
        self.common(
            &mut out,
            (self.crc, sizes[0], sizes[1]),
            self.extra.len() + wide,
        );
        out.extend_from_slice(&self.name);
        if self.is_large {
            put16(&mut out, 1);
            put16(&mut out, 16);
            put64(&mut out, 0);
            put64(&mut out, 0);
        }
        out.extend_from_slice(&self.extra);
        out
    }

    pub(super) fn descriptor(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put32(&mut out, DESCRIPTOR);
        put32(&mut out, self.crc);
        for n in [self.stored_bytes, self.bytes] {
            if self.is_large {
                put64(&mut out, n)
            } else {
                put32(&mut out, n as u32)
            }
        }
        out
    }

    pub(super) fn central(&self) -> Vec<u8> {
        let is_far = self.offset >= u64::from(u32::MAX);
        let mut wide = Vec::new();
        if self.is_large {
            put64(&mut wide, self.bytes);
            put64(&mut wide, self.stored_bytes);
        }
        if is_far {
            put64(&mut wide, self.offset);
        }
        let wide_bytes = if wide.is_empty() { 0 } else { wide.len() + 4 };
        let mut out = Vec::new();
        put32(&mut out, CENTRAL);
        put16(&mut out, MADE_BY);
        let sizes = [self.stored_bytes, self.bytes].map(|n| short(n, self.is_large));
        self.common(
            &mut out,
            (self.crc, sizes[0], sizes[1]),
            self.extra.len() + wide_bytes,
        );
        // No comment, the first disk, no internal attributes.
        for _ in 0..3 {
            put16(&mut out, 0);
        }
        let is_dir = self.name.ends_with(b"/");
        put32(&mut out, self.mode << 16 | if is_dir { 0x10 } else { 0 });
        put32(&mut out, short(self.offset, is_far));
        out.extend_from_slice(&self.name);
        if !wide.is_empty() {
            put16(&mut out, 1);
            put16(&mut out, wide.len() as u16);
            out.extend_from_slice(&wide);
        }
        out.extend_from_slice(&self.extra);
        out
    }
}

/// Returns extra fields: the time of the content, where 32 bits hold it, and the owner.
fn extra(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    if let Ok(secs) = i32::try_from(entry.mtime.secs) {
        out.extend_from_slice(b"UT");
        put16(&mut out, 5);
        out.push(1);
        out.extend_from_slice(&secs.to_le_bytes());
    }
    out.extend_from_slice(b"ux");
    put16(&mut out, 11);
    out.push(1);
    for id in [entry.owner.uid, entry.owner.gid] {
        out.push(4);
        put32(&mut out, id);
    }
    out
}

/// Returns date and time in DOS format, in UTC: from 1980 to 2107, in steps of two seconds.
fn date(secs: i64) -> (u16, u16) {
    const DAY: i64 = 86_400;
    let (first, last) = (315_532_800, 4_354_819_198);
    let secs = secs.clamp(first, last);
    let (days, secs) = (secs.div_euclid(DAY), secs.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let date = (year - 1980) << 9 | month << 5 | day;
    let time = ((secs / 3600) << 11) | ((secs / 60 % 60) << 5) | (secs % 60 / 2);
    (date as u16, time as u16)
}

/// Returns year, month and day of the `days`th day since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

pub(super) fn put16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_dos() {
        assert_eq!(date(0), (1 << 5 | 1, 0));
        assert_eq!(
            date(951_827_696),
            (20 << 9 | 2 << 5 | 29, 12 << 11 | 34 << 5 | 28)
        );
        assert_eq!(
            date(i64::MAX),
            (127 << 9 | 12 << 5 | 31, 23 << 11 | 59 << 5 | 29)
        );
    }

    #[test]
    fn what_32_bits_do_not_hold_stands_in_the_wide_fields() {
        let mut header = ZipHeader::new(
            &Entry::new(b"x".to_vec(), Kind::File),
            b"x".to_vec(),
            5 << 32,
        );
        (header.is_large, header.bytes, header.stored_bytes) = (true, 6 << 32, 7 << 32);
        let central = header.central();
        assert_eq!(central[20..28], [0xff; 8]);
        assert_eq!(central[42..46], [0xff; 4]);
        let wide: Vec<u8> = [6u64 << 32, 7 << 32, 5 << 32]
            .map(u64::to_le_bytes)
            .concat();
        assert_eq!(central[47..51], [1, 0, 24, 0]);
        assert_eq!(central[51..75], wide);
        assert_eq!(header.descriptor().len(), 24);
    }
}
