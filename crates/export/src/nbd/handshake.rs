//! The handshake, from a server's first bytes to a chosen export: bytes in, bytes out, no I/O ("fixed newstyle" of the
//! protocol).
//!
//! Invariant: an option is answered or the connection ends; a hostile client makes it keep at most
//! [`OPTION_BYTES_MAX`] bytes and [`OPTIONS_MAX`] options long.

use std::sync::Arc;

use onefold_volume::BlockDevice;

use super::contexts::Contexts;
use super::exports::Exports;
use super::options;
use super::wire::{self, Fields, answer, can, handshake, info, option};

/// An option with more data is refused unread.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// More data than this is not even skipped.
const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// A client that sends more options than this is cut off.
pub const OPTIONS_MAX: u32 = 1024;
const OPTION_HEADER_BYTES: usize = 16;

/// Promises to a client at the end of the handshake.
#[derive(Clone)]
pub struct Agreement {
    /// The chosen device.
    pub device: Arc<dyn BlockDevice>,
    /// Replies are structured.
    pub is_structured: bool,
    /// Requests and replies have extended headers.
    pub is_extended: bool,
    /// Contexts of block status; nothing is told where none was chosen.
    pub contexts: Contexts,
}

/// Whether a client has to ask for TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPolicy {
    /// There is no TLS.
    Off,
    /// No option but STARTTLS and ABORT is served before TLS.
    Required,
    /// TLS is up.
    Established,
}

/// The next step of a handshake.
pub enum Step {
    /// More bytes of the client's are needed.
    More,
    /// TLS begins: nothing unencrypted was received after the option, and a new handshake goes on within.
    StartTls,
    /// Requests follow.
    Transmit(Agreement),
    /// The connection ends.
    End,
}

/// One client's handshake.
pub struct Handshake {
    exports: Exports,
    tls: TlsPolicy,
    has_flags: bool,
    no_zeroes: bool,
    is_structured: bool,
    is_extended: bool,
    /// The export for which contexts were chosen, and those.
    contexts_of: Option<(String, Contexts)>,
    options: u32,
    to_skip: u32,
}

impl Handshake {
    /// Begins, and puts the server's first bytes into `out`.
    pub fn begin(exports: Exports, tls: TlsPolicy, out: &mut Vec<u8>) -> Self {
        out.extend(wire::NBDMAGIC.to_be_bytes());
        out.extend(wire::IHAVEOPT.to_be_bytes());
        out.extend((handshake::FIXED_NEWSTYLE as u16 | handshake::NO_ZEROES as u16).to_be_bytes());
        Self::new(exports, tls)
    }

    fn new(exports: Exports, tls: TlsPolicy) -> Self {
        Self {
            exports,
            tls,
            has_flags: false,
            no_zeroes: false,
            is_structured: false,
            is_extended: false,
            contexts_of: None,
            options: 0,
            to_skip: 0,
        }
    }

    /// Goes on within TLS: what was agreed on before counts for nothing.
    #[must_use]
    pub fn within_tls(self) -> Self {
        Self {
            has_flags: true,
            no_zeroes: self.no_zeroes,
            options: self.options,
            ..Self::new(self.exports, TlsPolicy::Established)
        }
    }

    /// Takes whole messages off the front of `input` and puts answers into `out`, until one of them changes something.
    pub fn take(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        loop {
            let skipped = input.len().min(self.to_skip as usize);
            *input = &input[skipped..];
            self.to_skip -= skipped as u32;
            let step = if self.has_flags {
                self.take_option(input, out)
            } else {
                self.take_flags(input)
            };
            match step {
                Some(Step::More) => {}
                Some(step) => return step,
                None => return Step::More,
            }
        }
    }

    /// `None`: there are not enough bytes. `Some(More)`: done, and nothing changed.
    fn take_flags(&mut self, input: &mut &[u8]) -> Option<Step> {
        let mut fields = Fields(input);
        let flags = fields.u32()?;
        *input = fields.0;
        if flags & !(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
            return Some(Step::End);
        }
        self.no_zeroes = flags & handshake::NO_ZEROES != 0;
        self.has_flags = true;
        Some(Step::More)
    }

