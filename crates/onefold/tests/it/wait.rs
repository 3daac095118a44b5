//! Waiting for what another process does, not for a time. The limit is for what never comes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Returns once `holds`.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How often a file is opened, by whomever, since this was made.
pub struct Opens {
    events: OwnedFd,
    count: usize,
}

impl Opens {
    pub fn of(path: &Path) -> Self {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("events");
        inotify::add_watch(&events, path, WatchFlags::OPEN).expect("watched");
        Self { events, count: 0 }
    }

    /// Returns once somebody has tried for a lock that is held, and tries again: it is waited for.
    #[track_caller]
    pub fn wait_for_a_second_try(mut self) {
        wait_until("a second try for the lock", || {
            let mut room = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.events, &mut room);
            while reader.next().is_ok() {
                self.count += 1;
            }
            self.count >= 2
        });
    }
}
