//! `onefold dump`: writes one file to standard output, or a folder as a tar or zip archive.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;

use clap::ValueEnum;
use onefold_backup::dump::{self, Told, WriteHoles};
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, Kind};
use onefold_store::{ChunkReader, SessionKind};

use crate::error::{Error, Result, chain_of};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{self, many};
use crate::json::message::PathWarning;
use crate::out::Out;
use crate::select::{self, FilterArgs, Spec};
use crate::verbs::ls;
use crate::{paths, repository, signal};

/// Print a file of a snapshot, or a folder as a tar or zip archive
///
/// A zip holds files, folders and symbolic links, and no attributes; a tar all but sockets.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginning of an id, or "latest"; with ":PATH" the path begins there
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    /// The file or folder; / for everything
    #[arg(value_name = "PATH", default_value = "/")]
    pub path: OsString,

    /// Format of a folder's archive; a file is printed as it is, unless zip is said
    #[arg(short, long, value_name = "FORMAT", default_value = "tar")]
    pub archive: Archive,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// Go on where a part of a file is lost to damage: zeros stand for it, each such part is told, and the exit code is
    /// 13. Without, the dump ends there
    #[arg(long)]
    pub salvage: bool,

    /// Write into this file, which must not exist, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub target: Option<OsString>,
}

/// Format of the archive of a folder.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Archive {
    /// With everything that a snapshot knows
    Tar,
    /// For those who have no tar
    Zip,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let spec = Spec::parse(&args.snapshot)?;
    let path = [spec.path.clone(), paths::inside(&args.path)].concat();
    let repository = repository::open(global, "a dump")?;
    // Objects that the snapshot refers to stay from here on.
    let session = repository.session(SessionKind::Read)?;
    let named = select::one(&repository, &spec.snapshot, &args.filter.filter()?)?;
    let mut reader = session.reader()?;
    let tree = Tree::open(&named.snapshot, &mut reader)?;
    let words = if spec.words.is_empty() {
        &args.path
    } else {
        &spec.words
    };
    let entry = find(&tree, &path, words, &mut reader)?;
    let is_archive = args.archive == Archive::Zip || entry.as_ref().is_none_or(Entry::is_dir);
    if is_archive && args.target.is_none() && io::stdout().is_terminal() {
        return Err(Error::Usage(
            "this comes as an archive, which no terminal can show: redirect it, or give --target FILE".into(),
        ));
    }
    let mut left_out = LeftOutCounts::new(args, out);
    let to_what = match &args.target {
        None => "standard output".into(),
        Some(target) => target.to_string_lossy(),
    };
    let mut write = |to: &mut dyn WriteHoles| {
        write(
            &tree,
            (&path, args.archive, &to_what),
            entry.as_ref(),
            &mut reader,
            to,
            &mut left_out,
        )
    };
    match &args.target {
        None => match out.write_all_of(&mut |to| write(&mut ZeroFilledOutput(to))) {
            // The reader has closed the pipe, after half of the output: that is no success, as for `cat`, and needs no
            // message.
            Err(Error::Closed) => return Ok(Exit::Failed),
            written => written?,
        },
        Some(target) => into_file(target, &mut write)?,
    }
    session.finish()?;
    Ok(left_out.tell())
}

/// Numbers of paths that the archive or the file lacks, and of bytes that were replaced by zeros.
struct LeftOutCounts<'a> {
    archive: Archive,
    salvage: bool,
    out: &'a Out,
    missing: u64,
    without_attributes: u64,
    /// Paths whose attributes and ACLs the archive cannot hold.
    attributes_unfit: u64,
    /// Paths of kinds that the archive cannot hold.
    unfit: u64,
    lost_bytes: u64,
    /// The last loss, which is not reported yet, since more of it may follow.
    losing: Option<Lost>,
}

/// Neighbouring bytes of a file that are lost.
struct Lost {
    path: Vec<u8>,
    bytes: Range<u64>,
    parts: u64,
    /// The reason for the first of them.
    why: String,
}

