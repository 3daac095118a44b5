//! The control socket of a daemon: one JSON object a line, and one in answer (FORMAT.md, "Control socket").

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::process::DYING_MAX;
use crate::socket_path::SocketPath;
use crate::{Error, Listener, Result};

/// Version of the requests and answers.
pub const VERSION: u64 = 1;
/// A longer line is no request.
pub const LINE_BYTES_MAX: u64 = 64 << 10;
/// Time without a byte after which a client is cut off.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A client that waits for an answer gets a space after each of these times: JSON allows it before the answer, and the
/// client sees that the process lives.
const ALIVE_AFTER: Duration = Duration::from_secs(2);
/// Time without a byte after which a daemon counts as one that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Interval between two tries to ask a daemon that dies.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Clients at once; more are turned away. Each costs a descriptor and two threads.
const CLIENTS_MAX: usize = 32;

/// Interval at which a stream that its client does not take looks whether it is to end. Such a client may wait for a store
/// elsewhere.
pub const STREAM_LOOK: Duration = Duration::from_secs(1);

/// A daemon's answer to a request.
pub type Answer = std::result::Result<Value, Refusal>;

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, in words.
    pub what: String,
    /// The exit code that a program ends with that did the same without a daemon.
    pub exit: u8,
}

impl From<String> for Refusal {
    fn from(what: String) -> Self {
        Self { what, exit: 1 }
    }
}

/// Carries out requests.
pub trait Handler: Send + Sync + 'static {
    /// Does what `what` names, with the request's other fields.
    ///
    /// # Errors
    /// Why it was not done.
    fn handle(&self, what: &str, request: &Value) -> Answer;

    /// Sends what follows the answer to a request that was carried out: by default nothing. A write to `out` that its
    /// client does not take ends with a timeout after [`STREAM_LOOK`], and may be tried again.
    fn follow(&self, what: &str, request: &Value, out: &mut dyn Write) {
        let _ = (what, request, out);
    }
}

/// A control socket that is served.
pub struct ControlServer {
    listener: Arc<Listener>,
    /// Held for reading from a request's arrival until its answer is sent.
    answering: Arc<RwLock<()>>,
}

impl ControlServer {
    /// Takes no more clients, and waits until requests that have come are answered.
    pub fn end(&self) {
        self.listener.close();
        drop(self.answering.write());
    }
}

/// Serves requests that come to `listener`, on threads of its own, until [`ControlServer::end`].
///
/// # Errors
/// The system has no thread left.
pub fn serve(listener: &Arc<Listener>, handler: Arc<dyn Handler>) -> Result<ControlServer> {
    let control = ControlServer {
        listener: listener.clone(),
        answering: Arc::default(),
    };
    let (listener, answering) = (listener.clone(), control.answering.clone());
    let taken = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            while let Some(socket) = listener.accept_unix() {
                let (handler, answering) = (handler.clone(), answering.clone());
                let Some(slot) = ClientSlot::take(&taken) else {
                    turn_away(&socket);
                    continue;
                };
                let _ = std::thread::Builder::new()
                    .name("control-client".into())
                    .spawn(move || {
                        let _slot = slot;
                        attend(&socket, &*handler, &answering)
                    });
            }
        })
        .map_err(|source| Error::Host {
            what: "cannot start a thread".into(),
            source,
        })?;
    Ok(control)
}

/// One of the clients that are served at once.
struct ClientSlot(Arc<AtomicUsize>);

impl ClientSlot {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        // Dropping a slot gives it back, also where there are too many.
        let slot = Self(taken.clone());
        (taken.fetch_add(1, SeqCst) < CLIENTS_MAX).then_some(slot)
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Tells a client that there are too many, where its socket takes that at once.
fn turn_away(socket: &UnixStream) {
    let why = format!("the process serves {CLIENTS_MAX} questions at once; ask again later");
    let _ = socket.set_nonblocking(true);
    let _ = writeln!(&*socket, "{}", refusal(&why.into()));
}

/// A client, until it leaves or sends what is no line.
fn attend(socket: &UnixStream, handler: &dyn Handler, answering: &RwLock<()>) -> Option<()> {
    socket.set_read_timeout(Some(SILENCE_MAX)).ok()?;
    socket.set_write_timeout(Some(SILENCE_MAX)).ok()?;
    let mut input = BufReader::new(socket);
    loop {
        let mut line = Vec::new();
        let count = input
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .ok()?;
        if count == 0 || line.last() != Some(&b'\n') {
            return None;
        }
        let _until_sent = answering.read();
        let answer = alive_until(socket, || answer(&line, handler));
        writeln!(&*socket, "{answer}").ok()?;
        if answer["ok"] == true {
            let request: Value = serde_json::from_slice(&line).ok()?;
            socket.set_write_timeout(Some(STREAM_LOOK)).ok()?;
            let what = request["do"].as_str().unwrap_or_default();
            handler.follow(what, &request, &mut &*socket);
            socket.set_write_timeout(Some(SILENCE_MAX)).ok()?;
        }
    }
}

/// Works, and lets the client see meanwhile that it is worked.
fn alive_until<T>(socket: &UnixStream, work: impl FnOnce() -> T) -> T {
    let (ends, has_ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Without the thread the client is told nothing until the answer is there.
        let _ = std::thread::Builder::new()
            .name("control-alive".into())
            .spawn_scoped(scope, move || {
                let mut out = socket;
                while has_ended.recv_timeout(ALIVE_AFTER) == Err(RecvTimeoutError::Timeout)
                    && out.write_all(b" ").is_ok()
                {}
            });
        let done = work();
        drop(ends);
        done
    })
}

