//! Raises the number of files that the program may have open, from the low default to the system's limit.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Highest limit that is set: some programs that are started from here close all numbers up to the limit, which may be
/// a billion.
const ENOUGH: u64 = 1 << 16;
/// Numbers that the table of open files has room for: more than a backup has open at once.
const ROOM: u64 = 1 << 13;

/// Raises the limit to the system's maximum, if that is more. Where that fails, the old limit stays: then an index of
/// some hundred files may be rebuilt or not be used. Must be called before any other thread is started.
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

/// Makes the system's table of this process's open files as long as it will be, 64 KiB. The system doubles the table as
/// numbers are needed, and where there are several threads it waits each time until none of them can still see the old
/// table: some 8 ms, in which no file can be opened; 40 ms for a backup of many small files, which has thousands open
/// at once.
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
            // other tests run at the same time and need files
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
