//! A file that another process holds a lease on, as file servers do for their clients: it is read when the lease is
//! given back.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use onefold_backup::Progress;
use onefold_backup::backup::{self, Input};

use crate::scene::{self, Log, bytes, options};

/// Command of `fcntl`, equal on every architecture of Linux; `libc` does not name it.
pub const F_SETSIG: i32 = 10;

/// Takes, gives back or asks for a file's lease by `fcntl`. `None` where the file system has no leases.
pub fn lease(file: &File, command: i32, kind: i32) -> Option<i32> {
    // SAFETY: takes and gives numbers alone.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, kind) };
    (done >= 0).then_some(done)
}

#[test]
fn a_file_that_is_leased_is_read_when_it_is_given_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("held");
    fs::write(&path, "content").expect("write");
    let held = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("open");
    // The request to give the lease back comes as a signal, which this process ignores.
    lease(&held, F_SETSIG, libc::SIGURG).expect("a signal");
    if lease(&held, libc::F_SETLEASE, libc::F_WRLCK).is_none() {
        crate::untested::not_tested("there are no leases here");
        return;
    }
    let log = Log::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            while lease(&held, libc::F_GETLEASE, 0) == Some(libc::F_WRLCK) {
                std::thread::yield_now();
            }
            lease(&held, libc::F_SETLEASE, libc::F_UNLCK).expect("given back");
        });
        let input = Input::Paths(vec![bytes(dir.path())]);
        let progress = Progress::default();
        backup::run(&scene::repository(), input, &options(1), &progress, &log)
    });
    assert_eq!(*log.errors.lock(), []);
    let summary = outcome.expect("backup").snapshot.summary;
    assert_eq!((summary.errors, summary.data_chunks), (0, 1));
}
