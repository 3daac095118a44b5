//! Replies of the transmission phase: simple, structured, or with extended headers, as was agreed on.

use onefold_volume::{Buffer, Error};

use super::contexts::{ContextStatus, FlaggedStretch};
use super::handshake::Agreement;
use super::wire::{self, Errno, chunk};

/// Stretches in one answer to block status, at most.
pub const STRETCHES_MAX: usize = 4096;

/// A reply, ready to be sent: the head, then the data of a read.
pub struct Reply {
    /// Everything but the data of a read.
    pub head: ReplyHead,
    /// Data of a read.
    pub data: Option<Buffer>,
}

/// A few bytes in place, more of them on the heap.
pub enum ReplyHead {
    /// The first `len` of these bytes.
    Short([u8; 48], u8),
    /// Any number of bytes.
    Long(Vec<u8>),
}

impl ReplyHead {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Short(place, len) if usize::from(*len) + bytes.len() <= place.len() => {
                let start = usize::from(*len);
                place[start..start + bytes.len()].copy_from_slice(bytes);
                *len += bytes.len() as u8;
            }
            Self::Short(..) => {
                let mut long = self.bytes().to_vec();
                long.extend(bytes);
                *self = Self::Long(long);
            }
            Self::Long(long) => long.extend(bytes),
        }
    }
}

/// Form of the replies to one request.
#[derive(Clone, Copy)]
pub struct Form {
    is_structured: bool,
    is_extended: bool,
    cookie: u64,
    offset: u64,
}

impl Form {
    /// The form that was agreed on, for the request of this cookie and offset.
    pub fn new(agreement: &Agreement, cookie: u64, offset: u64) -> Self {
        Self {
            is_structured: agreement.is_structured,
            is_extended: agreement.is_extended,
            cookie,
            offset,
        }
    }

    /// Everything was done; there is no data.
    pub fn done(&self) -> Reply {
        let head = if self.is_structured {
            self.chunk(chunk::NONE, 0)
        } else {
            self.simple(0)
        };
        Reply { head, data: None }
    }

    /// The reply to a read: the bytes of `buffer`.
    pub fn data(&self, buffer: Buffer) -> Reply {
        let head = if self.is_structured && !buffer.is_empty() {
            let mut head = self.chunk(chunk::OFFSET_DATA, 8 + buffer.len() as u64);
            head.put(&self.offset.to_be_bytes());
            head
        } else {
            return Reply {
                data: Some(buffer),
                ..self.done()
            };
        };
        Reply {
            head,
            data: Some(buffer),
        }
    }

    /// The request failed.
    pub fn error(&self, errno: Errno, why: &str) -> Reply {
        let errno = errno as u32;
        if !self.is_structured {
            return Reply {
                head: self.simple(errno),
                data: None,
            };
        }
        let why = &why.as_bytes()[..why.len().min(400)];
        let mut head = self.chunk(chunk::ERROR, 6 + why.len() as u64);
        head.put(&errno.to_be_bytes());
        head.put(&(why.len() as u16).to_be_bytes());
        head.put(why);
        Reply { head, data: None }
    }

    /// Block status: of each context its number, and stretches from the request's offset on with their flags.
    pub fn status(&self, contexts: &[ContextStatus]) -> Reply {
        let mut all = ReplyHead::Long(Vec::new());
        for (number, status) in contexts.iter().enumerate() {
            let count = status.stretches.len() as u64;
            let (kind, bytes) = if self.is_extended {
                (chunk::BLOCK_STATUS_EXTENDED, 8 + 16 * count)
            } else {
                (chunk::BLOCK_STATUS, 4 + 8 * count)
            };
            let is_last = number + 1 == contexts.len();
            let flags = if is_last { chunk::DONE } else { 0 };
            all.put(self.flagged_chunk(flags, kind, bytes).bytes());
            all.put(&status.context.to_be_bytes());
            if self.is_extended {
                all.put(&(count as u32).to_be_bytes());
            }
            for FlaggedStretch { bytes, flags } in &status.stretches {
                if self.is_extended {
                    all.put(&bytes.to_be_bytes());
                    all.put(&u64::from(*flags).to_be_bytes());
                } else {
                    all.put(&(*bytes as u32).to_be_bytes());
                    all.put(&flags.to_be_bytes());
                }
            }
        }
        Reply {
            head: all,
            data: None,
        }
    }

    fn simple(&self, errno: u32) -> ReplyHead {
        let mut head = ReplyHead::Short([0; 48], 0);
        head.put(&wire::SIMPLE_REPLY.to_be_bytes());
        head.put(&errno.to_be_bytes());
        head.put(&self.cookie.to_be_bytes());
        head
    }

    /// The head of the only and last chunk.
    fn chunk(&self, kind: u16, bytes: u64) -> ReplyHead {
        self.flagged_chunk(chunk::DONE, kind, bytes)
    }

    fn flagged_chunk(&self, flags: u16, kind: u16, bytes: u64) -> ReplyHead {
        let mut head = ReplyHead::Short([0; 48], 0);
        let magic = if self.is_extended {
            wire::EXTENDED_REPLY
        } else {
            wire::STRUCTURED_REPLY
        };
        head.put(&magic.to_be_bytes());
        head.put(&flags.to_be_bytes());
        head.put(&kind.to_be_bytes());
        head.put(&self.cookie.to_be_bytes());
        if self.is_extended {
            head.put(&self.offset.to_be_bytes());
            head.put(&bytes.to_be_bytes());
        } else {
            head.put(&(bytes as u32).to_be_bytes());
        }
        head
    }
}

/// A device's error as a client learns it.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::NoSpace { .. } => Errno::NoSpace,
        Error::ReadOnly { .. } => Errno::NotPermitted,
        Error::Invalid { .. } => Errno::Invalid,
        Error::Closing => Errno::ShuttingDown,
        _ => Errno::Io,
    }
}
