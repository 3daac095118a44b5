//! Sources of a backup, from the command line.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use onefold_backup::backup::Input;
use onefold_backup::exclude::is_utf16;
use onefold_backup::walk::Moved;
use onefold_backup::{Progress, path};

use super::{Args, globs};
use crate::error::{Error, Result};
use crate::list_file;
use crate::out::{self, Out};
use crate::password::PASSWORD_ENV;
use crate::verbs::volume::backed_up::{self, BackgroundReading};
use crate::{human, named_file, paths};

/// Intervals at which a command that has closed its output is looked at again, at first and later on.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(100);

/// Largest number of links that are followed, one after another: as many as the system follows.
const LINKS_MAX: usize = 40;

/// RAM that paths to back up may take, in bytes: a snapshot names them all, and is read as a whole. A backup of that
/// many takes 200 MiB.
const PATHS_BYTES_MAX: usize = 80 << 20;

/// RAM of a path, in bytes: it is there twice, in a snapshot's bytes, and as names in the walk.
fn ram_bytes(path: &[u8]) -> usize {
    2 * path.len() + 64
}

/// A command whose output is backed up. The command ends with the backup.
pub struct Feed {
    child: Child,
    words: String,
}

impl Feed {
    /// Waits for the command's end, which may come long after its output has ended, or until the backup is cancelled.
    /// Half an output is an error.
    pub fn ended_well(&mut self, progress: &Progress) -> onefold_backup::Result<()> {
        let mut pause = LOOK_AGAIN_MIN;
        let ended = loop {
            if let Some(ended) = self.child.try_wait().transpose() {
                break ended;
            }
            if progress.is_cancelled() {
                return Err(onefold_backup::Error::Cancelled);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK_AGAIN_MAX);
        };
        let why = match ended {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => format!("the command \"{}\" ended with {status}", self.words),
            Err(error) => format!("wait for the command \"{}\": {error}", self.words),
        };
        Err(onefold_backup::Error::HalfInput(why))
    }
}

/// Checks that a stream had at least one byte: a command that dies before it has written anything, in front of a pipe,
/// must not make an empty backup.
pub fn has_come(is_stream: bool, progress: &Progress) -> onefold_backup::Result<()> {
    if is_stream && progress.bytes_moved.load(Relaxed) == 0 {
        Err(onefold_backup::Error::HalfInput("no data came".into()))
    } else {
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // After the command's end, both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the sources, and the command or the volume that feeds them if there is one.
pub fn input(args: &Args, out: &Out) -> Result<(Input, Option<Feed>, Option<BackgroundReading>)> {
    let name = || paths::inside(&args.stdin_filename);
    if args.stdin_from_command {
        if name().is_empty() {
            return Err(Error::Usage("--stdin-filename is empty".into()));
        }
        let (feed, out) = start(&args.paths)?;
        return Ok((Input::Stream(out, name()), Some(feed), None));
    }
    if args.stdin {
        if !args.paths.is_empty() {
            return Err(Error::Usage("--stdin and paths exclude each other".into()));
        }
        let stdin = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Error::io("open standard input", e))?;
        return Ok((Input::Stream(stdin, name()), None, None));
    }
    if let [source] = &args.paths[..]
        && let Some((input, reading)) = backed_up::input(source)?
    {
        return Ok((input, None, Some(reading)));
    }
    let mut listed = Listed::new(out);
    let mut take = |path: &OsStr| listed.take(path);
    args.paths.iter().try_for_each(|path| take(path))?;
    for file in &args.files_from {
        globs::expand_lines(without_mark(&read_lines(file)?), out, &mut take)?;
    }
    for (files, separator) in [
        (&args.files_from_verbatim, b'\n'),
        (&args.files_from_raw, 0),
    ] {
        for file in files {
            list(file, separator, &mut take)?;
        }
    }
    if listed.sources.is_empty() {
        return Err(Error::Usage("nothing to back up: give a path".into()));
    }
    let input = match &args.stored_as[..] {
        [] => Input::Paths(listed.sources),
        belong => Input::Moved(moved(listed.sources, belong)?),
    };
    Ok((input, None, None))
}

/// Returns the places of the input's files and folders; none for a stream.
pub fn places(input: &Input) -> Cow<'_, [Vec<u8>]> {
    match input {
        Input::Paths(paths) => paths.into(),
        Input::Moved(moved) => moved.iter().map(|source| source.from.clone()).collect(),
        Input::Stream(..) | Input::Device(..) => Cow::default(),
    }
}

