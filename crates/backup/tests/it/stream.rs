//! Streams that become one file: their possible names, and a store that fails while a stream is silent.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::{Error, Progress, list, snapshots, tree::Tree};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_store::{Repository, SessionKind};

use crate::crash::{init, open};
use crate::scene::{self, Log, options, uneven};

/// A wait that is longer than this counts as endless.
const PATIENCE: Duration = Duration::from_secs(60);

fn back_up(
    repository: &Repository,
    stream: std::io::PipeReader,
    path: &[u8],
) -> Result<Outcome, Error> {
    let input = Input::Stream(stream.into(), path.to_vec());
    let (progress, log) = (Progress::default(), Log::default());
    backup::run(repository, input, &options(1), &progress, &log)
}

/// The producer has sent something and then computes for an hour; meanwhile the repository's disk is full.
#[test]
fn a_failed_store_is_told_though_the_stream_is_silent() {
    let device = SimDir::new(1);
    init(&device);
    let repository = open(&device, 1).expect("open");
    device.inject(Faults {
        no_space: When::From(20),
        ..Faults::default()
    });
    let (stream, mut producer) = std::io::pipe().expect("pipe");
    let (say_done, done) = mpsc::channel::<()>();
    let gave_up = &AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            // The write fails where the stream is not read any more.
            let _ = producer.write_all(&uneven(1, 8 << 20));
            gave_up.store(done.recv_timeout(PATIENCE).is_err(), SeqCst);
            drop(producer);
        });
        let outcome = back_up(&repository, stream, b"/dump");
        let _ = say_done.send(());
        outcome
    });
    let is_told = matches!(&outcome, Err(Error::Store(error)) if error.is_no_space());
    assert!(is_told, "{outcome:?}");
    assert!(!gave_up.load(SeqCst), "it was told when the stream ended");
}

#[test]
fn a_stream_may_lie_below_any_number_of_folders() {
    let path = [b"/a".repeat(1500), b"/dump".to_vec()].concat();
    let (say, done) = mpsc::channel();
    let wanted = path.clone();
    std::thread::spawn(move || {
        let repository = scene::repository();
        let (stream, mut producer) = std::io::pipe().expect("pipe");
        producer.write_all(b"content").expect("write");
        drop(producer);
        let outcome = back_up(&repository, stream, &wanted).expect("backup");
        let _ = say.send((repository, outcome));
    });
    let (repository, outcome) = done.recv_timeout(PATIENCE).expect("it ends");
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let named = snapshots::load(&repository, outcome.id.expect("id")).expect("load");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let mut entries = 0;
    let visit = &mut |_: &[u8], _: &onefold_backup::Entry| {
        entries += 1;
        Ok(true)
    };
    list::list(&tree, &mut reader, b"", true, visit).expect("list");
    assert_eq!(entries, 1501);
    let entry = tree.entry(&path, &mut reader).expect("read");
    assert_eq!(entry.expect("the file").size, 7);
}
