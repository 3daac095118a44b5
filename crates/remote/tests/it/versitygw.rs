//! A real server of S3, versitygw, as a process of its own on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::untested::not_tested;

/// Ports that are tried for one server: another program may take a port that was free a moment ago.
const PORTS: usize = 5;
/// Name of the user.
pub const USER: &str = "tester";
/// Secret key, which signs requests.
pub const SECRET: &str = "open sesame";
/// The bucket.
pub const BUCKET: &str = "bucket";

/// A running server, over a folder of its own; it ends when this is dropped.
pub struct Server {
    child: Child,
    pub endpoint: String,
    /// The folder in which each bucket is a folder.
    #[allow(dead_code, reason = "not every crate looks into it")]
    pub buckets: PathBuf,
    _folder: tempfile::TempDir,
}

/// The way in which a server runs.
enum Kind<'a> {
    /// Over HTTP, tags beside the bytes.
    Usual,
    /// Over HTTP, tags in files of their own.
    Sidecar,
    /// Over TLS with this certificate and key.
    Tls(&'a Path, &'a Path),
}

impl Server {
    /// `None` where there is no such program, or the folder for temporary files has no extended attributes.
    pub fn start() -> Option<Self> {
        Self::start_as(&Kind::Usual)
    }

    /// The same, with tags in files of their own, apart from the bytes: readings may mix two versions.
    #[allow(dead_code, reason = "not every crate asks for it")]
    pub fn start_with_sidecar() -> Option<Self> {
        Self::start_as(&Kind::Sidecar)
    }

    /// The same over TLS, with a certificate and its key.
    #[allow(dead_code, reason = "not every crate asks for it")]
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Option<Self> {
        Self::start_as(&Kind::Tls(certificate, key))
    }

    fn start_as(kind: &Kind<'_>) -> Option<Self> {
        let has_sidecar = matches!(kind, Kind::Sidecar);
        let Some(program) = std::env::var_os("ONEFOLD_VERSITYGW").map(PathBuf::from) else {
            not_tested("over versitygw, as ONEFOLD_VERSITYGW names none");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let [buckets, about] = ["buckets", "about"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(buckets.join(BUCKET)).expect("a bucket's folder");
        std::fs::create_dir_all(&about).expect("a folder");
        if !has_sidecar && !has_attributes(&buckets) {
            not_tested("over versitygw, as temporary files have no extended attributes");
            return None;
        }
        let (child, port) = (0..PORTS)
            .find_map(|_| start_process(&program, kind, &buckets, &about))
            .expect("versitygw runs on one of the ports");
        let scheme = if matches!(kind, Kind::Tls(..)) {
            "https"
        } else {
            "http"
        };
        Some(Self {
            child,
            endpoint: format!("{scheme}://127.0.0.1:{port}"),
            buckets,
            _folder: folder,
        })
    }
}

/// Starts the program on a free port, and returns it with its port once it takes connections. `None`: it has ended, as
/// it does where another program has taken the port meanwhile.
fn start_process(
    program: &Path,
    kind: &Kind<'_>,
    buckets: &Path,
    about: &Path,
) -> Option<(Child, u16)> {
    let port = free_port();
    let mut command = Command::new(program);
    command
        .args(["--quiet", "--access", USER, "--secret", SECRET])
        .args(["--port", &format!("127.0.0.1:{port}")]);
    if let Kind::Tls(certificate, key) = kind {
        command.arg("--cert").arg(certificate);
        command.arg("--key").arg(key);
    }
    command.arg("posix").env_remove("VGW_PORT");
    if matches!(kind, Kind::Sidecar) {
        command.arg("--sidecar").arg(about);
    }
    let mut child = command
        .arg(buckets)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("versitygw starts");
    // The server prints nothing when it is ready: it is ready when it listens.
    while !listens(&child, port) {
        if child.try_wait().expect("it is ours").is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some((child, port))
}

/// Whether this process, and no other program, listens on the port.
fn listens(process: &Child, port: u16) -> bool {
    let about = Path::new("/proc").join(process.id().to_string());
    let sockets = std::fs::read_to_string(about.join("net/tcp")).unwrap_or_default();
    let is_own = |socket: &str| {
        let files = std::fs::read_dir(about.join("fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|at| at == Path::new(socket)))
    };
    let listening = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, address, _, "0A", _, _, _, _, _, inode, ..] = fields[..] else {
            return false;
        };
        address.ends_with(&format!(":{port:04X}")) && is_own(&format!("socket:[{inode}]"))
    };
    sockets.lines().any(listening)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_attributes(folder: &Path) -> bool {
    let set = rustix::fs::setxattr(folder, "user.test", b"1", rustix::fs::XattrFlags::empty());
    set.is_ok()
}

/// One that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
    listener.local_addr().expect("it has one").port()
}
