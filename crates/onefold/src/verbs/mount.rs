//! `onefold mount`: snapshots as a folder.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_backup::vfs::{self, Vfs};
use onefold_mount::{Mounted, Options};
use rustix::process::{getgid, getuid};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;
use crate::select::FilterArgs;
use crate::{human, repository, signal, when};

/// Time between two looks whether the mount has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time between two signs of life to prunes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A folder that is in use is unmounted again and again for so long, and then taken away all the same.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// Time after which a store that does not answer is an error of whoever reads a file; a request in which no byte moves
/// is given up after the same time. A program that waits for a file cannot be interrupted.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sets how long a mount waits for a store that does not answer.
pub fn limit_waiting(global: &mut Global) {
    let patience = global.stuck_request_timeout.get_or_insert(PATIENCE);
    global.patience = Some(*patience);
}

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

/// The GNU C library's limit of heaps. It reads the variable when a process starts, and gives each thread a heap of its
/// own otherwise, in which freed chunks stay: 295 instead of 183 MiB after 512 MiB were read and 290,000 entries listed
/// twice.
const HEAPS: &str = "MALLOC_ARENA_MAX";

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    if let Some(why) = onefold_mount::why_not() {
        return Err(Error::Failed(why.into()));
    }
    let is_started = std::env::var_os(SERVES).is_some();
    let has_few_heaps = std::env::var_os(HEAPS).is_some();
    match args.foreground {
        _ if is_started => serve(args, global, is_started, out),
        true if has_few_heaps => serve(args, global, is_started, out),
        true => Err(Error::io("start the process anew", again()?.exec())),
        false => start(out),
    }
}

/// Returns a command that is this process's own, with few heaps.
fn again() -> Result<Command> {
    let own = std::env::current_exe().map_err(|e| Error::io("find the program", e))?;
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1));
    if std::env::var_os(HEAPS).is_none() {
        command.env(HEAPS, "2");
    }
    Ok(command)
}

/// Starts the process that serves, and returns when the folder is there. It asks for the password itself.
fn start(out: &Out) -> Result<Exit> {
    let fail = |error| Error::io("start the process that serves the folder", error);
    let mut child = again()?
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
    let requesting = signal::keep_requesting();
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
    if is_started {
        out.json(&said)?;
        out.flush()?;
        onefold_mount::leave_terminal();
    } else {
        tell(&said, out)?;
        out.flush()?;
    }
    keep_alive(&vfs)?;
    wait(&mounted, out);
    // Nobody needs the answers any more that are still to come.
    drop(requesting);
    Ok(Exit::Ok)
}

/// Refuses what is no folder, and a folder that holds the repository: the mount would hide it.
fn refuse_folder(folder: &Path, repository: Option<&Path>) -> Result<()> {
    let name = folder.display();
    let real = std::fs::canonicalize(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotConnected => Error::Usage(format!(
            "{name} is left of a mount whose process was killed: `umount -l {name}` takes it away (who is not root: `fusermount3 -uz {name}`)"
        )),
        _ => Error::io(format!("mount {name}"), error),
    })?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if shows_snapshots(&real, &mounts) {
        return Err(Error::Usage(format!(
            "{name} shows snapshots already: `umount {name}` ends that, and where it is in use, `umount -l {name}` does"
        )));
    }
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

/// Whether a mount of ours is at `folder`, by the text of `/proc/self/mountinfo`.
fn shows_snapshots(folder: &Path, mounts: &str) -> bool {
    let mut escaped = Vec::new();
    for byte in folder.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    mounts.lines().any(|line| {
        let (before, after) = line.split_once(" - ").unwrap_or((line, ""));
        let point = before.split(' ').nth(4).unwrap_or_default();
        // The second is what the kernel shows where fusermount3 has not mounted.
        let is_ours = ["fuse.onefold ", "fuse onefold "]
            .iter()
            .any(|kind| after.starts_with(kind));
        is_ours && point.as_bytes() == escaped
    })
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

/// Shows prunes that the mount lives, in a thread of its own: the store may let it wait.
fn keep_alive(vfs: &Arc<Vfs>) -> Result<()> {
    let vfs = Arc::downgrade(vfs);
    let keep = move || {
        loop {
            std::thread::sleep(KEEP_ALIVE);
            match vfs.upgrade() {
                // Where that fails, the next time is soon enough.
                Some(vfs) => drop(vfs.keep_alive()),
                None => return,
            }
        }
    };
    std::thread::Builder::new()
        .name("alive".into())
        .spawn(keep)
        .map(drop)
        .map_err(|error| Error::io("start a thread", error))
}

/// Until somebody unmounts the folder, or a signal comes. One that is in use then is taken away all the same, after a
/// while: a folder that nobody serves would be an error for everybody.
fn wait(mounted: &Mounted, out: &Out) {
    let mut since = None;
    while !mounted.has_ended() {
        std::thread::sleep(LOOK_AGAIN);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_shows_snapshots_is_known_by_its_name() {
        let mounts = "36 35 98:0 / /mnt/a\\040b ro,nosuid - fuse.onefold onefold ro\n\
                      36 35 98:0 / /mnt/d ro,nosuid - fuse onefold ro\n\
                      37 35 98:1 / /mnt/c rw - fuse.sshfs host: rw\n";
        for ours in ["/mnt/a b", "/mnt/d"] {
            assert!(shows_snapshots(Path::new(ours), mounts), "{ours}");
        }
        for other in ["/mnt/c", "/mnt", "/mnt/a"] {
            assert!(!shows_snapshots(Path::new(other), mounts), "{other}");
        }
    }
}
