//! A part of a manifest: the content of one frame of the log (FORMAT.md §5.8).
//!
//! Invariant: removals are of records in earlier manifests, so a part with removals begins a manifest, and its own
//! records count.

use onefold_chunk::Fingerprint;

use onefold_index::{ContainerId, Error, Result};

/// flags, zeros
const HEAD_BYTES: usize = 4;
/// container, fingerprints, kind, zeros
const GROUP_BYTES: usize = 16;
const FINGERPRINT_BYTES: usize = 32;
const CONTINUES: u8 = 1;

const SAYS: u8 = 0;
const REMOVED: u8 = 1;
const RETIRES: u8 = 2;
const REPEATS: u8 = 3;

/// A chunk of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestRecord {
    /// Fingerprint of the chunk.
    pub key: Fingerprint,
    /// Container of the chunk.
    pub container: ContainerId,
    /// Whether the chunk was inserted here; otherwise it was found, and an earlier manifest has the same record.
    pub is_new: bool,
}

/// A part of a manifest: the content of one frame of the log.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ManifestPart {
    /// Whether the part belongs to the same manifest as the part before it.
    pub continues: bool,
    /// Retired containers.
    pub retired: Vec<ContainerId>,
    /// Removed fingerprints: records of them in earlier manifests no longer count.
    pub removed: Vec<Fingerprint>,
    /// Records in the order of the stream.
    pub records: Vec<ManifestRecord>,
}

impl ManifestPart {
    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.retired.is_empty() && self.removed.is_empty() && self.records.is_empty()
    }

    /// Encodes the part.
    pub fn encode(&self) -> Vec<u8> {
        let keys = self.removed.len() + self.records.len();
        let mut out = Vec::with_capacity(HEAD_BYTES + keys * FINGERPRINT_BYTES + 8 * GROUP_BYTES);
        out.extend_from_slice(&[if self.continues { CONTINUES } else { 0 }, 0, 0, 0]);
        for container in &self.retired {
            push_group(&mut out, RETIRES, *container, std::iter::empty());
        }
        if !self.removed.is_empty() {
            push_group(&mut out, REMOVED, ContainerId(0), self.removed.iter());
        }
        let is_alike = |a: &ManifestRecord, b: &ManifestRecord| {
            a.container == b.container && a.is_new == b.is_new
        };
        for group in self.records.chunk_by(is_alike) {
            let kind = if group[0].is_new { SAYS } else { REPEATS };
            let keys = group.iter().map(|record| &record.key);
            push_group(&mut out, kind, group[0].container, keys);
        }
        out
    }

    /// Decodes the bytes at `offset` of `path`.
    pub fn decode(bytes: &[u8], path: &str, offset: u64) -> Result<ManifestPart> {
        let damaged = |what: &str| Error::damaged(path, offset, format!("a manifest with {what}"));
        let (head, mut rest) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or_else(|| damaged("no head"))?;
        let mut part = ManifestPart {
            continues: head[0] & CONTINUES != 0,
            ..ManifestPart::default()
        };
        while !rest.is_empty() {
            let (group, behind) = rest
                .split_at_checked(GROUP_BYTES)
                .ok_or_else(|| damaged("half a group"))?;
            let container = u64::from_le_bytes(group[..8].try_into().expect("eight bytes"));
            let count = u32::from_le_bytes(group[8..12].try_into().expect("four bytes"));
            let keys_bytes = (count as usize).checked_mul(FINGERPRINT_BYTES);
            let (keys, behind) = keys_bytes
                .and_then(|bytes| behind.split_at_checked(bytes))
                .ok_or_else(|| damaged("a group that is longer than it"))?;
            let (keys, _) = keys.as_chunks::<FINGERPRINT_BYTES>();
            let keys = keys.iter().map(|key| Fingerprint(*key));
            let container = ContainerId(container);
            match group[12] {
                kind @ (SAYS | REPEATS) => part.records.extend(keys.map(|key| ManifestRecord {
                    key,
                    container,
                    is_new: kind == SAYS,
                })),
                REMOVED => part.removed.extend(keys),
                RETIRES => part.retired.push(container),
                _ => return Err(damaged("a group of an unknown kind")),
            }
            rest = behind;
        }
        if part.continues && !part.removed.is_empty() {
            return Err(damaged("removals in its midst"));
        }
        Ok(part)
    }
}

fn push_group<'a>(
    out: &mut Vec<u8>,
    kind: u8,
    container: ContainerId,
    keys: impl Iterator<Item = &'a Fingerprint>,
) {
    let start = out.len();
    out.extend_from_slice(&container.0.to_le_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, kind, 0, 0, 0]);
    keys.for_each(|key| out.extend_from_slice(&key.0));
    let count = (out.len() - start - GROUP_BYTES) / FINGERPRINT_BYTES;
    out[start + 8..start + 12].copy_from_slice(&(count as u32).to_le_bytes());
}
