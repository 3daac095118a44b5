//! The control socket of a daemon: one JSON object a line, and one in answer (FORMAT.md, "Control socket").

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::{Error, Listener, Result};

/// Version of the requests and answers.
pub const VERSION: u64 = 1;
/// A longer line is no request.
pub const LINE_BYTES_MAX: u64 = 64 << 10;
/// Time without a byte after which a client is cut off.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Interval at which a stream that its client does not take looks whether it is to end. Such a client may wait for a store
/// elsewhere.
pub const STREAM_LOOK: Duration = Duration::from_secs(1);

/// A daemon's answer: `Err` holds the reason of a refusal, in words.
pub type Answer = std::result::Result<Value, String>;

/// Carries out requests.
pub trait Handler: Send + Sync + 'static {
    /// Does what `what` names, with the request's other fields.
    ///
    /// # Errors
    /// Why it was not done, in words.
    fn handle(&self, what: &str, request: &Value) -> Answer;

    /// Sends what follows the answer to a request that was carried out: by default nothing. A write to `out` that its
    /// client does not take ends with a timeout after [`STREAM_LOOK`], and may be tried again.
    fn follow(&self, what: &str, request: &Value, out: &mut dyn Write) {
        let _ = (what, request, out);
    }
}

/// A control socket that is served.
pub struct Control {
    listener: Arc<Listener>,
    /// Held for reading from a request's arrival until its answer is sent.
    answering: Arc<RwLock<()>>,
}

impl Control {
    /// Takes no more clients, and waits until requests that have come are answered.
    pub fn end(&self) {
        self.listener.close();
        drop(self.answering.write());
    }
}

/// Serves requests that come to `listener`, on threads of its own, until [`Control::end`].
///
/// # Errors
/// The system has no thread left.
pub fn serve(listener: &Arc<Listener>, handler: Arc<dyn Handler>) -> Result<Control> {
    let control = Control {
        listener: listener.clone(),
        answering: Arc::default(),
    };
    let (listener, answering) = (listener.clone(), control.answering.clone());
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            while let Some(socket) = listener.accept_unix() {
                let (handler, answering) = (handler.clone(), answering.clone());
                let _ = std::thread::Builder::new()
                    .name("control-client".into())
                    .spawn(move || attend(&socket, &*handler, &answering));
            }
        })
        .map_err(|source| Error::Host {
            what: "cannot start a thread".into(),
            source,
        })?;
    Ok(control)
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
        let answer = answer(&line, handler);
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

/// The answer to one line.
pub fn answer(line: &[u8], handler: &dyn Handler) -> Value {
    let refuse = |why: &str| json!({"version": VERSION, "ok": false, "error": why});
    let Ok(request) = serde_json::from_slice::<Value>(line) else {
        return refuse("the line is no JSON object");
    };
    if request["version"] != VERSION {
        return refuse("this daemon speaks version 1");
    }
    let Some(what) = request["do"].as_str() else {
        return refuse("there is no field \"do\"");
    };
    match handler.handle(what, &request) {
        Ok(result) => json!({"version": VERSION, "ok": true, "result": result}),
        Err(why) => refuse(&why),
    }
}

/// Asks the daemon at `path`. `None`: no daemon listens there.
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
    let Ok(socket) = UnixStream::connect(path) else {
        return Ok(None);
    };
    let mut request = fields;
    request["version"] = VERSION.into();
    request["do"] = what.into();
    let fail = |source| Error::Host {
        what: format!("the daemon at {} does not answer", path.display()),
        source,
    };
    writeln!(&socket, "{request}").map_err(fail)?;
    let mut line = String::new();
    let mut stream = BufReader::new(socket);
    stream.read_line(&mut line).map_err(fail)?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|error| fail(io::Error::other(error)))?;
    match answer["ok"].as_bool() {
        Some(true) => Ok(Some((answer["result"].clone(), stream))),
        _ => Err(Error::Refused {
            what: answer["error"]
                .as_str()
                .unwrap_or("it gives no reason")
                .to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Handler for Echo {
        fn handle(&self, what: &str, request: &Value) -> Answer {
            match what {
                "echo" => Ok(request["text"].clone()),
                _ => Err(format!("there is no \"{what}\"")),
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
                json!({"version": 1, "ok": false, "error": why}),
                "{line}"
            );
        }
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
