//! The simulator's faults of the medium and of folders: each occurs where it was asked for, and nowhere else.

use onefold_io::{
    Dir, Error, ErrorKind, Result,
    sim::{Faults, SimDir, When},
};

/// A folder with the disks `a`, `b` and the folder `f`.
fn folder(seed: u64) -> SimDir {
    let dir = SimDir::new(seed);
    for name in ["a", "b"] {
        dir.create(name).unwrap().write_at(&[7; 4096], 0).unwrap();
    }
    dir.subdir("f").unwrap();
    dir.sync().unwrap();
    dir
}

#[test]
fn a_bad_sector_stays_bad_on_forks_and_after_a_power_cut_until_another_disk_has_its_place() {
    let dir = folder(1);
    dir.spoil("a", 100..101).unwrap();
    dir.keep_history();
    dir.sync().unwrap();
    let after = dir.crash_image_at(0, 1).unwrap();
    for image in [dir.fork(), dir.crash_image(1), after] {
        let read = |name: &str, at| image.open(name)?.read_at(&mut [0; 50], at);
        assert_eq!(read("a", 90).unwrap_err().kind, ErrorKind::Medium);
        read("a", 101).unwrap();
        read("b", 90).unwrap();
        image.remove("a").unwrap();
        image.rename("b", "a").unwrap();
        read("a", 90).unwrap();
    }
}

/// An operation on folders, a test whether it has happened after a failure, and its name.
type Operation = (fn(&SimDir) -> Result<()>, fn(&SimDir) -> bool, &'static str);

const OPERATIONS: [Operation; 7] = [
    (
        |dir| dir.create("c").map(drop),
        |dir| dir.open("c").is_ok(),
        "create",
    ),
    (
        |dir| dir.subdir("g").map(drop),
        |dir| dir.open_subdir("g").is_ok(),
        "create folder",
    ),
    (
        |dir| dir.rename("a", "b"),
        |dir| dir.open("a").is_err(),
        "rename",
    ),
    (
        |dir| dir.rename_new("a", "c"),
        |dir| dir.open("c").is_ok(),
        "rename",
    ),
    (
        |dir| dir.remove("a"),
        |dir| dir.open("a").is_err(),
        "remove",
    ),
    (
        |dir| dir.remove_subdir("f"),
        |dir| dir.open_subdir("f").is_err(),
        "remove folder",
    ),
    (
        |dir| dir.list().map(drop),
        |dir| dir.paths().is_empty(),
        "list",
    ),
];

fn assert_failed(error: &Error, op: &str) {
    assert_eq!((error.op, error.kind), (op, ErrorKind::Medium), "{error}");
}

#[test]
fn an_operation_on_a_folder_fails_where_it_was_asked_for_and_may_have_happened() {
    for (operation, has_happened, op) in OPERATIONS {
        let mut happened = 0;
        for seed in 0..40 {
            let dir = folder(seed);
            dir.inject(Faults {
                folder_error: When::Once(1),
                ..Faults::default()
            });
            dir.list().unwrap();
            assert_failed(&operation(&dir).unwrap_err(), op);
            assert_eq!(dir.counts().folders, 2);
            happened += u64::from(has_happened(&dir));
            dir.list().unwrap();
            // Taken names and the bytes of disks do not fail.
            dir.open("b").unwrap().read_at(&mut [0], 0).unwrap();
        }
        let changes = op != "list";
        assert_eq!((1..40).contains(&happened), changes, "{op}: {happened}");
    }
}

#[test]
fn a_failed_sync_of_a_folder_makes_no_name_durable_and_the_next_one_does() {
    let dir = folder(1);
    dir.create("c").unwrap();
    dir.inject(Faults {
        folder_error: When::Once(0),
        ..Faults::default()
    });
    assert_failed(&dir.sync().unwrap_err(), "sync folder");
    assert!(dir.crash_image(0).open("c").is_err());
    dir.sync().unwrap();
    assert!(dir.crash_image(0).open("c").is_ok());
}
