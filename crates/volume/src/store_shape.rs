//! The shape of a key-value store: of what kind its keys are, and how many there can be.

use onefold_io::varint::{ByteReader, put_varint};

use crate::dump::Dump;
use crate::{Error, Key, Result};

/// No key is longer.
pub(crate) const KEY_BYTES_MAX: u64 = 64;
/// No store has more keys.
const KEYS_MAX: u64 = 1 << 48;

const LINEAR: u8 = 1;
const SPARSE: u8 = 2;

/// Kind and size of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreShape {
    /// Keys are the numbers below this one.
    Linear(u64),
    /// Keys are bytes.
    Sparse {
        /// Bytes of a key.
        key_bytes: usize,
        /// No more keys are held.
        keys_max: u64,
    },
}

impl StoreShape {
    /// # Errors
    /// [`Error::Invalid`]: there can be no such store.
    pub fn check(&self) -> Result<()> {
        let is_possible = match *self {
            Self::Linear(keys) => keys <= KEYS_MAX,
            Self::Sparse {
                key_bytes,
                keys_max,
            } => (1..=KEY_BYTES_MAX).contains(&(key_bytes as u64)) && keys_max <= KEYS_MAX,
        };
        if is_possible {
            Ok(())
        } else {
            Err(Error::Invalid {
                what: format!(
                    "a store of the shape {self:?}, where keys of up to {KEY_BYTES_MAX} bytes and up to {KEYS_MAX} keys can be"
                ),
            })
        }
    }

    /// # Errors
    /// [`Error::Invalid`] for a key of the other kind, of another length, or beyond the last.
    pub fn check_key(&self, key: Key<'_>) -> Result<()> {
        let what = match (*self, key) {
            (Self::Linear(keys), Key::Linear(key)) if key >= keys => {
                format!("key {key} lies beyond the store's {keys} keys")
            }
            (Self::Sparse { key_bytes, .. }, Key::Sparse(key)) if key.len() != key_bytes => {
                format!(
                    "a key of {} bytes, where the store's have {key_bytes}",
                    key.len()
                )
            }
            (Self::Linear(_), Key::Sparse(_)) | (Self::Sparse { .. }, Key::Linear(_)) => {
                "a key of the other kind of store".into()
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid { what })
    }

    /// # Errors
    /// [`Error::NoSpace`] where a store that holds `entries` keys takes no other.
    pub fn check_room(&self, entries: u64) -> Result<()> {
        match *self {
            Self::Sparse { keys_max, .. } if entries >= keys_max => Err(Error::NoSpace {
                what: format!("the hash index holds all of its {keys_max} keys"),
            }),
            _ => Ok(()),
        }
    }

    /// Kind and size, as a dump tells them.
    pub fn dump_fields(&self) -> Vec<(&'static str, Dump)> {
        match *self {
            Self::Linear(keys) => vec![("kind", "linear".into()), ("keys", keys.into())],
            Self::Sparse {
                key_bytes,
                keys_max,
            } => vec![
                ("kind", "sparse".into()),
                ("key_bytes", key_bytes.into()),
                ("keys_max", keys_max.into()),
            ],
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Linear(keys) => {
                out.push(LINEAR);
                put_varint(out, keys);
            }
            Self::Sparse {
                key_bytes,
                keys_max,
            } => {
                out.push(SPARSE);
                put_varint(out, key_bytes as u64);
                put_varint(out, keys_max);
            }
        }
    }

    /// # Errors
    /// [`Error::Damaged`].
    pub fn decode(bytes: &mut ByteReader<'_>) -> Result<Self> {
        let kind = bytes.u8()?;
        let shape = match kind {
            LINEAR => Self::Linear(bytes.varint_max(KEYS_MAX)?),
            SPARSE => Self::Sparse {
                key_bytes: bytes.varint_max(KEY_BYTES_MAX)? as usize,
                keys_max: bytes.varint_max(KEYS_MAX)?,
            },
            kind => return Err(bytes.damaged(format!("a store of kind {kind}")).into()),
        };
        match shape.check() {
            Ok(()) => Ok(shape),
            Err(error) => Err(bytes.damaged(error.to_string()).into()),
        }
    }
}

/// Where the stores of a backend are known, the n-th that is created is the n-th that is there.
///
/// # Errors
/// [`Error::Unsupported`] where that has another shape; [`Error::Invalid`].
pub(crate) fn same_store(there: Option<StoreShape>, wanted: StoreShape) -> Result<bool> {
    wanted.check()?;
    match there {
        None => Ok(false),
        Some(shape) if shape == wanted => Ok(true),
        Some(shape) => Err(Error::Unsupported {
            what: format!("the metadata has a store of the shape {shape:?}, not {wanted:?}"),
        }),
    }
}
