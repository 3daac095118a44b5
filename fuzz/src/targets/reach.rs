//! How far an input came: whether a checksum stopped it is read from what the decoder says.

use std::error::Error;

/// How far an input came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// A checksum stopped it, or what is looked at before one.
    Door,
    /// Past them, or there are none.
    Inside,
}

/// Parts of errors about bytes whose checksum does not hold, or that are no frame, page or object of the kind at all.
const AT_THE_DOOR: [&str; 9] = [
    "checksum",
    "magic \"",
    "expected a payload of at most",
    "expected a frame header",
    "its bytes hash to",
    "bytes stored, the header says",
    "a damaged page before page",
    "no frame before page",
    "the disk ends too early",
];

impl Reach {
    /// By an error and its causes.
    pub fn of_error(error: &dyn Error) -> Self {
        let causes = std::iter::successors(Some(error), |error: &&dyn Error| (*error).source());
        if causes.map(ToString::to_string).any(|text| is_door(&text)) {
            Self::Door
        } else {
            Self::Inside
        }
    }

    /// By how a decoder ended.
    pub fn of<T, E: Error>(ended: &Result<T, E>) -> Self {
        match ended {
            Ok(_) => Self::Inside,
            Err(error) => Self::of_error(error),
        }
    }

    /// `Door`, if either stands there.
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::Door => self,
            Self::Inside => other,
        }
    }
}

fn is_door(text: &str) -> bool {
    AT_THE_DOOR.iter().any(|said| text.contains(said))
}

/// The result of a decoder without checksums.
impl From<()> for Reach {
    fn from((): ()) -> Self {
        Self::Inside
    }
}
