//! Tests of which small files a job reads, and which it hands on as large ones.

use std::fs::{self, File};
use std::path::Path;

use crossbeam_channel::unbounded;
use onefold_chunk::sieve::Sieve;
use onefold_io::{Dir, Gate, MemDir};
use onefold_store::{Encryption, InitOptions, OpenOptions, Repository, Session, SessionKind};

use super::*;
use crate::backup::buffers::JOB_BYTES;
use crate::backup::segment::{Worker, slot};
use crate::backup::work::{JOB_FILES, SmallDone, SmallFiles, SmallPart};
use crate::walk::opened::OpenFiles;

/// Opens a session of an empty repository, which is not used.
fn session() -> Session {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::default());
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    Repository::init(dir.clone(), &init, None).expect("init");
    let repository = Repository::open(dir, OpenOptions::default(), None).expect("open");
    repository.session(SessionKind::Backup).expect("session")
}

fn wanted(folder: &Path, names: &[&str]) -> SmallFiles {
    let dir = Arc::new(File::open(folder).expect("open").into());
    let mut wanted = SmallFiles::default();
    for name in names {
        wanted.push(&dir, name.as_bytes(), None);
    }
    wanted
}

/// Reads a job with room for `buffer_bytes`; returns its result, and how many of the first files it read.
fn read(folder: &Path, names: &[&str], buffer_bytes: usize) -> (SmallDone, usize) {
    read_wanted(wanted(folder, names), buffer_bytes)
}

fn read_wanted(wanted: SmallFiles, buffer_bytes: usize) -> (SmallDone, usize) {
    let count = wanted.len();
    let chunker = Box::new(Sieve::new(8192));
    let session = session();
    let outlook = Arc::new(Outlook::default());
    let buffers = Buffers::new(&*chunker, outlook.clone());
    let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
    let reader = Reader {
        cutter: Arc::new(Mutex::new(FileCutter::new(chunker))),
        lengths: Vec::new(),
        fingerprinter: Fingerprinter::default(),
        buffers: &buffers,
        progress: &Progress::default(),
        queues: Queues { cold, cached },
        outlook: &outlook,
        carries_much: Arc::default(),
        traces: &Traces::none(&session),
    };
    let ((work, jobs), (done, result)) = (unbounded(), slot());
    let job = Work::Small {
        wanted,
        buffer_bytes,
        done,
    };
    work.send(job).expect("send");
    drop(work);
    std::thread::scope(|scope| {
        for tasks in [cold_tasks, cached_tasks] {
            let worker = Worker {
                tasks,
                turns: Arc::new(Gate::new(2)),
                fingerprinter: Fingerprinter::default(),
                digester: None,
                buffers: &buffers,
            };
            scope.spawn(move || worker.run());
        }
        scope.spawn(move || reader.run(&jobs));
        let mut done: SmallDone = result.recv().expect("done");
        // Dropping the rest ends the reader.
        let is_handed_on = done.rest.take().is_some();
        assert_eq!(is_handed_on, done.files.len() < count);
        let reserved = buffers.size_for(buffer_bytes);
        assert!(done.buffer.len() <= reserved, "{}", done.buffer.len());
        let read = done.files.len();
        (done, read)
    })
}

#[test]
fn files_that_grew_take_no_more_than_was_reserved() {
    let folder = tempfile::tempdir().expect("tempdir");
    let write = |name: &str, len: usize| {
        fs::write(folder.path().join(name), vec![7; len]).expect("write");
    };
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(name, 1000));
    let read = |names: &[&str]| read(folder.path(), names, 4000);
    assert_eq!(read(&names).1, 4);
    write("c", 2 * JOB_BYTES);
    assert_eq!(read(&names).1, 2);
    assert_eq!(read(&["c"]).1, 0);
    // A missing file counts as read, not as one that grew.
    assert_eq!(read(&["a", "none", "b", "c"]).1, 3);
    // A file that fills the whole room.
    write("c", JOB_BYTES - 2000);
    write("d", 0);
    let (done, files) = read(&names);
    let bytes = done.parts.iter().map(|part| match part {
        SmallPart::Chunk(len) => *len as usize,
        SmallPart::Hole(_) => 0,
    });
    assert_eq!((files, bytes.sum::<usize>()), (4, JOB_BYTES));
}

