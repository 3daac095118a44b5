//! Requests of the transmission phase: headers decoded, and checked against the device before anything is allocated
//! for them.

use onefold_volume::{Geometry, Hints, Op};

use super::handshake::Agreement;
use super::wire::{self, Errno, Fields, command, flag};

/// A request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Flags of the command.
    pub flags: u16,
    /// The command.
    pub command: u16,
    /// The client's name for the request, which comes back in the reply.
    pub cookie: u64,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes concerned.
    pub bytes: u64,
}

/// Bytes of a header.
pub const fn header_bytes(is_extended: bool) -> usize {
    if is_extended { 32 } else { 28 }
}

impl RequestHeader {
    /// Decodes [`header_bytes`] bytes. `None`: they are no header, and nothing that follows can be understood.
    pub fn decode(bytes: &[u8], is_extended: bool) -> Option<Self> {
        let mut fields = Fields(bytes);
        let expected = if is_extended {
            wire::EXTENDED_REQUEST
        } else {
            wire::REQUEST
        };
        if fields.u32()? != expected {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            bytes: if is_extended {
                fields.u64()?
            } else {
                fields.u32()?.into()
            },
        })
    }

    /// Bytes of data that follow the header.
    pub fn payload_bytes(&self, is_extended: bool) -> u64 {
        match self.command {
            command::WRITE => self.bytes,
            _ if is_extended && self.flags & flag::PAYLOAD_LEN != 0 => self.bytes,
            _ => 0,
        }
    }
}

/// The work for a request, as decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestPlan {
    /// The device does it.
    Device {
        /// The device's operation.
        op: Op,
        /// Bytes of the buffer that it needs.
        buffer_bytes: usize,
        /// Hints of the client about the data.
        hints: Hints,
    },
    /// Nothing has to be done.
    Nothing,
    /// Block status, of one stretch or of many.
    Status {
        /// Only the first stretch is asked for.
        is_one: bool,
    },
    /// The request is refused; its payload, if it has one, is skipped.
    Refuse(Errno, &'static str),
    /// The client leaves.
    Disconnect,
}

/// Decides what is done for a request. Lengths and places are checked here, once.
pub fn plan(header: &RequestHeader, agreement: &Agreement, geometry: &Geometry) -> RequestPlan {
    let allowed = match header.command {
        command::READ => flag::FUA | flag::DF,
        command::WRITE => flag::FUA | flag::PAYLOAD_LEN,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::FUA | flag::REQ_ONE,
        command::DISCONNECT => return RequestPlan::Disconnect,
        command::FLUSH | command::TRIM | command::CACHE => flag::FUA,
        _ => return RequestPlan::Refuse(Errno::Invalid, "unknown command"),
    };
    let is_payload_wrong = header.flags & flag::PAYLOAD_LEN != 0 && !agreement.is_extended;
    if header.flags & !allowed != 0 || is_payload_wrong {
        return RequestPlan::Refuse(Errno::Invalid, "a flag that the command does not have");
    }
    if header.command == command::FLUSH {
        return match (header.offset, header.bytes) {
            (0, 0) => device(Op::Flush, 0),
            _ => RequestPlan::Refuse(Errno::Invalid, "a flush has neither offset nor length"),
        };
    }
    let is_change = matches!(
        header.command,
        command::WRITE | command::TRIM | command::WRITE_ZEROES
    );
    if is_change && !geometry.is_writable {
        return RequestPlan::Refuse(Errno::NotPermitted, "the export is read-only");
    }
    let end = header.offset.checked_add(header.bytes);
    if end.is_none_or(|end| end > geometry.bytes) {
        let errno = if is_change {
            Errno::NoSpace
        } else {
            Errno::Invalid
        };
        return RequestPlan::Refuse(errno, "beyond the end of the export");
    }
    let has_data = matches!(header.command, command::READ | command::WRITE);
    if has_data && header.bytes > u64::from(geometry.io_bytes_max) {
        return RequestPlan::Refuse(Errno::Invalid, "longer than the largest block size");
    }
    match header.command {
        command::BLOCK_STATUS if agreement.contexts.are_none() => {
            RequestPlan::Refuse(Errno::Invalid, "no metadata context was chosen")
        }
        command::BLOCK_STATUS if header.bytes == 0 => {
            RequestPlan::Refuse(Errno::Invalid, "block status of nothing")
        }
        command::BLOCK_STATUS => RequestPlan::Status {
            is_one: header.flags & flag::REQ_ONE != 0,
        },
        command::READ => device(Op::Read, header.bytes as usize),
        // Nothing, but a reply with data has its own form, and FUA its own meaning.
        command::CACHE => RequestPlan::Nothing,
        command::WRITE => device(Op::Write, header.bytes as usize),
        _ if header.bytes == 0 => RequestPlan::Nothing,
        command::TRIM => device(Op::Discard, 0),
        _ => device(Op::WriteZeroes, 0),
    }
}

fn device(op: Op, buffer_bytes: usize) -> RequestPlan {
    RequestPlan::Device {
        op,
        buffer_bytes,
        hints: Hints::default(),
    }
}
