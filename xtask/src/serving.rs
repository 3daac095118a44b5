//! NBD servers under test or measurement: started with a socket in a folder, ended when dropped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running server.
pub struct TestServer {
    child: Child,
    /// The address for clients.
    pub uri: String,
    /// TCP port, or 0.
    pub port: u16,
}

impl TestServer {
    /// Starts our program, over a raw file.
    ///
    /// # Errors
    /// The server does not start.
    pub fn onefold(program: &Path, file: &Path, folder: &Path) -> Result<Self, String> {
        let socket = folder.join("onefold.sock");
        let mut command = Command::new(program);
        command
            .args(["volume", "serve", "-q", "--raw"])
            .arg(file)
            .arg("--unix")
            .arg(&socket);
        Self::start(command, &socket, "raw")
    }

    /// Makes a depot with room for three times its volume, and starts our program with it.
    ///
    /// # Errors
    /// The server does not start.
    pub fn depot(program: &Path, mib: u64, folder: &Path) -> Result<Self, String> {
        let (depot, socket) = (folder.join("depot"), folder.join("depot.sock"));
        let mut create = Command::new(program);
        create.args(["volume", "create", "-q"]).arg(&depot);
        create.args(["--size", &format!("{mib}M")]);
        create.args(["--capacity", &format!("{}M", 3 * mib)]);
        let status = create.status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("volume create: {status}"));
        }
        let mut command = Command::new(program);
        command.args(["volume", "serve", "-q"]).arg(&depot);
        command.arg("--unix").arg(&socket);
        Self::start(command, &socket, "main")
    }

    /// Starts our program with TLS, for clients with a certificate, at a free port of this host. The folder holds the
    /// certificates.
    ///
    /// # Errors
    /// The server does not start.
    pub fn onefold_tls(program: &Path, file: &Path, folder: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command
            .args(["volume", "serve", "--json", "--tcp", "127.0.0.1:0", "--raw"])
            .arg(file);
        for (flag, name) in [
            ("--tls-cert", "server-cert.pem"),
            ("--tls-key", "server-key.pem"),
            ("--tls-ca", "ca-cert.pem"),
        ] {
            command.arg(flag).arg(folder.join(name));
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut line)
                .map_err(|error| error.to_string())?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let uri = said["uris"][0].as_str().unwrap_or_default().to_owned();
        let port = uri
            .rsplit(':')
            .next()
            .and_then(|rest| rest.split('/').next()?.parse().ok());
        let port = port.ok_or_else(|| format!("the server prints no port: {line}"))?;
        Ok(Self { child, uri, port })
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts QEMU's server on the same file, past the page cache as well.
    ///
    /// # Errors
    /// The server does not start.
    pub fn qemu(file: &Path, folder: &Path) -> Result<Self, String> {
        let socket = folder.join("qemu.sock");
        let mut command = Command::new("qemu-nbd");
        command.args([
            "--persistent",
            "--shared=8",
            "--format=raw",
            "--cache=none",
            "--aio=native",
        ]);
        command
            .arg("--discard=unmap")
            .arg("--socket")
            .arg(&socket)
            .arg(file);
        Self::start(command, &socket, "")
    }

    /// Starts nbdkit's server of memory, which shows the limit of the socket.
    ///
    /// # Errors
    /// The server does not start.
    pub fn nbdkit(mib: u64, folder: &Path) -> Result<Self, String> {
        let socket = folder.join("nbdkit.sock");
        let mut command = Command::new("nbdkit");
        command
            .arg("-f")
            .arg("-U")
            .arg(&socket)
            .arg("memory")
            .arg(format!("{mib}M"));
        Self::start(command, &socket, "")
    }

    fn start(mut command: Command, socket: &PathBuf, export: &str) -> Result<Self, String> {
        let _ = std::fs::remove_file(socket);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
        let mut server = Self {
            child,
            uri,
            port: 0,
        };
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{name}: {status}"));
            }
            if start.elapsed() > Duration::from_secs(30) {
                return Err(format!("{name} does not listen"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The first line of a program's `--version`.
pub fn version(program: &str) -> String {
    let said = Command::new(program).arg("--version").output();
    let text = said.map_or_else(|error| error.to_string().into_bytes(), |said| said.stdout);
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_string()
}