impl Told for LeftOutCounts<'_> {
    fn incomplete(&mut self, path: &[u8], entry: &Entry) {
        let is_missing = entry.is_unreadable() || entry.is_unlisted();
        let is_unfit = self.archive == Archive::Zip || entry.kind == Kind::Socket;
        if is_unfit && !is_missing {
            self.unfit += 1;
            return;
        }
        self.missing += u64::from(is_missing);
        let is_without = self.archive == Archive::Tar && entry.lacks_xattrs();
        self.without_attributes += u64::from(is_without);
        self.note(path, ls::missing(entry));
    }

    fn without_attributes(&mut self, _path: &[u8], _entry: &Entry) {
        self.attributes_unfit += 1;
    }

    fn lost(
        &mut self,
        path: &[u8],
        bytes: Range<u64>,
        why: onefold_backup::Error,
    ) -> onefold_backup::Result<()> {
        if !self.salvage {
            return Err(why);
        }
        self.lost_bytes = self.lost_bytes.saturating_add(bytes.end - bytes.start);
        let lost = self.losing.get_or_insert_with(|| Lost {
            path: path.to_vec(),
            bytes: bytes.clone(),
            parts: 0,
            why: chain_of(&why),
        });
        lost.bytes.end = bytes.end;
        lost.parts += 1;
        Ok(())
    }

    fn end_of_loss(&mut self) {
        let Some(lost) = self.losing.take() else {
            return;
        };
        let Range { start, end } = lost.bytes;
        let bytes = many(end - start, "byte");
        let parts = match lost.parts {
            1 => String::new(),
            more => format!(" in {} parts, the first", human::count(more)),
        };
        let why = lost.why;
        let what = format!(" (bytes {start} to {end} are lost, {bytes}{parts}: {why})");
        self.note(&lost.path, &what);
    }
}

impl<'a> LeftOutCounts<'a> {
    fn new(args: &Args, out: &'a Out) -> Self {
        Self {
            archive: args.archive,
            salvage: args.salvage,
            out,
            missing: 0,
            without_attributes: 0,
            attributes_unfit: 0,
            unfit: 0,
            lost_bytes: 0,
            losing: None,
        }
    }

    /// Reports a path that is missing or incomplete; `what` is in brackets.
    fn note(&self, path: &[u8], what: &str) {
        if self.out.json {
            let what = what.trim_matches([' ', '(', ')']);
            self.out.note_json(&PathWarning::new("dump", path, what));
        } else {
            self.out.note(format_args!("{}{what}", paths::shown(path)))
        }
    }

    /// Reports the sums, and returns the exit of the verb.
    fn tell(&self) -> Exit {
        let out = self.out;
        if self.unfit > 0 {
            let (archive, kinds) = match self.archive {
                Archive::Tar => ("tar", "sockets"),
                Archive::Zip => ("zip", "pipes, sockets and devices"),
            };
            out.note(format_args!(
                "left out {}: no {archive} can hold {kinds}",
                many(self.unfit, "path")
            ));
        }
        if self.attributes_unfit > 0 {
            out.note(format_args!(
                "left out the extended attributes and ACLs of {}: no zip can hold them (--archive tar does)",
                many(self.attributes_unfit, "path")
            ));
        }
        if self.missing > 0 {
            out.note(human::unread("the archive", self.missing));
        }
        if self.without_attributes > 0 {
            out.note(human::unread_attributes(
                "the archive",
                self.without_attributes,
            ));
        }
        if self.lost_bytes > 0 {
            out.note(format_args!(
                "{} are lost to damage, and zeros stand in their place",
                many(self.lost_bytes, "byte")
            ));
            return Exit::Damaged;
        }
        match self.missing + self.without_attributes {
            0 => Exit::Ok,
            _ => Exit::Incomplete,
        }
    }
}

