//! `onefold volume attach`: a block device of this host, for any file system.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use onefold_export::attach::{self, Via};
use onefold_export::control;
use onefold_store::Secret;
use serde_json::{Value, json};

use super::filling::WhenFilling;
use super::source::{NamedVolume, open_folder};
use super::unlocking;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;

/// Make a volume a block device of this host
///
/// Starts a process that serves the device, prints the device, and returns. The device goes when that process ends:
/// `onefold volume detach` ends it. What a file system has not flushed is lost when the process is killed, as with a
/// power cut.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub named: NamedVolume,

    /// Volume of the depot (default: the first one)
    #[arg(long, value_name = "NAME", conflicts_with = "raw")]
    pub volume: Option<String>,

    /// Refuse writes to a raw file
    #[arg(long, requires = "raw", conflicts_with = "depot")]
    pub read_only: bool,

    /// RAM for the index, the map and caches of a depot; the process takes some 48 MiB besides (default: a byte for
    /// each 4 KiB of the data device, and 64 MiB at least)
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, conflicts_with = "raw")]
    pub ram: Option<u64>,

    /// How the kernel is given the device; auto takes the first that is there
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub via: WayToKernel,

    #[command(flatten)]
    pub when_filling: WhenFilling,

    /// Serve in this process, until SIGTERM or `detach`
    #[arg(long)]
    pub foreground: bool,

    /// The process that another `attach` has started
    #[arg(long, hide = true)]
    pub daemon: bool,

    /// Take the depot's password from standard input: from that other `attach`
    #[arg(long, hide = true, requires = "daemon")]
    pub password_on_stdin: bool,
}

/// Ways to the kernel.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum WayToKernel {
    /// The first that is there
    Auto,
    /// The driver ublk
    Ublk,
    /// The driver nbd
    Nbd,
    /// FUSE and a loop device
    Fuse,
}

impl From<WayToKernel> for Via {
    fn from(way: WayToKernel) -> Self {
        match way {
            WayToKernel::Auto => Via::Auto,
            WayToKernel::Ublk => Via::Only(attach::Transport::Ublk),
            WayToKernel::Nbd => Via::Only(attach::Transport::Nbd),
            WayToKernel::Fuse => Via::Only(attach::Transport::Fuse),
        }
    }
}

impl Args {
    /// Whether this process serves the device, and starts no other that does.
    pub fn serves_itself(&self) -> bool {
        self.daemon || self.foreground
    }
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    Via::from(args.via).check()?;
    if !rustix::process::geteuid().is_root() {
        let what = "only root can make a block device: run it with sudo, or serve it to programs with `onefold volume serve --unix`".into();
        return Err(Error::Export(onefold_export::Error::Missing { what }));
    }
    let control = args.named.control()?;
    let fail = |error| Error::io("cannot start the device's process", error);
    let own = std::env::current_exe().map_err(fail)?;
    let password = password(args)?;
    let stdin = if password.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = Command::new(own)
        .args(std::env::args_os().skip(1))
        .arg("--daemon")
        .args(password.as_ref().map(|_| "--password-on-stdin"))
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    if let (Some(mut stdin), Some(password)) = (child.stdin.take(), password) {
        // A process that has ended says why.
        let _ = stdin.write_all(password.bytes());
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(fail)?;
    }
    let Ok(attached) = serde_json::from_str::<Value>(&line) else {
        return failed(child, out);
    };
    if out.json {
        out.json(&attached)?;
        return Ok(Exit::Ok);
    }
    out.line(attached["device"].as_str().unwrap_or_default())?;
    if out.verbosity > 0 {
        out.note(format_args!(
            "{}; its control socket is {}",
            attached["why"].as_str().unwrap_or_default(),
            control.display()
        ));
    }
    for warning in attached["warnings"].as_array().into_iter().flatten() {
        out.warn(warning.as_str().unwrap_or_default());
    }
    Ok(Exit::Ok)
}

/// The password for the process that is started: it has no terminal to ask at.
fn password(args: &Args) -> Result<Option<Secret>> {
    let Some(folder) = args.named.folder() else {
        return Ok(None);
    };
    let is_in_use = control::ask(&args.named.control()?, "status", json!({}))?.is_some();
    if is_in_use {
        // The process that is started says so.
        return Ok(None);
    }
    unlocking::password_of(folder, &open_folder(folder)?)
}

/// Says what the child has said, and ends as it did.
fn failed(mut child: std::process::Child, out: &Out) -> Result<Exit> {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child
        .wait()
        .map_err(|error| Error::io("wait for the device's process", error))?;
    out.flush()?;
    eprint!("{said}");
    Ok(Exit::of_code(status.code()))
}
