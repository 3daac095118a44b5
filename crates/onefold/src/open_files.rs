//! How many files the program may have open: as many as the system grants, not the few that it begins with.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Some programs that are started from here close all numbers up to the limit, which may be a billion.
const ENOUGH: u64 = 1 << 16;

/// Raises the limit to what the system grants, if that is more. Where it may not, the old one stays: an index of some
/// hundred files may then be rebuilt or done without.
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
    }
}
