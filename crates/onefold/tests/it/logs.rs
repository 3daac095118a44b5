//! Content of a log to which both standard output and standard error go, and the summary of a backup of next to
//! nothing.

use std::fs::File;

use crate::rig::{Random, Rig};

#[test]
fn in_one_log_messages_and_results_stand_in_the_order_in_which_they_were_said() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let log = File::create(rig.path("log")).expect("a log");
    let mut command = rig.command(["backup", "s", "nothing"]);
    command.stdout(log.try_clone().expect("the same file"));
    let status = command.stderr(log).status().expect("it starts");
    assert_eq!(status.code(), Some(3));
    let log = std::fs::read_to_string(rig.path("log")).expect("the log");
    let place = |words: &str| log.find(words).unwrap_or_else(|| panic!("{words}: {log}"));
    let places = [
        "error: ",
        "scanned ",
        "1 source is not there",
        "snapshot ",
        "next:",
    ];
    assert!(places.map(place).is_sorted(), "{log}");
}

#[test]
fn of_a_backup_whose_names_are_more_than_its_contents_no_saving_is_said() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let small = rig.run(["backup", "s"]).ends(0).out;
    assert!(!small.contains("dedup "), "{small}");
    assert!(!small.contains("compressed"), "{small}");
    // Others may change the folders above meanwhile: a few bytes are new all the same.
    rig.write("large/f", &Random(1).bytes(1_000_000));
    rig.backup("large");
    let again = rig.run(["backup", "large", "--force"]).ends(0).out;
    assert!(
        again.contains("of what was read need not be stored again"),
        "{again}"
    );
}
