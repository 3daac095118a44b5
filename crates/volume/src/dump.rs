//! Structures of a depot as a tree of names and values that a program prints as it likes.

/// A value, and what it is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dump {
    /// A number.
    Number(u64),
    /// Words.
    Text(String),
    /// Nothing: the thing is not there.
    None,
    /// Values of one kind.
    List(Vec<Dump>),
    /// Named values, in order.
    Fields(Vec<(&'static str, Dump)>),
}

impl From<u64> for Dump {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Dump {
    fn from(number: u32) -> Self {
        Self::Number(u64::from(number))
    }
}

impl From<usize> for Dump {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<&str> for Dump {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Dump {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Dump>> From<Option<T>> for Dump {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl FromIterator<Dump> for Dump {
    fn from_iter<I: IntoIterator<Item = Dump>>(values: I) -> Self {
        Self::List(values.into_iter().collect())
    }
}

/// The place of a structure that cannot be read: why not.
pub(crate) fn not_read(error: &crate::Error) -> Dump {
    Dump::Fields(vec![("not_read", error.to_string().into())])
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
