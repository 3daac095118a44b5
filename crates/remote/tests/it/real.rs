//! The same over a real server: versitygw, whose program `ONEFOLD_VERSITYGW` names (`cargo xtask test` installs it).

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use onefold_io::MemDir;
use onefold_remote::doctor::{self, Extent, Verdict};
use onefold_store::conformance;

use crate::fake::BUCKET;
use crate::fixture::{SECRET, USER, connect, location, options};
use crate::told::not_tested;

/// A running server, over a folder of its own; it ends when this is dropped.
struct Server {
    child: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `None` where there is no such program.
    fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("ONEFOLD_VERSITYGW").map(PathBuf::from) else {
            not_tested("over versitygw, as ONEFOLD_VERSITYGW names none");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let [buckets, about] = ["buckets", "about"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(buckets.join(BUCKET)).expect("a bucket's folder");
        std::fs::create_dir_all(&about).expect("a folder");
        let port = free_port();
        let child = Command::new(program)
            .args(["--quiet", "--access", USER, "--secret", SECRET])
            .args(["--port", &format!("127.0.0.1:{port}")])
            .args(["posix", "--sidecar"])
            .args([&about, &buckets])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("versitygw starts");
        let server = Self {
            child,
            endpoint: format!("http://127.0.0.1:{port}"),
            _folder: folder,
        };
        // It says nothing when it is ready: it is when it takes connections.
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
    listener.local_addr().expect("it has one").port()
}

#[test]
fn objects_are_as_the_trait_promises() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut made = 0;
    conformance::objects(&mut || {
        made += 1;
        let remote = connect(&server.endpoint, &format!("p{made}"), made);
        remote.place(std::sync::Arc::new(MemDir::new())).objects
    });
}

#[test]
fn sessions_and_locks_are_as_the_trait_promises() {
    let Some(server) = Server::start() else {
        return;
    };
    let (made, prefix) = (AtomicU64::new(0), AtomicU64::new(0));
    let connect = |prefix: u64| {
        let seed = made.fetch_add(1, Relaxed);
        let remote = connect(&server.endpoint, &format!("p{prefix}"), seed);
        remote.place(std::sync::Arc::new(MemDir::new()))
    };
    conformance::registry(&mut || connect(prefix.fetch_add(1, Relaxed) + 1), &|_| {
        connect(prefix.load(Relaxed))
    });
}

#[test]
fn the_doctor_finds_nothing_against_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let location = location(&server.endpoint, "p");
    let found = doctor::examine(&location, &options(1), Extent::Full, &mut |_| {});
    let found = found.expect("it can be reached");
    assert_eq!(doctor::verdict(&found), Verdict::Good, "{found:?}");
}
