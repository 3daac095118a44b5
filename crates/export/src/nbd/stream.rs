//! A client's connection as bytes: a Unix or TCP socket, bare or with TLS around it.
//!
//! One thread receives and one sends at a time; the two do not wait for each other.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};
use socket2::{SockRef, TcpKeepalive};

/// Time that a client which is silent in the middle of a message, or takes no replies, has before it is cut off, until
/// [`ClientStream::allow_stalls`] gives it more.
const STALL_MAX: Duration = Duration::from_secs(30);
/// A client has a second more for each of these bytes that it sends or takes.
pub(super) const BYTES_A_SECOND_MIN: u64 = 64 << 10;
/// A thread that waits looks at the clock after each of these times.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A client that has sent nothing for so long is asked whether it is still there: one whose host has died holds a
/// connection, its threads and its memory otherwise for ever.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// Time between two questions; the system asks nine times.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Plain bytes that are encrypted and sent at once.
const TLS_PIECE_BYTES: usize = 256 << 10;

/// A point in time by which a number of bytes must have come or gone.
#[derive(Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// The time until which this many bytes may stall for `longest`.
    fn of(bytes: u64, longest: Duration) -> Self {
        Self(Instant::now() + longest + Duration::from_secs(bytes / BYTES_A_SECOND_MIN))
    }

    /// The time after `time`.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// The earlier one.
    pub fn or(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub fn check(self) -> io::Result<()> {
        if Instant::now() < self.0 {
            Ok(())
        } else {
            Err(io::Error::new(ErrorKind::TimedOut, "the client stalls"))
        }
    }
}

/// The socket of a client.
pub enum Socket {
    /// A client of this host.
    Unix(UnixStream),
    /// A client of any host.
    Tcp(TcpStream),
}

impl Socket {
    /// Calls wait from here on.
    pub(crate) fn set_blocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(false),
            Self::Tcp(socket) => socket.set_nonblocking(false),
        }
    }

    fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(LOOK_AGAIN))?;
                socket.set_write_timeout(Some(LOOK_AGAIN))
            }
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new();
                let keepalive = keepalive.with_time(ASK_AFTER).with_interval(ASK_AGAIN);
                SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
                socket.set_read_timeout(Some(LOOK_AGAIN))?;
                socket.set_write_timeout(Some(LOOK_AGAIN))
            }
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(how),
            Self::Tcp(socket) => socket.shutdown(how),
        };
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => (&*socket).read(buf),
            Socket::Tcp(socket) => (&*socket).read(buf),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => (&*socket).write_vectored(bufs),
            Socket::Tcp(socket) => (&*socket).write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether to go on waiting after an error of a socket with timeouts.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A connection.
pub struct ClientStream {
    socket: Socket,
    tls: OnceLock<Tls>,
    stall_max_ms: AtomicU64,
}

struct Tls {
    connection: Mutex<ServerConnection>,
    /// Bytes that were received and not yet decrypted. Only the thread that receives touches them.
    received: Mutex<Received>,
}

struct Received {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ClientStream {
    /// A bare connection.
    ///
    /// # Errors
    /// The socket refuses to be set up.
    pub fn new(socket: Socket) -> io::Result<Self> {
        socket.prepare()?;
        Ok(Self {
            socket,
            tls: OnceLock::new(),
            stall_max_ms: AtomicU64::new(STALL_MAX.as_millis() as u64),
        })
    }

    /// From now on the client may stall for `longest`.
    pub fn allow_stalls(&self, longest: Duration) {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.stall_max_ms.store(longest, Ordering::Relaxed);
    }

    /// The time by which this many bytes must have come or gone.
    pub fn deadline(&self, bytes: u64) -> Deadline {
        Deadline::of(bytes, self.stall_max())
    }

    /// Time that the client may stall.
    pub fn stall_max(&self) -> Duration {
        Duration::from_millis(self.stall_max_ms.load(Ordering::Relaxed))
    }

