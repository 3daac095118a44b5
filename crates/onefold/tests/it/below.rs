//! `SNAPSHOT:PATH`: what a verb prints and takes begins at PATH, as with restic.

use std::fs;

use crate::rig::Rig;

/// restic's patterns of a restore begin where the restore does.
#[test]
fn patterns_of_a_restore_begin_at_the_path_that_is_restored() {
    let rig = Rig::open();
    for name in ["s/a/one", "s/a/two", "s/b/one", "s/s/a"] {
        rig.write(name, b"x");
    }
    rig.backup("s");
    let at = rig.path("s").display().to_string();
    let restored = |flags: &[&str]| -> Vec<String> {
        let spec = format!("latest:{at}");
        let args = [&["restore", &spec, "-t", "t"], flags].concat();
        rig.run(args).ends(0);
        let files = crate::rig::files(&rig.path("t"));
        fs::remove_dir_all(rig.path("t")).expect("ours");
        files
            .into_keys()
            .map(|name| name.display().to_string())
            .collect()
    };
    let from_root = format!("{at}/a");
    let small = from_root.to_lowercase();
    for flags in [
        ["-i", "/a"],
        ["-i", &from_root],
        ["--iinclude", "/A"],
        ["--iinclude", &small],
    ] {
        assert_eq!(restored(&flags), ["a/one", "a/two"], "{flags:?}");
    }
    for flags in [["-e", "/a"], ["-e", &from_root]] {
        assert_eq!(restored(&flags), ["b/one", "s/a"], "{flags:?}");
    }
    assert_eq!(restored(&["-e", "s"]), ["a/one", "a/two", "b/one"]);
    assert_eq!(restored(&["-e", "/*", "-e", "!/b"]), ["b/one"]);
    assert_eq!(
        restored(&["-e", "/*", "-e", &format!("!{at}/b")]),
        ["b/one"]
    );
}

#[test]
fn a_listing_below_a_path_begins_there() {
    let rig = Rig::open();
    for name in ["s/a/one", "s/a/sub/two", "s/b"] {
        rig.write(name, b"x");
    }
    fs::create_dir(rig.path("s/empty")).expect("make");
    rig.backup("s");
    let spec = |below: &str| format!("latest:{}{below}", rig.path("s").display());
    let listed = |args: &[&str]| rig.run([&["ls", "-q"], args].concat()).ends(0).out;
    assert_eq!(listed(&[&spec("/a")]), "/one\n/sub\n/sub/two\n");
    assert_eq!(listed(&[&spec("/a"), "/sub"]), "/sub\n/sub/two\n");
    assert_eq!(listed(&[&spec(""), "/"]), "/a\n/b\n/empty\n");
    assert_eq!(listed(&[&spec("/b")]), "/b\n");
    assert_eq!(listed(&[&spec("/empty")]), "");
    let node = rig.run(["ls", &spec("/a/sub"), "--json"]).ends(0).last();
    assert_eq!(node["path"], "/two");
    rig.run(["ls", &spec("/a"), "/nope"]).ends(1);
    rig.run(["ls", &spec("/nope")]).ends(1);
}
