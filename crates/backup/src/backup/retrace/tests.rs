//! Tests of stretches that differ from their trace.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crossbeam_channel::unbounded;
use onefold_chunk::adaptive::Adaptive;
use onefold_store::Fingerprinter;

use super::*;
use crate::backup::buffers::Buffers;
use crate::backup::outlook::Outlook;
use onefold_io::Gate;

#[test]
fn one_that_is_longer_than_any_buffer_and_not_there_any_more_is_another() {
    let len = 3 * LONG_SEGMENT_BYTES;
    let path = tempfile::NamedTempFile::new().expect("a file");
    let file = File::options().write(true).open(path.path());
    let file = file.expect("open");
    file.write_all_at(&vec![7; len], 0).expect("write");
    let source = Source::file(File::open(path.path()).expect("open").into()).expect("stat");
    let mut windows = Windows::new(&source.handle, 0..len as u64);
    let Some(view) = windows.view(0, len, 0) else {
        eprintln!("NOT RUN: files are not mapped here");
        return;
    };
    file.set_len(1000).expect("cut");

    let outlook = Arc::new(Outlook::default());
    let buffers = Buffers::new(&Adaptive::new(8192), outlook);
    let (_tasks, tasks) = unbounded();
    let worker = Worker {
        tasks,
        turns: Arc::new(Gate::new(1)),
        fingerprinter: Fingerprinter::default(),
        digester: None,
        buffers: &buffers,
    };
    let (done, result) = slot();
    let differs = Arc::new(AtomicBool::new(false));
    worker.retrace(TraceStretch {
        bytes: Bytes::Mapped(view),
        len,
        proof: Proof::Chunks(Vec::new()),
        differs: differs.clone(),
        done,
    });
    assert!(matches!(result.recv(), Ok(StretchResult::Other)));
    assert!(differs.load(Relaxed));
}