    /// Goes through the TLS handshake, as the server.
    ///
    /// # Errors
    /// The client does not, or shows no certificate that is wanted.
    pub fn start_tls(&self, config: Arc<ServerConfig>, deadline: Deadline) -> io::Result<()> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            match connection.complete_io(&mut &self.socket) {
                Err(e) if is_timeout(&e) => deadline.check()?,
                Err(e) => {
                    // The alert tells the client why.
                    let _ = connection.write_tls(&mut &self.socket);
                    return Err(e);
                }
                Ok(_) => {}
            }
        }
        let received = Received {
            bytes: vec![0; 64 << 10],
            start: 0,
            end: 0,
        };
        let tls = Tls {
            connection: Mutex::new(connection),
            received: Mutex::new(received),
        };
        self.tls
            .set(tls)
            .map_err(|_| io::Error::other("TLS is up already"))
    }

    /// Waits for bytes, by the deadline if there is one: how many came. 0 is the end.
    ///
    /// # Errors
    /// The connection is broken; `TimedOut`.
    pub fn receive(&self, buf: &mut [u8], deadline: Option<Deadline>) -> io::Result<usize> {
        match self.tls.get() {
            None => self.receive_bare(buf, deadline),
            Some(tls) => self.receive_decrypted(tls, buf, deadline),
        }
    }

    fn receive_bare(&self, buf: &mut [u8], deadline: Option<Deadline>) -> io::Result<usize> {
        loop {
            match (&self.socket).read(buf) {
                Err(e) if is_timeout(&e) => deadline.map_or(Ok(()), Deadline::check)?,
                done => return done,
            }
        }
    }

    fn receive_decrypted(
        &self,
        tls: &Tls,
        buf: &mut [u8],
        deadline: Option<Deadline>,
    ) -> io::Result<usize> {
        let mut received = tls.received.lock();
        loop {
            let mut connection = tls.connection.lock();
            match connection.reader().read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            let Received { bytes, start, end } = &mut *received;
            if start < end {
                *start += connection.read_tls(&mut &bytes[*start..*end])?;
                connection.process_new_packets().map_err(io::Error::other)?;
                continue;
            }
            drop(connection);
            // A wait that ends without bytes leaves none behind.
            (*start, *end) = (0, 0);
            *end = self.receive_bare(bytes, deadline)?;
            if *end == 0 {
                return Ok(0);
            }
        }
    }

    /// Sends all of `parts`, one after the other.
    ///
    /// # Errors
    /// The connection is broken, or the client takes nothing: part of it may have been sent.
    pub fn send(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let Some(tls) = self.tls.get() else {
            return self.send_bare(parts);
        };
        for part in parts {
            for piece in part.chunks(TLS_PIECE_BYTES) {
                let mut sealed = Vec::new();
                let mut connection = tls.connection.lock();
                connection.set_buffer_limit(None);
                connection.writer().write_all(piece)?;
                while connection.wants_write() {
                    connection.write_tls(&mut sealed)?;
                }
                drop(connection);
                self.send_bare(&mut [IoSlice::new(&sealed)])?;
            }
        }
        Ok(())
    }

    fn send_bare(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut deadline = None;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match (&self.socket).write_vectored(parts) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(e) if is_timeout(&e) => {
                    let left = || parts.iter().map(|part| part.len() as u64).sum();
                    deadline
                        .get_or_insert_with(|| self.deadline(left()))
                        .check()?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// No more bytes are received; what is under way can still be answered.
    pub fn stop_receiving(&self) {
        self.socket.shutdown(Shutdown::Read);
    }

    /// The connection ends now.
    pub fn close(&self) {
        if let Some(tls) = self.tls.get() {
            let mut connection = tls.connection.lock();
            connection.send_close_notify();
            let _ = connection.write_tls(&mut &self.socket);
        }
        self.socket.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_client_over_tcp_that_is_silent_is_asked_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let _client = TcpStream::connect(address).expect("somebody listens");
        let (accepted, _) = listener.accept().expect("a client");
        let observed = accepted.try_clone().expect("a descriptor");
        let _stream = ClientStream::new(Socket::Tcp(accepted)).expect("it is set up");
        assert!(SockRef::from(&observed).keepalive().expect("a flag"));
    }
}