#[test]
fn files_with_many_attributes_are_no_part_of_a_job() {
    let folder = tempfile::tempdir().expect("tempdir");
    let names: Vec<String> = (0..JOB_FILES).map(|n| format!("{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        let file = File::create(folder.path().join(name)).expect("create");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(&file, "user.long", &[7; 3000], flags).expect("setxattr");
    }
    let (done, files) = read(folder.path(), &names, 0);
    let attributes = done.files.iter().flatten().map(|file| file.end.bytes());
    let bytes = attributes.sum::<usize>();
    assert!((1..=JOB_XATTRS_BYTES_MAX).contains(&bytes), "{bytes}");
    assert!(files < names.len());
    assert_eq!(read(folder.path(), &names[..files], 0).1, files);
}

#[test]
fn a_file_that_was_opened_before_is_read_as_what_it_is_by_now() {
    let folder = tempfile::tempdir().expect("tempdir");
    let path = |name: &str| folder.path().join(name);
    let names = ["deleted", "grown", "replaced", "same", "written"];
    let dir: Arc<OwnedFd> = Arc::new(File::open(folder.path()).expect("open").into());
    let open_files = OpenFiles::new(names.len());
    let mut wanted = SmallFiles::default();
    for name in names {
        fs::write(path(name), [b"old ", name.as_bytes()].concat()).expect("write");
        let place = open_files.place().expect("room");
        let (stat, opened) = place.open(&dir, name.as_bytes()).expect("open");
        wanted.push(&dir, name.as_bytes(), Some((opened.expect("small"), stat)));
    }
    // File times have steps: wait until a change shows.
    std::thread::sleep(std::time::Duration::from_millis(30));
    fs::remove_file(path("deleted")).expect("delete");
    fs::write(path("grown"), "new and longer than before").expect("write");
    fs::write(path("other"), "new").expect("write");
    fs::rename(path("other"), path("replaced")).expect("rename");
    fs::write(path("written"), "new written").expect("write");

    let (done, files) = read_wanted(wanted, JOB_BYTES);
    assert_eq!(files, names.len());
    let mut parts = done.parts.iter();
    let mut at = 0;
    let mut contents = Vec::new();
    for file in &done.files {
        let Ok(file) = file else {
            assert_eq!(file.as_ref().err(), Some(&Errno::NOENT));
            continue;
        };
        let start = at;
        for part in parts.by_ref().take(file.parts) {
            let SmallPart::Chunk(len) = part else {
                panic!("no file has a hole");
            };
            at += *len as usize;
        }
        assert_eq!(file.end.stat.size, (at - start) as u64);
        assert!(!file.end.changed);
        contents.push(std::str::from_utf8(&done.buffer[start..at]).expect("text"));
    }
    let expected = [
        "new and longer than before",
        "new",
        "old same",
        "new written",
    ];
    assert_eq!(contents, expected);
    assert_eq!(done.fingerprints.len(), expected.len());
}

#[test]
fn files_of_several_folders_are_read_in_order() {
    let folder = tempfile::tempdir().expect("tempdir");
    let mut wanted = SmallFiles::default();
    for below in ["a", "b", "c"] {
        let below = folder.path().join(below);
        fs::create_dir(&below).expect("mkdir");
        let dir = Arc::new(File::open(&below).expect("open").into());
        for name in ["x", "y"] {
            fs::write(below.join(name), below.join(name).to_str().expect("text")).expect("write");
            wanted.push(&dir, name.as_bytes(), None);
        }
    }
    assert_eq!((wanted.dirs(), wanted.len()), (3, 6));
    let (done, files) = read_wanted(wanted, JOB_BYTES);
    assert_eq!(files, 6);
    let paths = ["a/x", "a/y", "b/x", "b/y", "c/x", "c/y"];
    let paths: Vec<_> = paths.iter().map(|path| folder.path().join(path)).collect();
    let expected: String = paths
        .iter()
        .map(|path| path.to_str().expect("text"))
        .collect();
    assert_eq!(&done.buffer[..expected.len()], expected.as_bytes());
}
