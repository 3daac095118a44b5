//! How many files the program may have open: as many as the system grants, not the few that it begins with.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Some programs that are started from here close all numbers up to the limit, which may be a billion.
const ENOUGH: u64 = 1 << 16;
/// More than a backup has open at once.
const ROOM: u64 = 1 << 13;

/// Raises the limit to what the system grants, if that is more. Where it may not, the old one stays: an index of some
/// hundred files may then be rebuilt or done without. To be called before any other thread is started.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let granted = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < granted) {
        let raised = Rlimit {
            current: Some(granted),
            ..limit
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!("the limit of open files stays as it is: {error}");
        }
    }
    make_room();
}

/// Has the system make its table of this process's open files as long as it will be, 64 KiB. It doubles the table as
/// numbers are wanted, and where there are several threads it waits each time until none of them can still see the old
/// one: some 8 ms, in which nobody opens anything; 40 ms of a backup of many small files, which has thousands open at
/// once.
fn make_room() {
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(ROOM);
    // The number is free again at once.
    let _ = fcntl_dupfd_cloexec(
        std::io::stderr(),
        granted.min(ROOM).saturating_sub(1) as i32,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_system_grants_up_to_enough() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            // others are tested beside this
            current: before.current.map(|current| current.min(ENOUGH) - 1),
            ..before
        };
        setrlimit(Resource::Nofile, low).expect("lower");
        allow_many();
        let granted = before.maximum.unwrap_or(ENOUGH).min(ENOUGH);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(granted));
        let status = std::fs::read_to_string("/proc/self/status").expect("has one");
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let room: u64 = room.expect("is there").trim().parse().expect("number");
        assert!(room >= granted.min(ROOM), "{room}");
    }
}
