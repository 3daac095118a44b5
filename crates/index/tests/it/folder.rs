//! Files in the folder of an index `strata`, seen from outside, by FORMAT.md.

use onefold_io::Dir;

/// Numbers of log files and of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    pub logs: usize,
    pub runs: usize,
}

/// The number of files in `dir`.
pub fn files_in(dir: &dyn Dir) -> Files {
    let names: Vec<String> = dir
        .list()
        .expect("list")
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let count = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
    Files {
        logs: count("log-"),
        runs: count("run-"),
    }
}

/// The number of files that the manifest names. Behind a frame's head of 24 bytes stand generation, `born`, `next_page`
/// and the number of loose records.
pub fn files_named_in(dir: &dyn Dir) -> Files {
    let Ok(manifest) = dir.open("manifest") else {
        return Files { logs: 0, runs: 0 };
    };
    let count = |at| {
        let mut bytes = [0; 4];
        manifest.read_at(&mut bytes, at).expect("read");
        u32::from_le_bytes(bytes) as usize
    };
    Files {
        logs: count(48),
        runs: count(52),
    }
}

/// Asserts that the folder has no file that the manifest does not name, and no unfinished manifest.
pub fn check_no_leftovers(dir: &dyn Dir, when: &str) {
    assert_eq!(files_in(dir), files_named_in(dir), "{when}");
    let is_temporary = |name: &str| name.starts_with("tmp-");
    let list = dir.list().expect("list");
    assert!(
        !list.iter().any(|entry| is_temporary(&entry.name)),
        "{when}: {list:?}"
    );
}
