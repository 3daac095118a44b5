//! `onefold mount`: snapshots as a folder.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_backup::vfs::{self, Vfs};
use onefold_mount::{Mounted, Options};
use rustix::process::{getgid, getuid};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::select::FilterArgs;
use crate::{human, repository, signal, when};

/// Time between two looks whether the mount has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time between two signs of life to prunes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A folder that is in use is unmounted again and again for so long, and then taken away all the same.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// Show snapshots as a folder, to open, search and copy from
///
/// Returns when the folder is there, and serves it in the background until it is unmounted (`umount FOLDER`, or
/// `fusermount3 -u FOLDER`). In it: latest, snapshots/TIME, hosts/HOST/TIME, tags/TAG/TIME, ids/ID. New snapshots
/// appear. What it shows, no prune takes away.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// An existing folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Serve in this process, until the folder is unmounted or Ctrl-C
    #[arg(short, long)]
    pub foreground: bool,

    /// Let other users look into the folder, and see what modes and ACLs in the snapshots let them see. Who is not root
    /// needs user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub allow_other: bool,

    /// With --allow-other: let them see everything
    #[arg(long, requires = "allow_other")]
    pub no_default_permissions: bool,

    /// Append what cannot be read to this file, also when no terminal is there any more
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Set for the process that another `mount` has started.
const SERVES: &str = "_ONEFOLD_SERVES_MOUNT";

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    if let Some(why) = onefold_mount::why_not() {
        return Err(Error::Failed(why.into()));
    }
    let is_started = std::env::var_os(SERVES).is_some();
    match args.foreground || is_started {
        true => serve(args, global, is_started, out),
        false => start(out),
    }
}

/// Starts the process that serves, and returns when the folder is there. It asks for the password itself.
fn start(out: &Out) -> Result<Exit> {
    let fail = |error| Error::io("start the process that serves the folder", error);
    let own = std::env::current_exe().map_err(fail)?;
    let mut child = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(SERVES, "1")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(fail)?;
    }
    if let Ok(mounted) = serde_json::from_str::<Value>(&line) {
        tell(&mounted, out)?;
        return Ok(Exit::Ok);
    }
    // The child process has printed the reason.
    let status = child.wait().map_err(fail)?;
    Ok(Exit::of_code(status.code()))
}

fn tell(mounted: &Value, out: &Out) -> Result<()> {
    if out.json {
        return out.json(mounted);
    }
    let folder = mounted["folder"].as_str().unwrap_or_default();
    if out.quiet {
        return Ok(());
    }
    let snapshots = mounted["snapshots"].as_u64().unwrap_or_default();
    out.note(format_args!(
        "{folder} shows {}; umount {folder} ends it",
        human::many(snapshots, "snapshot")
    ));
    Ok(())
}

fn serve(args: &Args, global: &Global, is_started: bool, out: &Out) -> Result<Exit> {
    let _listening = signal::listen();
    let log = args.log.as_deref().map(open_log).transpose()?;
    let repository = repository::open(global, "a mount")?;
    let folder = std::path::absolute(&args.folder).map_err(|e| Error::io("name the folder", e))?;
    refuse_folder(&folder, repository::place(global)?.folder())?;
    let options = vfs::Options {
        filter: args.filter.filter()?,
        name_of: Box::new(|time| when::local(time).replace(' ', "_").replace(':', "-")),
        owner: (getuid().as_raw(), getgid().as_raw()),
        now: when::now(),
        warn: Box::new(move |what| warn(what, log.as_ref())),
    };
    let vfs = Arc::new(Vfs::new(repository, options)?);
    let snapshots = vfs.snapshots();
    let mounted = onefold_mount::mount(
        Arc::clone(&vfs),
        &folder,
        Options {
            allow_other: args.allow_other,
            checks_permissions: args.allow_other && !args.no_default_permissions,
        },
    );
    let mounted = mounted.map_err(|e| Error::io(format!("mount {}", folder.display()), e))?;
    let said = json!({
        "message_type": "mounted",
        "folder": folder.to_string_lossy(),
        "process": std::process::id(),
        "snapshots": snapshots,
    });
    match is_started {
        true => {
            out.json(&said)?;
            out.flush()?;
            onefold_mount::leave_terminal();
        }
        false => {
            tell(&said, out)?;
            out.flush()?;
        }
    }
    wait(&mounted, &vfs, out);
    Ok(Exit::Ok)
}

/// Refuses what is no folder, and a folder that holds the repository: the mount would hide it.
fn refuse_folder(folder: &Path, repository: Option<&Path>) -> Result<()> {
    let name = folder.display();
    let real = std::fs::canonicalize(folder).map_err(|e| Error::io(format!("mount {name}"), e))?;
    if !real.is_dir() {
        return Err(Error::Usage(format!(
            "{name} is no folder: snapshots are shown in an existing folder"
        )));
    }
    let holds = repository.and_then(|place| std::fs::canonicalize(place).ok());
    if holds.is_some_and(|place| place.starts_with(&real)) {
        return Err(Error::Usage(format!(
            "{name} holds the repository, which a mount would hide: name another folder"
        )));
    }
    Ok(())
}

fn warn(what: &str, log: Option<&File>) {
    tracing::warn!("{what}");
    if let Some(mut log) = log {
        let _ = std::io::Write::write_all(&mut log, format!("{what}\n").as_bytes());
    }
}

fn open_log(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|e| Error::io(format!("open {}", path.display()), e))
}

/// Until somebody unmounts the folder, or a signal comes. One that is in use then is taken away all the same, after a
/// while: a folder that nobody serves would be an error for everybody.
fn wait(mounted: &Mounted, vfs: &Vfs, out: &Out) {
    let (mut since, mut alive) = (None, Instant::now());
    while !mounted.has_ended() {
        std::thread::sleep(LOOK_AGAIN);
        if alive.elapsed() >= KEEP_ALIVE {
            // Where that fails, the next time is soon enough.
            let _ = vfs.keep_alive();
            alive = Instant::now();
        }
        if !signal::raised() {
            continue;
        }
        let is_first = since.is_none();
        let since = *since.get_or_insert_with(Instant::now);
        let why = match mounted.unmount() {
            Ok(true) => return,
            Ok(false) => "it is in use".to_owned(),
            Err(error) => error.to_string(),
        };
        if is_first {
            out.note(format_args!("waiting to unmount the folder: {why}"));
        }
        if since.elapsed() >= BUSY_MAX {
            let _ = mounted.detach();
            return;
        }
    }
}