    fn take_option(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Option<Step> {
        let mut fields = Fields(input);
        if self.to_skip > 0 || fields.0.len() < OPTION_HEADER_BYTES {
            return None;
        }
        let (magic, option, length) = (fields.u64()?, fields.u32()?, fields.u32()?);
        if magic != wire::IHAVEOPT || length > SKIPPED_BYTES_MAX || self.options == OPTIONS_MAX {
            return Some(Step::End);
        }
        if length > OPTION_BYTES_MAX {
            self.options += 1;
            (*input, self.to_skip) = (fields.0, length);
            if option == option::EXPORT_NAME {
                return Some(Step::End);
            }
            refuse(out, option, answer::TOO_BIG, "the option is too long");
            return Some(Step::More);
        }
        let data = fields.bytes(length as usize)?;
        self.options += 1;
        *input = fields.0;
        let step = self.answer(option, data, out);
        // Bytes that came in the clear must not count as having come through TLS.
        match step {
            Step::StartTls if !input.is_empty() => Some(Step::End),
            step => Some(step),
        }
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let is_before_tls = self.tls == TlsPolicy::Required;
        match option {
            option::ABORT => {
                reply(out, option, answer::ACK, &[]);
                return Step::End;
            }
            option::STARTTLS => return self.start_tls(data, out),
            option::EXPORT_NAME if is_before_tls => return Step::End,
            _ if is_before_tls => {
                refuse(out, option, answer::TLS_REQUIRED, "TLS is required here");
            }
            option::EXPORT_NAME => return self.export_name(data, out),
            option::LIST if !data.is_empty() => {
                refuse(out, option, answer::INVALID, "LIST has no data")
            }
            option::LIST => self.list(out),
            option::INFO | option::GO => return self.go(option, data, out),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if !data.is_empty() => {
                refuse(out, option, answer::INVALID, "the option has no data");
            }
            option::STRUCTURED_REPLY if self.is_extended => {
                let what = "extended headers are agreed on";
                refuse(out, option, answer::EXTENDED_HEADERS_IN_USE, what);
            }
            option::STRUCTURED_REPLY => {
                self.is_structured = true;
                reply(out, option, answer::ACK, &[]);
            }
            option::EXTENDED_HEADERS => {
                (self.is_structured, self.is_extended) = (true, true);
                reply(out, option, answer::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(option, data, out)
            }
            _ => refuse(out, option, answer::UNSUPPORTED, "unknown option"),
        }
        Step::More
    }

    fn start_tls(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        let option = option::STARTTLS;
        match self.tls {
            _ if !data.is_empty() => refuse(out, option, answer::INVALID, "STARTTLS has no data"),
            TlsPolicy::Off => refuse(out, option, answer::UNSUPPORTED, "there is no TLS here"),
            TlsPolicy::Established => refuse(out, option, answer::INVALID, "TLS is up"),
            TlsPolicy::Required => {
                reply(out, option, answer::ACK, &[]);
                return Step::StartTls;
            }
        }
        Step::More
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        let found = std::str::from_utf8(data)
            .ok()
            .map(|name| (name, self.exports.find(name)));
        let Some((name, Some(device))) = found else {
            return Step::End; // The option has no other way to say so.
        };
        out.extend(device.geometry().bytes.to_be_bytes());
        out.extend(self.abilities(&device).to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Step::Transmit(self.agreement(name, &device))
    }

    fn list(&self, out: &mut Vec<u8>) {
        for name in self.exports.names() {
            let mut body = (name.len() as u32).to_be_bytes().to_vec();
            body.extend(name.as_bytes());
            reply(out, option::LIST, answer::SERVER, &body);
        }
        reply(out, option::LIST, answer::ACK, &[]);
    }

    fn go(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let Some((name, wants_name)) = options::decode_go(data) else {
            refuse(out, option, answer::INVALID, "the option is malformed");
            return Step::More;
        };
        let Some(device) = self.exports.find(name) else {
            refuse(
                out,
                option,
                answer::UNKNOWN,
                "there is no export of this name",
            );
            return Step::More;
        };
        let geometry = device.geometry();
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend(geometry.bytes.to_be_bytes());
        export.extend(self.abilities(&device).to_be_bytes());
        reply(out, option, answer::INFO, &export);
        if wants_name {
            let mut body = info::NAME.to_be_bytes().to_vec();
            body.extend(geometry.name.as_bytes());
            reply(out, option, answer::INFO, &body);
        }
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for bytes in [1, geometry.chunk_bytes.max(4096), geometry.io_bytes_max] {
            sizes.extend(bytes.to_be_bytes());
        }
        reply(out, option, answer::INFO, &sizes);
        reply(out, option, answer::ACK, &[]);
        match option {
            option::GO => Step::Transmit(self.agreement(name, &device)),
            _ => Step::More,
        }
    }

    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            self.contexts_of = None;
        }
        let Some((name, queries)) = options::decode_contexts(data) else {
            return refuse(out, option, answer::INVALID, "the option is malformed");
        };
        if is_set && !self.is_structured {
            return refuse(
                out,
                option,
                answer::INVALID,
                "structured replies come first",
            );
        }
        if self.exports.find(name).is_none() {
            return refuse(
                out,
                option,
                answer::UNKNOWN,
                "there is no export of this name",
            );
        }
        let is_listed = !is_set && (queries.is_empty || queries.base);
        let changes = (queries.changed_since)
            .and_then(|base| Some((base, self.exports.compare(name, base)?)));
        let contexts = Contexts {
            allocation: queries.allocation || is_listed,
            changes: changes.as_ref().map(|(_, changes)| changes.clone()),
        };
        let mut tell = |id: u32, context: &str| {
            let id = if is_set { id } else { 0 };
            let mut body = id.to_be_bytes().to_vec();
            body.extend(context.as_bytes());
            reply(out, option, answer::META_CONTEXT, &body);
        };
        if contexts.allocation {
            tell(wire::BASE_ALLOCATION_ID, wire::BASE_ALLOCATION);
        }
        if let Some((base, _)) = changes {
            let context = format!("{}{base}", wire::CHANGED_SINCE);
            tell(wire::CHANGED_SINCE_ID, &context);
        }
        if is_set {
            self.contexts_of = Some((name.to_string(), contexts));
        }
        reply(out, option, answer::ACK, &[]);
    }

    fn agreement(&self, name: &str, device: &Arc<dyn BlockDevice>) -> Agreement {
        Agreement {
            device: device.clone(),
            is_structured: self.is_structured,
            is_extended: self.is_extended,
            contexts: match &self.contexts_of {
                Some((export, contexts)) if export == name => contexts.clone(),
                _ => Contexts::default(),
            },
        }
    }

    fn abilities(&self, device: &Arc<dyn BlockDevice>) -> u16 {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN | can::CACHE;
        flags |= if device.geometry().is_writable {
            can::TRIM | can::WRITE_ZEROES | can::FAST_ZERO
        } else {
            can::READ_ONLY
        };
        if self.is_structured {
            flags |= can::DF;
        }
        flags
    }
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(wire::OPTION_REPLY.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, why: &str) {
    reply(out, option, kind, why.as_bytes());
}