/// Returns the sources with the paths under which they are stored; `--as` gives these in the same order.
fn moved(sources: Vec<Vec<u8>>, belong: &[OsString]) -> Result<Vec<Moved>> {
    if sources.len() != belong.len() {
        return Err(Error::Usage(format!(
            "--as says of each path where it belongs, in their order: {} and {} --as are given",
            human::many(sources.len() as u64, "path"),
            belong.len()
        )));
    }
    let pairs = sources.into_iter().zip(belong);
    let moved = pairs.map(|(from, to)| {
        let (given, to) = (to.as_bytes(), path::clean(to.as_bytes()));
        if given.is_empty() {
            return Err(Error::Usage(
                "--as is empty: write the whole path where the source belongs, from / on".into(),
            ));
        }
        if !given.starts_with(b"/") {
            let given = paths::shown(given);
            return Err(Error::Usage(format!(
                "--as {given}: write the whole path, from / on"
            )));
        }
        if given.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return Err(Error::Usage(format!(
                "--as {}: write the path without .. in it",
                paths::shown(given)
            )));
        }
        let at: &[u8] = if from.is_empty() { b"/" } else { &from };
        let about = std::fs::symlink_metadata(OsStr::from_bytes(at));
        // A missing source is reported like any other.
        let is_folder = about.map_or(true, |about| about.is_dir());
        let (name, new_name) = (path::split(&from).1, path::split(&to).1);
        if !is_folder && name != new_name {
            return Err(Error::Usage(format!(
                "{} is no folder, and only folders are stored under another name: let --as end with /{}",
                paths::shown(&from),
                paths::shown(name)
            )));
        }
        Ok(Moved { from, to })
    });
    moved.collect()
}

/// Sources that are given, as they are collected.
struct Listed<'a> {
    sources: Vec<Vec<u8>>,
    /// RAM that further sources may take, in bytes.
    room_bytes: usize,
    out: &'a Out,
}

impl<'a> Listed<'a> {
    fn new(out: &'a Out) -> Self {
        Self {
            sources: Vec::new(),
            room_bytes: PATHS_BYTES_MAX,
            out,
        }
    }

    fn take(&mut self, path: &OsStr) -> Result<()> {
        let source = source(path, self.out)?;
        let Some(room_bytes) = self.room_bytes.checked_sub(ram_bytes(&source)) else {
            return Err(Error::Usage(format!(
                "more than {} paths to back up, with those of --files-from, and a snapshot names no more of their length: give folders above them",
                self.sources.len()
            )));
        };
        self.room_bytes = room_bytes;
        self.sources.push(source);
        Ok(())
    }
}

/// Returns a source in the form of snapshots. A link with a slash behind it means the folder that it leads to, as
/// everywhere.
fn source(path: &OsStr, out: &Out) -> Result<Vec<u8>> {
    paths::confirm_no_stdin(path)?;
    let absolute = paths::absolute(path)?;
    // The root's clean path is empty.
    let link = match &absolute[..] {
        b"" => Path::new("/"),
        path => Path::new(OsStr::from_bytes(path)),
    };
    confirm_same(Path::new(path), link)?;
    if !link.is_symlink() {
        if let Some(meant) = paths::home_meant(path.as_bytes())
            && !link.exists()
        {
            out.warn(format_args!(
                "{}: {}",
                out::safe(&path.to_string_lossy()),
                out::safe(&meant)
            ));
        }
        return Ok(absolute);
    }
    let given = path.as_bytes();
    if !is_of_folder(given) {
        if leads_to_device(link) {
            return Ok(absolute);
        }
        let shown = paths::shown(&absolute);
        out.warn(format_args!(
            "{shown} is a symbolic link: the link is stored, not what it leads to; {shown}/ stands for that"
        ));
        return Ok(absolute);
    }
    match std::fs::canonicalize(link) {
        Ok(folder) => Ok(folder.into_os_string().into_vec()),
        // A missing source is reported by its own name.
        Err(e) => led_nowhere(&absolute)
            .ok_or_else(|| Error::io(format!("follow {}", paths::shown(&absolute)), e)),
    }
}

/// Checks that a path means the same to the system as here, where `..` removes the name before it.
fn confirm_same(given: &Path, clean: &Path) -> Result<()> {
    let bytes = given.as_os_str().as_bytes();
    if !bytes.split(|b| *b == b'/').any(|name| name == b"..") {
        return Ok(());
    }
    let is_folder = is_of_folder(bytes) || bytes.ends_with(b"/..") || bytes == b"..";
    let look = |path: &Path| {
        if is_folder {
            std::fs::metadata(path)
        } else {
            std::fs::symlink_metadata(path)
        }
    };
    let place = |about: Metadata| (about.dev(), about.ino());
    let shown = paths::shown(bytes);
    match (look(given).map(place), look(clean).map(place)) {
        (Ok(given), Ok(clean)) if given == clean => Ok(()),
        (Ok(_), Err(e)) if e.kind() != io::ErrorKind::NotFound => Ok(()),
        (Ok(_), _) => Err(Error::Usage(format!(
            "{shown} leads through a symbolic link to another place than {}: name the one that is meant without `..`",
            paths::shown(clean.as_os_str().as_bytes())
        ))),
        (Err(e), Ok(_)) => Err(Error::io(format!("look at {shown}"), e)),
        // The path is missing, which is reported as for any other.
        (Err(_), Err(_)) => Ok(()),
    }
}

