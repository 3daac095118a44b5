//! What stands in a log to which both standard output and standard error go.

use std::fs::File;

use crate::rig::Rig;

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
