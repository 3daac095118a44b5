//! Numbers of the NBD protocol (doc/proto.md of the NetworkBlockDevice project), big-endian on the wire, and how they
//! are put into and taken out of bytes.

/// First eight bytes of a server.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins the handshake and every option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Begins a reply to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins a request.
pub const REQUEST: u32 = 0x2560_9513;
/// Begins a request with extended headers.
pub const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
/// Begins a simple reply.
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;
/// Begins a chunk of a reply with extended headers.
pub const EXTENDED_REPLY: u32 = 0x6e8a_278c;

/// Bits of the server's handshake flags, and of the client's.
pub mod handshake {
    pub const FIXED_NEWSTYLE: u32 = 1;
    pub const NO_ZEROES: u32 = 2;
}

/// Options of the handshake.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR + 1;
    pub const INVALID: u32 = ERROR + 3;
    pub const TLS_REQUIRED: u32 = ERROR + 5;
    pub const UNKNOWN: u32 = ERROR + 6;
    pub const TOO_BIG: u32 = ERROR + 9;
    pub const EXTENDED_HEADERS_IN_USE: u32 = ERROR + 10;
}

/// Kinds of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod can {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    pub const DF: u16 = 1 << 7;
    pub const MULTI_CONN: u16 = 1 << 8;
    pub const CACHE: u16 = 1 << 10;
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of chunks of a structured reply, and the flag of the last one.
pub mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXTENDED: u16 = 6;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Flags of `base:allocation`.
pub const STATE_HOLE: u32 = 1;
/// Reads as zeros.
pub const STATE_ZERO: u32 = 2;

/// The metadata context that tells what takes space.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// The metadata contexts that tell what changed since a snapshot, whose name follows.
pub const CHANGED_SINCE: &str = "onefold:changed:";
/// The number of the one that was chosen.
pub const CHANGED_SINCE_ID: u32 = 2;
/// The flag of such a context: the bytes may differ.
pub const MAY_DIFFER: u32 = 1;

/// Why a request failed, as a client learns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    ShuttingDown = 108,
}

/// Takes big-endian numbers off the front of bytes.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text behind its length in four bytes.
    pub fn text(&mut self) -> Option<&'a str> {
        let count = self.u32()?;
        std::str::from_utf8(self.bytes(usize::try_from(count).ok()?)?).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
}
