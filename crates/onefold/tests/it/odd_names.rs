//! Names that are not UTF-8, in what programs read: JSON has their text, and beside it all of their bytes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::rig::{Ran, Random, Rig, files, id_of};

/// The bytes of a field, from the second one beside it.
fn bytes(object: &Value, field: &str) -> Vec<u8> {
    let second = &object[format!("{field}_base64")];
    decoded(second.as_str().unwrap_or_else(|| panic!("{object}")))
}

fn decoded(text: &str) -> Vec<u8> {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').chars();
    let digits = digits.map(|c| alphabet.find(c).expect("a letter of base64") as u32);
    let digits: Vec<u32> = digits.collect();
    let groups = digits.chunks(4).flat_map(|group| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | group.get(at).unwrap_or(&0));
        bits.to_be_bytes()[1..group.len()].to_vec()
    });
    groups.collect()
}

/// The first line about the file `n\xff`, whose text is alike for two files.
fn line_of(ran: &Ran, field: &str, path: &[u8]) -> Value {
    let is_it =
        |line: &Value| line[format!("{field}_base64")].is_string() && bytes(line, field) == path;
    let mut lines = ran.lines().into_iter();
    let found = lines.find(is_it);
    found.unwrap_or_else(|| panic!("{}", ran.out))
}

#[test]
fn every_verb_gives_all_bytes_of_a_name_in_a_second_field() {
    let rig = Rig::open();
    let folder = rig.path("s").join(OsStr::from_bytes(b"d\xfe"));
    fs::create_dir_all(&folder).expect("made");
    let file = folder.join(OsStr::from_bytes(b"n\xff"));
    fs::write(&file, b"one").expect("written");
    fs::write(folder.join(OsStr::from_bytes(b"n\xfd")), b"two").expect("written");
    fs::write(folder.join("plain"), b"three").expect("written");
    symlink(OsStr::from_bytes(b"to\xff"), folder.join("link")).expect("linked");
    let path = file.as_os_str().as_bytes();
    let of_folder = folder.as_os_str().as_bytes();

    let run = |args: &[&str]| {
        let args = args.iter().map(OsString::from);
        rig.run(args.chain([OsString::from("--json")])).ends(0)
    };
    let backup = [OsStr::new("backup"), folder.as_os_str(), OsStr::new("-v")];
    let backup = rig
        .run(backup.into_iter().chain([OsStr::new("--json")]))
        .ends(0);
    let id = id_of(&backup);
    assert_eq!(line_of(&backup, "item", path)["action"], "new");

    let snapshots = run(&["snapshots"]).last();
    let named = |snapshot: &Value| decoded(snapshot["paths_base64"][0].as_str().expect("text"));
    assert_eq!(named(&snapshots[0]), of_folder);
    assert_eq!(named(&run(&["cat", "snapshot", &id]).last()), of_folder);
    let grouped = run(&["snapshots", "--group-by", "paths"]).last();
    assert_eq!(named(&grouped[0]["group_key"]), of_folder);
    let forget = run(&["forget", "--keep-last", "1", "--dry-run"]).last();
    assert_eq!(named(&forget[0]), of_folder);

    let listed = run(&["ls", "latest"]);
    let node = line_of(&listed, "path", path);
    assert_eq!(bytes(&node, "name"), b"n\xff");
    let link = folder.join("link");
    let link = line_of(&listed, "path", link.as_os_str().as_bytes());
    assert_eq!(bytes(&link, "linktarget"), b"to\xff");
    assert_eq!(link["name"], "link");
    assert!(link["name_base64"].is_null(), "its text says all: {link}");
    let ncdu = rig.run(["ls", "--ncdu", "latest"]).ends(0).out;
    assert!(ncdu.contains("\"name_base64\":\"bv8=\""), "{ncdu}");
    let found = run(&["find", "n*"]).last();
    let names = [0, 1].map(|at| bytes(&found[0]["matches"][at], "name"));
    assert_eq!(names, [b"n\xfd", b"n\xff"]);

    let blobs = run(&["list", "blobs"]);
    let lines = blobs.lines();
    let ids = lines.iter().filter_map(|blob| blob["id"].as_str());
    let met = ids.flat_map(|id| run(&["find", "--blob", id]).last().as_array().cloned());
    let met: Vec<Value> = met.flatten().collect();
    assert!(
        met.iter()
            .any(|one| one["path_base64"].is_string() && bytes(one, "path") == path)
    );

    fs::write(&file, b"changed").expect("written");
    let again = [OsStr::new("backup"), folder.as_os_str()];
    rig.run(again).ends(0);
    let diff = run(&["diff", &id, "latest"]);
    assert_eq!(line_of(&diff, "path", path)["modifier"], "M");

    let restored = run(&["restore", "latest", "--target", "t", "-v"]);
    line_of(&restored, "item", path);
    let copy = rig
        .path("t")
        .join(file.strip_prefix("/").expect("absolute"));
    assert_eq!(fs::read(copy).expect("there"), b"changed");
}

#[test]
fn an_error_names_all_bytes_of_its_path() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let none = PathBuf::from(OsString::from_vec(b"none\xff".to_vec()));
    let args = [OsStr::new("backup"), OsStr::new("s"), none.as_os_str()];
    let ran = rig
        .run(args.into_iter().chain([OsStr::new("--json")]))
        .ends(3);
    let errors = ran.errors();
    let error = errors.iter().find(|line| line["message_type"] == "error");
    let path = rig.path("").join(none);
    assert_eq!(
        bytes(error.expect("told"), "item"),
        path.as_os_str().as_bytes()
    );
}

/// Damaged files are named in full, too: by the verbs that find damage, that salvage, and that repair.
#[test]
fn damage_is_told_with_all_bytes_of_the_path() {
    let rig = Rig::open();
    fs::create_dir_all(rig.path("s")).expect("made");
    let file = rig.path("s").join(OsStr::from_bytes(b"n\xff"));
    let path = file.as_os_str().as_bytes();
    fs::write(&file, Random(3).bytes(300_000)).expect("written");
    rig.backup("s");
    let folder = rig.repo().join("containers");
    let all = files(&folder);
    let (name, content) = all
        .iter()
        .max_by_key(|(_, content)| content.len())
        .expect("one");
    let mut content = content.clone();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(folder.join(name), content).expect("ours");

    let run = |args: &[&OsStr]| rig.run(args.iter().chain([&OsStr::new("--json")])).ends(13);
    let words = |words: &'static str| words.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let told_beside = |ran: &Ran, field: &str| {
        let errors = ran.errors();
        let named = |line: &&Value| line[format!("{field}_base64")].is_string();
        let line = errors.iter().find(named);
        bytes(line.unwrap_or_else(|| panic!("{}", ran.err)), field)
    };
    let checked = run(&words("check --read-data"));
    assert_eq!(line_of(&checked, "path", path)["what"], "file");
    let of_file = [&words("dump --salvage latest")[..], &[file.as_os_str()]].concat();
    assert_eq!(told_beside(&run(&of_file), "item"), path);
    for archive in ["tar", "zip"] {
        let dump = format!("dump --salvage --target {archive} --archive {archive} latest");
        let dump: Vec<&OsStr> = dump.split(' ').map(OsStr::new).collect();
        assert_eq!(told_beside(&run(&dump), "item"), path, "{archive}");
    }
    let restored = run(&words("restore latest --target t"));
    assert!(told_beside(&restored, "item").ends_with(b"n\xff"));
    run(&words("repair all"));
    let repaired = rig.run(["repair", "snapshots", "--json"]).ends(0);
    assert_eq!(line_of(&repaired, "path", path)["what"], "file");
}