/// Whether the link leads to a device, a pipe or a socket: the backup reports or reads it.
fn leads_to_device(link: &Path) -> bool {
    let about = std::fs::metadata(link).map(|about| about.file_type());
    about.is_ok_and(|it| !it.is_file() && !it.is_dir())
}

fn is_of_folder(given: &[u8]) -> bool {
    given.ends_with(b"/") || given.ends_with(b"/.")
}

/// Returns the path that a link leads to, if nothing is there.
fn led_nowhere(link: &[u8]) -> Option<Vec<u8>> {
    let mut place = link.to_vec();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(OsStr::from_bytes(&place)) else {
            let is_gone = std::fs::symlink_metadata(OsStr::from_bytes(&place))
                .is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
            return (is_gone && !place.is_empty()).then_some(place);
        };
        let folder = Path::new(OsStr::from_bytes(path::split(&place).0));
        let target = Path::new("/").join(folder).join(target);
        place = path::clean(target.as_os_str().as_bytes());
    }
    None
}

fn start(command: &[OsString]) -> Result<(Feed, OwnedFd)> {
    let [program, args @ ..] = command else {
        return Err(Error::Usage("--stdin-from-command needs a command: onefold backup --stdin-from-command -- pg_dump …".into()));
    };
    let mut child = Command::new(program)
        .args(args)
        .env_remove(PASSWORD_ENV)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::io(format!("start {}", program.to_string_lossy()), e))?;
    let out = child
        .stdout
        .take()
        .ok_or_else(|| Error::Failed("the command has no output".into()))?;
    let words = program.to_string_lossy().into_owned();
    Ok((Feed { child, words }, out.into()))
}

/// Calls `take` with the paths of a list, one after another. A list with zero bytes must end with one, or its end is
/// missing.
fn list(file: &OsStr, separator: u8, take: &mut dyn FnMut(&OsStr) -> Result<()>) -> Result<()> {
    let bytes = match separator {
        0 => list_file::read(file)?,
        _ => read_lines(file)?,
    };
    if separator != 0 {
        let lines = without_mark(&bytes).split(|b| *b == separator);
        let mut lines = lines.filter(|line| !line.is_empty());
        return lines.try_for_each(|line| take(OsStr::from_bytes(line)));
    }
    let wrong = |what: &str| Error::Usage(format!("{}: {what}", file.to_string_lossy()));
    let Some(names) = bytes.strip_suffix(&[0]) else {
        return if bytes.is_empty() {
            Ok(())
        } else {
            Err(wrong(
                "no zero byte ends the last path: a part of the list may be missing",
            ))
        };
    };
    let mut names = names.split(|b| *b == separator);
    names.try_for_each(|name| match name {
        [] => Err(wrong("a path is empty")),
        name => take(OsStr::from_bytes(name)),
    })
}

/// Reads a list with one path per line.
fn read_lines(file: &OsStr) -> Result<Vec<u8>> {
    let bytes = list_file::read(file)?;
    let name = file.to_string_lossy();
    match named_file::confirm_text(&bytes) {
        Err(_) if !is_utf16(&bytes) => Err(Error::Usage(format!(
            "{name} has zero bytes: a list with one behind each path is for --files-from-raw"
        ))),
        Err(e) => Err(Error::io(format!("read paths from {name}"), e)),
        Ok(()) => Ok(bytes),
    }
}

/// Removes the mark of the encoding with which some editors begin a file.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Returns device and inode of the folder of a repository, or of its index, if it is there. A backup leaves the folder
/// out by these, since the walk may come to it through links and under any name.
pub fn own_folder(folder: &Path) -> Option<(u64, u64)> {
    let about = std::fs::metadata(folder).ok()?;
    Some((about.dev(), about.ino()))
}

/// Reports that a folder is left out, where the sources show it.
pub fn say_left_out(sources: &[Vec<u8>], (folder, what): (&Path, &str), out: &Out) -> Result<()> {
    let Ok(real) = std::fs::canonicalize(folder) else {
        return Ok(());
    };
    let own = real.as_os_str().as_bytes();
    let holds = |source: &Vec<u8>| {
        let source = where_it_is(source);
        path::within(own, &source) && own != source
    };
    if sources.iter().any(holds) {
        out.say(format_args!("{what} is left out: {}", paths::shown(own)))
    } else {
        Ok(())
    }
}

/// Returns a source's path without links on the way; the source itself may be a link, which is not followed.
fn where_it_is(source: &[u8]) -> Vec<u8> {
    let (folder, name) = path::split(source);
    let folder = if folder.is_empty() { b"/" } else { folder };
    match std::fs::canonicalize(Path::new(OsStr::from_bytes(folder))) {
        Ok(real) => path::clean(&path::join(real.as_os_str().as_bytes(), name)),
        Err(_) => source.to_vec(),
    }
}
