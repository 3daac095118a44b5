//! Whether new chunks are compressed.

use crate::{Error, Result};

/// How the engine `log` packs new chunks of 4 KiB: several compressed ones share a page. What is stored is read
/// whatever this says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    /// Chunks are stored as they are.
    #[default]
    None,
    /// Each chunk is tried.
    Lz4,
    /// As `Lz4`, but where the last 64 chunks of a volume did not shrink only one in eight is tried.
    Auto,
}

const ALL: [(Compression, &str, u8); 3] = [
    (Compression::None, "none", 0),
    (Compression::Lz4, "lz4", 1),
    (Compression::Auto, "auto", 2),
];

impl Compression {
    /// By the name users give.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names that there are.
    pub fn by_name(name: &str) -> Result<Self> {
        let known = ALL.iter().find(|(_, known, _)| *known == name);
        known.map(|(it, _, _)| *it).ok_or_else(|| Error::Invalid {
            what: format!(
                "no compression is named \"{name}\"; there are {}",
                ALL.map(|(_, name, _)| name).join(", ")
            ),
        })
    }

    /// The name users give.
    pub fn name(self) -> &'static str {
        ALL[usize::from(self.code())].1
    }

    /// The number in a configuration.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Auto => 2,
        }
    }

    /// By the number in a configuration.
    pub(crate) fn by_code(code: u8) -> Option<Self> {
        ALL.iter()
            .find(|(_, _, known)| *known == code)
            .map(|(it, _, _)| *it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_each_others() {
        for (compression, name, code) in ALL {
            assert_eq!(Compression::by_name(name).expect("known"), compression);
            assert_eq!(Compression::by_code(code), Some(compression));
            assert_eq!((compression.name(), compression.code()), (name, code));
        }
        let error = Compression::by_name("zstd").expect_err("not known");
        assert!(error.to_string().contains("none, lz4, auto"), "{error}");
    }
}
