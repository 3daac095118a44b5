//! The mode of a file that is restored without its ACL.
//!
//! Format of the attribute: a version (u32), then entries of tag (u16), permissions (u16) and id (u32), little-endian
//! (`linux/posix_acl_xattr.h`).

/// Name of the attribute that holds the ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;

/// Returns the mode of a file without its ACL: the group's bits are those of the owning group in the ACL, limited by
/// the mask. An ACL without an entry for the group leaves the group nothing.
pub fn mode_without(mode: u16, acl: &[u8]) -> u16 {
    let entries = acl.get(VERSION_BYTES..).unwrap_or_default();
    let entries = entries.chunks_exact(ENTRY_BYTES);
    let number = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let of = |tag| {
        let mut entries = entries.clone();
        let entry = entries.find(|entry| number(entry, 0) == tag)?;
        Some(number(entry, 2) & 7)
    };
    let group = of(GROUP_OBJ).unwrap_or(0) & of(MASK).unwrap_or(7);
    mode & !0o070 | group << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        acl
    }

    #[test]
    fn the_group_gets_what_it_had_and_not_what_others_had() {
        let none = u32::MAX;
        let named = [
            (1, 6, none),
            (2, 6, 1234),
            (4, 0, none),
            (16, 6, none),
            (32, 0, none),
        ];
        assert_eq!(mode_without(0o4660, &acl(&named)), 0o4600);
        let masked = [(1, 7, none), (4, 7, none), (16, 4, none), (32, 5, none)];
        assert_eq!(mode_without(0o745, &acl(&masked)), 0o745);
        assert_eq!(
            mode_without(0o664, &acl(&[(1, 6, none), (4, 4, none)])),
            0o644
        );
        for torn in [&b""[..], b"\x02\0\0\0", b"\x02\0\0\0\x04\0\x07"] {
            assert_eq!(mode_without(0o660, torn), 0o600);
        }
    }
}
