//! What a job of small files reads, and what it hands on.

use crossbeam_channel::unbounded;
use onefold_chunk::sieve::Sieve;
use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, InitOptions, OpenOptions, Repository, Session, SessionKind};

use super::*;
use crate::backup::segment::{Turns, Worker, slot};

/// One that nobody asks.
fn session() -> Session {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::default());
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    Repository::init(dir.clone(), &init, None).expect("init");
    let repository = Repository::open(dir, OpenOptions::default(), None).expect("open");
    repository.session(SessionKind::Backup).expect("session")
}

fn wanted(folder: &std::path::Path, names: &[&str]) -> Wanted {
    let dir = Arc::new(std::fs::File::open(folder).expect("open").into());
    let mut wanted = Wanted::default();
    for name in names {
        wanted.push(&dir, name.as_bytes(), None);
    }
    wanted
}

/// How many of the first files a job with room for `buffer_bytes` reads, and whether it hands on the others.
fn read(folder: &std::path::Path, names: &[&str], buffer_bytes: usize) -> (SmallDone, usize) {
    let chunker = Box::new(Sieve::new(8192));
    let session = session();
    let outlook = Arc::new(Outlook::default());
    let buffers = Buffers::new(&*chunker, outlook.clone());
    let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
    let reader = Reader {
        cutter: Arc::new(Mutex::new(Cutter::new(chunker))),
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
        wanted: wanted(folder, names),
        buffer_bytes,
        done,
    };
    work.send(job).expect("send");
    drop(work);
    std::thread::scope(|scope| {
        for tasks in [cold_tasks, cached_tasks] {
            let worker = Worker {
                tasks,
                turns: Turns::new(2),
                fingerprinter: Fingerprinter::default(),
                buffers: &buffers,
            };
            scope.spawn(move || worker.run());
        }
        scope.spawn(move || reader.run(&jobs));
        let mut done: SmallDone = result.recv().expect("done");
        // Nobody takes the rest: that lets the reader go.
        let is_handed_on = done.rest.take().is_some();
        assert_eq!(is_handed_on, done.files.len() < names.len());
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
        std::fs::write(folder.path().join(name), vec![7; len]).expect("write");
    };
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(name, 1000));
    let read = |names: &[&str]| read(folder.path(), names, 4000);
    assert_eq!(read(&names).1, 4);
    write("c", 2 * JOB_BYTES);
    assert_eq!(read(&names).1, 2);
    assert_eq!(read(&["c"]).1, 0);
    // One that is not there is none that grew.
    assert_eq!(read(&["a", "none", "b", "c"]).1, 3);
    // What fills all of it.
    write("c", JOB_BYTES - 2000);
    write("d", 0);
    let (done, files) = read(&names);
    let bytes = done.parts.iter().map(|part| match part {
        Part::Chunk(len) => *len as usize,
        Part::Hole(_) => 0,
    });
    assert_eq!((files, bytes.sum::<usize>()), (4, JOB_BYTES));
}

#[test]
fn files_with_many_attributes_are_no_part_of_a_job() {
    let folder = tempfile::tempdir().expect("tempdir");
    let names: Vec<String> = (0..JOB_FILES).map(|n| format!("{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        let file = std::fs::File::create(folder.path().join(name)).expect("create");
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
