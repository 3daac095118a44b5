//! `--on s3`: repositories in a bucket of versitygw on loopback, whose log counts each program's requests.

use std::cell::Cell;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The name of the keys.
pub const USER: &str = "benchmark";
/// The secret that signs.
pub const SECRET: &str = "open sesame";
/// The bucket.
pub const BUCKET: &str = "bench";

/// Requests of a stage, and the bytes in their bodies.
#[derive(Clone, Copy, Default, Debug)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Bytes that the program received, with their headers: those over loopback less those sent. The server's log does
    /// not say how much of an object it gave.
    pub received_bytes: u64,
    /// Bytes of the objects that the program put.
    pub sent_bytes: u64,
}

/// A running server over folders of its own; it ends when this is dropped.
pub struct S3Server {
    child: Child,
    /// Its address.
    pub address: String,
    /// The bucket's folder.
    pub bucket: PathBuf,
    log: PathBuf,
    /// Bytes over loopback when requests were last asked for.
    loopback_bytes: Cell<u64>,
}

impl S3Server {
    /// Starts a server that keeps its objects in `folder`.
    pub fn start(folder: &Path) -> Result<Self, String> {
        let program = xtask::versitygw::install()?;
        let program = program.ok_or("versitygw is not there, nor Go to build it")?;
        let buckets = folder.join("buckets");
        let bucket = buckets.join(BUCKET);
        std::fs::create_dir_all(&bucket).map_err(|error| error.to_string())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let port = listener.and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let log = folder.join("requests");
        let child = Command::new(program)
            .args(["--quiet", "--access", USER, "--secret", SECRET])
            .args(["--port", &format!("127.0.0.1:{port}")])
            .arg("--access-log")
            .arg(&log)
            .arg("posix")
            .arg(&buckets)
            .env_remove("VGW_PORT")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut server = Self {
            child,
            address: format!("127.0.0.1:{port}"),
            bucket,
            log,
            loopback_bytes: Cell::new(loopback_bytes()),
        };
        // The server says nothing when it is ready: it is ready when it takes connections.
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                let what = "the folder's file system needs extended attributes";
                return Err(format!("versitygw: {status}: {what}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// The requests since this was last asked.
    pub fn take_requests(&self) -> Requests {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        // The server appends.
        let _ = File::options().write(true).truncate(true).open(&self.log);
        let mut all = Requests::default();
        for line in log.lines() {
            let words: Vec<_> = line.split(' ').collect();
            // bucket's owner, bucket, time (two words), address, who, request, operation, key, path, status, error,
            // bytes of the answer, bytes of the object
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
            all.count += 1;
            if matches!(words.get(7), Some(&"s3_PutObject" | &"s3_UploadPart")) {
                all.sent_bytes += number(13).unwrap_or(0);
            }
        }
        let now = loopback_bytes();
        let passed = now - self.loopback_bytes.replace(now);
        all.received_bytes = passed.saturating_sub(all.sent_bytes);
        all
    }
}

/// Bytes that have passed over loopback since the machine started.
fn loopback_bytes() -> u64 {
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut lines = devices.lines().map(str::trim_start);
    let of_loopback = lines.find_map(|line| line.strip_prefix("lo:"));
    let received = of_loopback.and_then(|line| line.split_whitespace().next());
    received.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
