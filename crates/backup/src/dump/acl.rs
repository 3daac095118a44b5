//! POSIX ACLs in tar archives: in words, for `tar --acls` and star, beside the attributes that `tar --xattrs` reads.

/// Version in `struct posix_acl_xattr_header` (`linux/posix_acl_xattr.h`).
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

/// Returns the pax record, key and value, of an attribute that is an ACL; `None` for other attributes.
pub fn record(name: &[u8], value: &[u8]) -> Option<(&'static str, String)> {
    let key = match name {
        b"system.posix_acl_access" => "SCHILY.acl.access",
        b"system.posix_acl_default" => "SCHILY.acl.default",
        _ => return None,
    };
    Some((key, text(value)?))
}

/// Returns the short text form of POSIX.1e (`user::rw-,user:1000:r--,group::r--,mask::r--,other::---`), with numbers
/// for names: they mean the same owners anywhere. `None`: the attribute has an unknown form.
fn text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let words: Option<Vec<String>> = entries.chunks(ENTRY_BYTES).map(entry).collect();
    Some(words?.join(","))
}

fn entry(bytes: &[u8]) -> Option<String> {
    let &[tag, 0, may, 0, ..] = bytes else {
        return None;
    };
    let id = u32::from_le_bytes(*bytes.last_chunk()?);
    let whose = match tag {
        0x01 => "user:".into(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".into(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".into(),
        0x20 => "other:".into(),
        _ => return None,
    };
    let letter = |bit: u8, letter| if may & bit == 0 { '-' } else { letter };
    let may: String = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')]
        .into_iter()
        .collect();
    Some(format!("{whose}:{may}"))
}

#[cfg(test)]
mod tests {
    use super::record;

    /// The ACL that `setfacl -m u:1234:rw,g:7:x` gives a file of mode 0640.
    const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\xd2\x04\0\0\x04\0\x04\0\xff\xff\xff\xff\
        \x08\0\x01\0\x07\0\0\0\x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

    #[test]
    fn an_acl_is_told_in_words() {
        let (key, text) = record(b"system.posix_acl_access", ACL).expect("an ACL");
        assert_eq!(key, "SCHILY.acl.access");
        let words = "user::rw-,user:1234:rw-,group::r--,group:7:--x,mask::rwx,other::---";
        assert_eq!(text, words);
    }

    #[test]
    fn what_is_no_acl_is_none() {
        assert_eq!(record(b"user.system.posix_acl_access", ACL), None);
        for len in (0..ACL.len()).filter(|len| len % 8 != 4) {
            assert_eq!(record(b"system.posix_acl_default", &ACL[..len]), None);
        }
        for (at, wrong) in [(0, 3), (4, 3), (5, 1), (7, 9)] {
            let mut acl = ACL.to_vec();
            acl[at] = wrong;
            assert_eq!(record(b"system.posix_acl_access", &acl), None);
        }
    }
}
