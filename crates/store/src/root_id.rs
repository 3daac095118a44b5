//! Names of roots.

use onefold_io::hex_number;

use crate::folders::ROOT_FOLDER;

/// End of the name of a forgotten root: readers may hold it.
pub(crate) const FORGOTTEN_SUFFIX: &str = "-forgotten";

/// A root's name: BLAKE3 of its stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RootId(pub [u8; 32]);

impl RootId {
    /// Parses a name of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id = [0; 32];
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        if digits.len() != id.len() || !rest.is_empty() {
            return None;
        }
        for (byte, two) in id.iter_mut().zip(digits) {
            *byte = hex_number(std::str::from_utf8(two).ok()?, 2)? as u8;
        }
        Some(Self(id))
    }

    pub(crate) fn object(&self) -> String {
        format!("{ROOT_FOLDER}/{self}")
    }

    /// The root's name once it is forgotten, until a sweep sees that nobody holds it.
    pub(crate) fn forgotten_object(&self) -> String {
        format!("{ROOT_FOLDER}/{self}{FORGOTTEN_SUFFIX}")
    }
}

impl std::fmt::Display for RootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
