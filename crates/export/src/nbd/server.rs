//! Takes clients at Unix sockets and TCP addresses, and ends without losing what was answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustls::ServerConfig;

use super::connection::Connection;
use super::exports::Exports;
use super::handshake::{Agreement, Handshake, Step, TlsPolicy};
use super::memory::Memory;
use super::stream::{ClientStream, Socket};
use crate::listen::Listener;

/// Limits of a server's connections, memory, threads and patience.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Clients at once; more are turned away.
    pub connections_max: usize,
    /// Memory of requests in flight, in bytes.
    pub request_bytes_max: usize,
    /// Threads of one connection.
    pub threads: usize,
    /// Time that a client may be silent in the middle of a message, or take no replies, before it is cut off.
    pub stall_max: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 128,
            request_bytes_max: 256 << 20,
            threads: 2,
            stall_max: Duration::from_secs(120),
        }
    }
}

/// Bytes that a client may send in its handshake. Its time is the time of these bytes at the least rate.
const HANDSHAKE_BYTES: u64 = 64 << 10;
/// Time after a stop of the server at which clients that do not take their replies are cut off.
const STOPPING_MAX: Duration = Duration::from_secs(10);

/// The clients of a server.
#[derive(Default)]
struct Clients {
    /// Streams of those that are served now, by their numbers.
    served: HashMap<u64, Arc<ClientStream>>,
    /// Number of those that are signed off, and whose streams are just being closed.
    closing: usize,
}

/// A server of some exports.
pub struct Server {
    exports: Exports,
    tls: Option<Arc<ServerConfig>>,
    memory: Arc<Memory>,
    limits: ServerLimits,
    clients: Mutex<Clients>,
    client_left: Condvar,
    numbers: AtomicU64,
    is_stopping: AtomicBool,
}

impl Server {
    /// Serves `exports`; with `tls`, to no client that does not ask for TLS.
    pub fn new(
        exports: Exports,
        tls: Option<Arc<ServerConfig>>,
        limits: ServerLimits,
    ) -> Arc<Self> {
        Arc::new(Self {
            exports,
            tls,
            memory: Memory::new(limits.request_bytes_max),
            limits,
            clients: Mutex::default(),
            client_left: Condvar::new(),
            numbers: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Takes clients from `listener`, on a thread of its own, until [`stop`](Self::stop).
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn listen(self: &Arc<Self>, listener: &Arc<Listener>) -> crate::Result<()> {
        let (server, listener) = (self.clone(), listener.clone());
        std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || {
                while let Some(socket) = listener.accept() {
                    server.welcome(socket);
                }
            })
            .map(drop)
            .map_err(|source| crate::Error::Host {
                what: "cannot start a thread".into(),
                source,
            })
    }

    fn welcome(self: &Arc<Self>, socket: Socket) {
        let Ok(stream) = ClientStream::new(socket) else {
            return;
        };
        let stream = Arc::new(stream);
        let number = self.numbers.fetch_add(1, SeqCst);
        let mut clients = self.clients.lock();
        if clients.served.len() >= self.limits.connections_max || self.is_stopping.load(SeqCst) {
            tracing::warn!(
                "a client is turned away: there are {} already",
                clients.served.len()
            );
            return stream.close();
        }
        clients.served.insert(number, stream.clone());
        drop(clients);
        let attendance = Attendance {
            server: self.clone(),
            number,
            stream,
        };
        let started = std::thread::Builder::new()
            .name("nbd-0".into())
            .spawn(move || {
                let attendance = attendance;
                let stream = attendance.stream.clone();
                attendance.server.attend(number, stream);
            });
        if let Err(error) = started {
            tracing::warn!("a client is turned away: {error}");
        }
    }

    /// A client from its first byte to its last. Its [`Attendance`] closes the stream.
    fn attend(&self, number: u64, stream: Arc<ClientStream>) {
        match self.negotiate(&stream) {
            Ok(Some((agreement, input))) => {
                stream.allow_stalls(self.limits.stall_max);
                let (memory, threads) = (self.memory.clone(), self.limits.threads.max(1));
                Connection::serve(stream, agreement, memory, &input, threads);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("client {number} ends in its handshake: {error}"),
        }
    }

    fn negotiate(&self, stream: &ClientStream) -> std::io::Result<Option<(Agreement, Vec<u8>)>> {
        let deadline = stream.deadline(HANDSHAKE_BYTES);
        let policy = if self.tls.is_some() {
            TlsPolicy::Required
        } else {
            TlsPolicy::Off
        };
        let mut out = Vec::new();
        let mut handshake = Handshake::begin(self.exports.clone(), policy, &mut out);
        let mut input: Vec<u8> = Vec::new();
        let mut more = vec![0; 16 << 10];
        loop {
            let mut rest = &input[..];
            let step = handshake.take(&mut rest, &mut out);
            let taken = input.len() - rest.len();
            input.drain(..taken);
            if !out.is_empty() {
                stream.send(&mut [std::io::IoSlice::new(&out)])?;
                out.clear();
            }
            match (step, &self.tls) {
                (Step::More, _) => match stream.receive(&mut more, Some(deadline))? {
                    0 => return Ok(None),
                    count => input.extend(&more[..count]),
                },
                (Step::StartTls, Some(config)) => {
                    stream.start_tls(config.clone(), deadline)?;
                    handshake = handshake.within_tls();
                }
                (Step::Transmit(agreement), _) => return Ok(Some((agreement, input))),
                (Step::StartTls | Step::End, _) => return Ok(None),
            }
        }
    }

    /// Clients that are served now.
    pub fn clients(&self) -> usize {
        self.clients.lock().served.len()
    }

    /// Ends all connections: what was received whole is carried out and answered. The listeners must have been closed.
    pub fn stop(&self) {
        let mut clients = self.clients.lock();
        self.is_stopping.store(true, SeqCst);
        let streams = clients.served.values();
        streams.for_each(|stream| stream.stop_receiving());
        let until = Instant::now() + STOPPING_MAX;
        while !clients.served.is_empty() || clients.closing > 0 {
            if self.client_left.wait_until(&mut clients, until).timed_out() {
                clients.served.values().for_each(|stream| stream.close());
                break;
            }
        }
    }
}

/// Signs a client off and closes its stream, however it ends. A client that sees its end, and connects again at once,
/// finds its place free.
struct Attendance {
    server: Arc<Server>,
    number: u64,
    stream: Arc<ClientStream>,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut clients = self.server.clients.lock();
        clients.served.remove(&self.number);
        clients.closing += 1;
        drop(clients);
        self.stream.close();
        self.server.clients.lock().closing -= 1;
        self.server.client_left.notify_all();
    }
}
