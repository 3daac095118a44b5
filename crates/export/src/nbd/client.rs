//! A client that has chosen an export: what its requests are received and judged by.

use std::io;
use std::sync::Arc;

use onefold_volume::Geometry;

use super::handshake::Agreement;
use super::memory::{Memory, Share};
use super::request::{self, RequestHeader, RequestPlan};
use super::stream::ClientStream;

/// A client that has chosen an export.
pub(super) struct NbdClient {
    pub stream: Arc<ClientStream>,
    pub agreement: Agreement,
    pub geometry: Geometry,
    pub memory: Arc<Memory>,
    pub share: Arc<Share>,
}

impl NbdClient {
    pub fn new(stream: Arc<ClientStream>, agreement: Agreement, memory: Arc<Memory>) -> Self {
        Self {
            stream,
            geometry: agreement.device.geometry(),
            agreement,
            memory,
            share: Arc::default(),
        }
    }

    /// The way to carry out a request. The device may have grown since the client connected, and a client that was told
    /// asks for more than it agreed to.
    pub fn plan(&self, header: &RequestHeader) -> RequestPlan {
        let end = header.offset.checked_add(header.bytes);
        if end.is_some_and(|end| end > self.geometry.bytes) {
            request::plan(header, &self.agreement, &self.agreement.device.geometry())
        } else {
            request::plan(header, &self.agreement, &self.geometry)
        }
    }
}

/// The error of a broken connection, which ends without a message to the client.
pub(super) fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