fn refusal(why: &Refusal) -> Value {
    json!({"version": VERSION, "ok": false, "error": why.what, "exit": why.exit})
}

fn misunderstood(why: &str) -> Value {
    refusal(&why.to_owned().into())
}

/// The answer to one line.
pub fn answer(line: &[u8], handler: &dyn Handler) -> Value {
    let Ok(request) = serde_json::from_slice::<Value>(line) else {
        return misunderstood("the line is no JSON object");
    };
    if request["version"] != VERSION {
        return misunderstood("this daemon speaks version 1");
    }
    let Some(what) = request["do"].as_str() else {
        return misunderstood("there is no field \"do\"");
    };
    match handler.handle(what, &request) {
        Ok(result) => json!({"version": VERSION, "ok": true, "result": result}),
        Err(why) => refusal(&why),
    }
}

/// Asks the daemon at `path`. `None`: no daemon listens there, or one that dies: its socket takes clients until it is
/// dead, and is asked again until then, unless it read the request.
///
/// # Errors
/// [`Error::Refused`] with the daemon's own words where it refuses; [`Error::Host`] where it does not answer.
pub fn ask(path: &Path, what: &str, fields: Value) -> Result<Option<Value>> {
    let answered = ask_for_stream(path, what, fields)?;
    Ok(answered.map(|(answer, _)| answer))
}

/// Asks the daemon at `path` for something that a stream follows. `None`: no daemon listens there.
///
/// # Errors
/// As of [`ask`].
pub fn ask_for_stream(
    path: &Path,
    what: &str,
    fields: Value,
) -> Result<Option<(Value, BufReader<UnixStream>)>> {
    ask_within(path, what, fields, ANSWER_MAX)
}

/// The same, of a daemon that may be silent for `silence_max`.
fn ask_within(
    path: &Path,
    what: &str,
    fields: Value,
    silence_max: Duration,
) -> Result<Option<(Value, BufReader<UnixStream>)>> {
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Busy {
            what: format!(
                "the process that listens at {} has not answered for {} s: it is stopped, or waits for a disk; \
                 let it go on (kill -CONT) or end it, and try again",
                path.display(),
                silence_max.as_secs()
            ),
        },
        _ => Error::Host {
            what: format!("the daemon at {} does not answer", path.display()),
            source,
        },
    };
    let mut request = fields;
    request["version"] = VERSION.into();
    request["do"] = what.into();
    let began = Instant::now();
    let (line, stream) = loop {
        match ask_once(path, &request, silence_max).map_err(fail)? {
            RequestOutcome::Answered(line, stream) => break (line, stream),
            RequestOutcome::Nobody => return Ok(None),
            RequestOutcome::Lost(error) if began.elapsed() >= DYING_MAX => return Err(fail(error)),
            RequestOutcome::Lost(_) => std::thread::sleep(ASK_AGAIN),
        }
    };
    stream.get_ref().set_read_timeout(None).map_err(fail)?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|error| fail(io::Error::other(error)))?;
    match answer["ok"].as_bool() {
        Some(true) => Ok(Some((answer["result"].clone(), stream))),
        _ => Err(Error::Refused {
            what: answer["error"]
                .as_str()
                .unwrap_or("it gives no reason")
                .to_owned(),
            exit: (answer["exit"].as_u64())
                .and_then(|exit| u8::try_from(exit).ok())
                .unwrap_or(1),
        }),
    }
}

/// How a request ended.
enum RequestOutcome {
    /// The line that the daemon sent, and the stream behind it.
    Answered(String, BufReader<UnixStream>),
    /// Nobody listens.
    Nobody,
    /// The connection ended before the request was read: the daemon dies.
    Lost(io::Error),
}

/// Sends a request once, and reads the line that answers it.
fn ask_once(path: &Path, request: &Value, silence_max: Duration) -> io::Result<RequestOutcome> {
    let socket = match connect(path, silence_max) {
        Ok(socket) => socket,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
        Err(_) => return Ok(RequestOutcome::Nobody),
    };
    // A daemon that turns a client away may have closed the socket already, behind its answer.
    let sent = match writeln!(&socket, "{request}") {
        Err(error) if !is_end(&error) => return Err(error),
        sent => sent,
    };
    let mut line = String::new();
    let mut stream = BufReader::new(socket);
    match stream.read_line(&mut line) {
        // The request was read, and may have been carried out, where the connection ends in order.
        Ok(0) => sent.map_or_else(
            |error| Ok(RequestOutcome::Lost(error)),
            |()| Err(io::ErrorKind::UnexpectedEof.into()),
        ),
        Ok(_) => Ok(RequestOutcome::Answered(line, stream)),
        Err(error) if line.is_empty() && is_end(&error) => Ok(RequestOutcome::Lost(error)),
        Err(error) => Err(error),
    }
}