/// Makes the file and calls `fill` to write it.
fn into_file(
    target: &OsStr,
    fill: &mut dyn FnMut(&mut dyn WriteHoles) -> Result<()>,
) -> Result<()> {
    let failed = |e| Error::io(format!("write {}", target.to_string_lossy()), e);
    // Listen before the file is there: a signal that ended the program at once would leave it.
    let _listening = signal::listen();
    // The content may be secret: no other user may read it unless the owner allows it.
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)
        .map_err(failed)?;
    let mut file = FileWithHoles(BufWriter::with_capacity(1 << 20, Stoppable(file)));
    let written = fill(&mut file).and_then(|()| {
        let mut file = file.0.into_inner().map_err(|e| failed(e.into_error()))?.0;
        // A hole at the end was only skipped: it needs the file's length to be set.
        let end = file.stream_position().map_err(failed)?;
        file.set_len(end).map_err(failed)?;
        file.sync_all().map_err(failed)
    });
    let written = match written {
        Err(_) if signal::raised() => Err(onefold_backup::Error::Cancelled.into()),
        written => written,
    };
    if written.is_err() {
        // Half a file passes for a whole one, and stands in the way of the next try.
        let _ = std::fs::remove_file(target);
    }
    written
}

/// A file that takes no more bytes once a signal has come.
struct Stoppable(File);

impl Write for Stoppable {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if signal::raised() {
            Err(io::Error::other("interrupted"))
        } else {
            self.0.write(buf)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Stoppable {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// A file in which holes of the content become holes.
struct FileWithHoles(BufWriter<Stoppable>);

impl WriteHoles for FileWithHoles {
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.0.seek(SeekFrom::Current(bytes)).map(drop)
    }
}

impl Write for FileWithHoles {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Standard output, in which holes become zeros: it may be a pipe, or a file that is appended to.
struct ZeroFilledOutput<'a>(&'a mut dyn Write);

impl WriteHoles for ZeroFilledOutput<'_> {
    fn hole(&mut self, bytes: u64) -> io::Result<()> {
        io::copy(&mut io::repeat(0).take(bytes), self.0).map(drop)
    }
}

impl Write for ZeroFilledOutput<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the entry at `path`, which the user gave as `words`, and checks that the backup could read it; `None` for
/// the root.
fn find(
    tree: &Tree,
    path: &[u8],
    words: &OsStr,
    reader: &mut ChunkReader,
) -> Result<Option<Entry>> {
    if path.is_empty() {
        return Ok(None);
    }
    let missing = || {
        let (path, meant) = (paths::shown(path), paths::meant(words));
        match &meant[..] {
            "" => onefold_backup::Error::NotInSnapshot(path).into(),
            meant => Error::Failed(format!("{path} is not in the snapshot{meant}")),
        }
    };
    let entry = tree.entry(path, reader)?.ok_or_else(missing)?;
    if let Some(error) = entry.damage() {
        return Err(error.into());
    }
    if entry.is_unreadable() {
        return Err(Error::Unread(paths::shown(path)));
    }
    Ok(Some(entry))
}

fn write(
    tree: &Tree,
    (path, archive, to_what): (&[u8], Archive, &str),
    entry: Option<&Entry>,
    reader: &mut ChunkReader,
    to: &mut dyn WriteHoles,
    told: &mut dyn Told,
) -> Result<()> {
    let written = match entry {
        Some(entry) if entry.kind == Kind::File && archive == Archive::Zip => {
            dump::zip_of_file(path, entry, reader, to, told)
        }
        Some(entry) if entry.kind == Kind::File => {
            dump::file_with_holes(path, entry, reader, to, told)
        }
        Some(entry) if !entry.is_dir() => {
            return Err(Error::Failed(format!(
                "{} is neither a file nor a folder but a {}",
                paths::shown(path),
                entry.kind.word()
            )));
        }
        _ if archive == Archive::Zip => dump::zip(tree, path, reader, to, told),
        _ => dump::tar(tree, path, reader, to, told),
    };
    match written {
        Err(onefold_backup::Error::Io { source, .. })
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Err(Error::Closed)
        }
        // An error of writing has no path of the snapshot, and its disk is not the repository's.
        Err(onefold_backup::Error::Io {
            op: "write",
            source,
            ..
        }) => Err(Error::io(format!("write to {to_what}"), source)),
        written => Ok(written?),
    }
}
