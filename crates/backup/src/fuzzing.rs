//! Decoders of attributes, for the fuzz targets.

use crate::{dump, restore};

/// Returns the pax record, key and value, of an attribute that is an ACL.
pub fn acl_record(name: &[u8], value: &[u8]) -> Option<(&'static str, String)> {
    dump::acl::record(name, value)
}

/// Returns the mode of a file with this mode and ACL once it has no ACL.
pub fn mode_without_acl(mode: u16, acl: &[u8]) -> u16 {
    restore::acl::mode_without(mode, acl)
}