/// Whether the error says that the other side has ended the connection.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Connects, and bounds each wait. The system has a client wait where many wait already that nobody has taken.
fn connect(path: &Path, wait_max: Duration) -> io::Result<UnixStream> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_write_timeout(Some(wait_max))?;
    socket.set_read_timeout(Some(wait_max))?;
    let path = SocketPath::of(path)?;
    socket.connect(&socket2::SockAddr::unix(&path)?)?;
    Ok(OwnedFd::from(socket).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Handler for Echo {
        fn handle(&self, what: &str, request: &Value) -> Answer {
            match what {
                "echo" => Ok(request["text"].clone()),
                "ponder" => {
                    std::thread::sleep(ALIVE_AFTER * 4);
                    Ok("done".into())
                }
                _ => Err(format!("there is no \"{what}\"").into()),
            }
        }
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        let said = |line: &str| answer(line.as_bytes(), &Echo);
        let fine = said(r#"{"version":1,"do":"echo","text":"hello"}"#);
        assert_eq!(fine, json!({"version": 1, "ok": true, "result": "hello"}));
        for (line, why) in [
            ("what", "the line is no JSON object"),
            ("[1]", "this daemon speaks version 1"),
            (
                r#"{"version":2,"do":"echo"}"#,
                "this daemon speaks version 1",
            ),
            (r#"{"version":1}"#, "there is no field \"do\""),
            (r#"{"version":1,"do":"sing"}"#, "there is no \"sing\""),
        ] {
            assert_eq!(
                said(line),
                json!({"version": 1, "ok": false, "error": why, "exit": 1}),
                "{line}"
            );
        }
    }

    #[test]
    fn a_daemon_that_is_stopped_is_not_waited_for_and_one_that_works_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stopped");
        // Nobody takes its clients, as in a process that is stopped: the system does.
        let stopped = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let second = Duration::from_secs(1);
        let error = ask_within(&path, "echo", json!({}), second).expect_err("no answer");
        assert!(matches!(error, Error::Busy { .. }), "{error:?}");
        assert!(error.to_string().contains("has not answered"), "{error}");
        drop(stopped);
        let path = folder.path().join("control");
        let listener = Arc::new(Listener::unix(&path).expect("a socket"));
        let control = serve(&listener, Arc::new(Echo)).expect("a thread");
        let heard = ask_within(&path, "ponder", json!({}), ALIVE_AFTER * 3).expect("an answer");
        assert_eq!(heard.expect("it listens").0, "done");
        control.end();
    }

    #[test]
    fn a_daemon_that_dies_is_none_unless_it_was_at_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dying");
        let listen = || std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let listener = listen();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&path, "echo", json!({})));
            // The connection ends twice before anything is read, and then nobody listens.
            for _ in 0..2 {
                drop(listener.accept().expect("a client"));
            }
            drop(listener);
            let heard = asked.join().expect("no panic").expect("nobody is there");
            assert_eq!(heard, None);
        });
        std::fs::remove_file(&path).expect("it is left");
        let listener = listen();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&path, "echo", json!({})));
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b" ").expect("it waits");
            drop(client);
            let error = asked.join().expect("no panic").expect_err("it was at work");
            assert!(matches!(error, Error::Host { .. }), "{error:?}");
            // A request that was read may have been carried out: it is not made again.
            let asked = scope.spawn(|| ask(&path, "echo", json!({})));
            let (client, _) = listener.accept().expect("a client");
            let mut request = String::new();
            (BufReader::new(client).read_line(&mut request)).expect("a request");
            let error = asked.join().expect("no panic").expect_err("it was read");
            assert!(matches!(error, Error::Host { .. }), "{error:?}");
        });
    }

    #[test]
    fn no_more_clients_are_served_at_once_than_there_are_places() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = Arc::new(Listener::unix(&path).expect("a socket"));
        let control = serve(&listener, Arc::new(Echo)).expect("a thread");
        let idle: Vec<_> = (0..CLIENTS_MAX)
            .map(|_| UnixStream::connect(&path).expect("it listens"))
            .collect();
        let error = ask(&path, "echo", json!({})).expect_err("turned away");
        assert!(error.to_string().contains("ask again later"), "{error}");
        drop(idle);
        let asked = || ask(&path, "echo", json!({"text": "hello"}));
        while asked().is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        control.end();
    }

    #[test]
    fn a_daemon_is_asked_over_its_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        assert!(
            ask(&path, "echo", json!({}))
                .expect("nobody is there")
                .is_none()
        );
        let listener = Arc::new(Listener::unix(&path).expect("a socket"));
        let control = serve(&listener, Arc::new(Echo)).expect("a thread");
        let heard = ask(&path, "echo", json!({"text": "hello"})).expect("an answer");
        assert_eq!(heard, Some("hello".into()));
        let error = ask(&path, "sing", json!({})).expect_err("refused");
        assert_eq!(error.to_string(), "there is no \"sing\"");
        control.end();
    }
}
