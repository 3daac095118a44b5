//! Entity tags of a store's objects.

use std::sync::OnceLock;

use md5::{Digest, Md5};

/// The kind of a store's tags: the MD5 of the bytes, or something that tells nothing of them, as where the store
/// encrypts by keys of its own.
#[derive(Default, Debug)]
pub(crate) struct Tags {
    /// Not set again once it is: all tags of a store are of one kind, and a reading that mixes versions proves nothing.
    are_md5: OnceLock<bool>,
}

impl Tags {
    /// Whether the tag can be that of these bytes.
    pub fn fit(&self, tag: &str, bytes: &[u8]) -> bool {
        self.are_md5.get() == Some(&false) || is_md5(tag, bytes)
    }

    /// Learns from a tag and bytes that belong together.
    pub fn note(&self, tag: &str, bytes: &[u8]) {
        self.are_md5.get_or_init(|| is_md5(tag, bytes));
    }
}

fn is_md5(tag: &str, bytes: &[u8]) -> bool {
    let digest = Md5::digest(bytes);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    tag.trim_matches('"')
        .eq_ignore_ascii_case(&digits.collect::<String>())
}
