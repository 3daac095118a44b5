//! The server as clients see it: over real sockets, with a client of our own that says anything.
#![forbid(unsafe_code)]

mod client;
mod handshake;
mod hostile;
mod serving;
mod slow_device;
