//! What stands in the folder of an index `strata`, seen from outside, by FORMAT.md.

use onefold_io::Dir;

/// How many log files and how many runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    pub logs: usize,
    pub runs: usize,
}

/// Those that are in `dir`.
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

/// Those that the manifest names: behind a frame's head of 24 bytes, generation, `born`, `next_page` and how many
/// records are loose.
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

/// No file lies about that the manifest does not name, nor one that was to take its place.
pub fn check_no_leftovers(dir: &dyn Dir, when: &str) {
    assert_eq!(files_in(dir), files_named_in(dir), "{when}");
    let is_temporary = |name: &str| name.starts_with("tmp-");
    let list = dir.list().expect("list");
    assert!(
        !list.iter().any(|entry| is_temporary(&entry.name)),
        "{when}: {list:?}"
    );
}
