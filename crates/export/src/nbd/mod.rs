//! NBD, the protocol of QEMU, libnbd and the Linux kernel ("fixed newstyle", doc/proto.md of the NetworkBlockDevice
//! project), as a server.
//!
//! ```text
//! listener ─▶ server ─▶ handshake (options) ─▶ connection: reader ─▶ request ─▶ device ─▶ reply
//! ```
//!
//! `wire`, `options`, `handshake`, `request` and `reply` know bytes alone; `stream`, `arrival`, `reader`, `connection` and
//! `server` do the I/O. A hostile client gets errors or is cut off: lengths are checked before memory is taken for
//! them, memory is bounded for each connection and for all ([`ServerLimits`]), and a client that stalls has a deadline.

mod arrival;
mod client;
mod connection;
mod contexts;
mod exports;
mod handshake;
mod memory;
mod options;
mod reader;
mod reply;
mod request;
mod server;
mod stream;
pub mod tls;
mod wire;

pub use contexts::Contexts;
pub use exports::{DeviceList, Differences, Exports};
pub use handshake::{Agreement, Handshake, OPTION_BYTES_MAX, OPTIONS_MAX, Step, TlsPolicy};
pub(crate) use memory::{Memory, MemoryUse, Share};
pub use request::{RequestHeader, RequestPlan, header_bytes, plan};
pub use server::{Server, ServerLimits};
pub(crate) use stream::Socket;
