//! Hints that users give by name.

use crate::{Error, Hints, Result};

/// A hint that can be given for a range, a file, an export or a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HintKind {
    /// NODEDUP: what is written is not worth deduplicating.
    Nodedup,
    /// PREFETCH: what is read is written elsewhere soon.
    Prefetch,
    /// Written data does not compress.
    Incompressible,
}

impl HintKind {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Nodedup, Self::Prefetch, Self::Incompressible];

    /// The name users give.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodedup => "nodedup",
            Self::Prefetch => "prefetch",
            Self::Incompressible => "incompressible",
        }
    }

    /// By the name users give.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names that there are.
    pub fn by_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| Error::Invalid {
            what: format!(
                "no hint is named \"{name}\"; there are {}",
                Self::ALL.map(Self::name).join(", ")
            ),
        })
    }
}

impl Hints {
    /// These hints, and one more.
    #[must_use]
    pub fn with(self, kind: HintKind) -> Self {
        match kind {
            HintKind::Nodedup => Self {
                nodedup: true,
                ..self
            },
            HintKind::Prefetch => Self {
                prefetch: true,
                ..self
            },
            HintKind::Incompressible => Self {
                incompressible: true,
                ..self
            },
        }
    }

    /// The hints of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            nodedup: self.nodedup || other.nodedup,
            prefetch: self.prefetch || other.prefetch,
            metadata: self.metadata || other.metadata,
            incompressible: self.incompressible || other.incompressible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_sets_a_hint_of_its_own() {
        let mut all = Hints::default();
        for kind in HintKind::ALL {
            assert_eq!(HintKind::by_name(kind.name()).expect("its name"), kind);
            let hints = Hints::default().with(kind);
            assert_ne!(all.or(hints), all, "{kind:?}");
            all = all.or(hints);
        }
        let error = HintKind::by_name("nodup").expect_err("no hint");
        assert!(error.to_string().contains("nodedup, prefetch"), "{error}");
    }
}
