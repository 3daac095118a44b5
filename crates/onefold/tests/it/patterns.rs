//! Patterns that do not mean what they seem to: whoever wrote them believes that something is left out.

use std::fs;

use crate::rig::Rig;

#[test]
fn a_pattern_that_waits_for_a_shell_is_told_with_its_place() {
    let rig = Rig::open();
    rig.write("s/x", b"x");
    rig.write("ex", b"# mine\n\n~/x\n.~lock*\n*~\n$RECYCLE.BIN\n");
    let home = |args: &[&str], code| {
        let mut command = rig.command(args);
        let ran = command.env("HOME", "/h/ann").output().expect("runs");
        crate::rig::Ran::from(ran).ends(code)
    };
    let ran = home(&["backup", "s", "--exclude-file", "ex", "-e", "$HOME/y"], 0);
    let told = [
        "warning: the pattern $HOME/y: nothing puts the value of the variable HOME in place of its name: write /h/ann/y, or",
        "warning: ex, line 3: the pattern ~/x: nothing puts your home folder in place of the ~: write /h/ann/x, or ./~/x",
    ];
    for (line, told) in ran.err.lines().zip(told) {
        assert!(line.starts_with(told), "{line}");
    }
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    let warnings = home(&["backup", "s", "--json", "--iexclude-file", "ex"], 0).errors();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0]["message_type"], "warning");
    let message = warnings[0]["message"].as_str().expect("words");
    assert!(
        message.starts_with("ex, line 3: the pattern ~/x"),
        "{message}"
    );

    let mut command = rig.command(["backup", "s", "--exclude-file", "-"]);
    command.stdin(fs::File::open(rig.path("ex")).expect("there"));
    let said = crate::rig::Ran::from(command.output().expect("runs")).err;
    assert!(
        said.contains("warning: standard input, line 3: the pattern ~/x"),
        "{said}"
    );

    let whole = rig.path("up").display().to_string();
    let restored = [
        "restore",
        "latest",
        "--target",
        "t",
        "-n",
        "--include",
        "../up",
    ];
    let estimated = ["estimate", ".", "--sizes", "4k", "-e", "../up"];
    for args in [&restored[..], &["find", "../up"], &estimated] {
        let mut command = rig.command(args);
        command.current_dir(rig.path("s"));
        let ran: crate::rig::Ran = command.output().expect("runs").into();
        let told = format!(
            "the pattern ../up: it matches nothing, since patterns know no current folder: write {whole}, or up"
        );
        assert!(ran.ends(0).err.contains(&told), "{args:?}");
    }
}

#[test]
fn a_file_of_patterns_in_utf16_is_refused_and_a_wrong_line_is_named() {
    let rig = Rig::open();
    rig.write("s/a.o", b"x");
    let wide = |text: &str| -> Vec<u16> { text.encode_utf16().collect() };
    let text = wide("\u{feff}*.o\r\n");
    let little: Vec<u8> = text.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = text.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    for bytes in [&little[..], &big, &little[2..]] {
        fs::write(rig.path("ex"), bytes).expect("write");
        let said = rig.run(["backup", "s", "--exclude-file", "ex"]).ends(1).err;
        assert!(said.contains("read patterns from ex: it"), "{said}");
        assert!(said.contains("save it as"), "{said}");
    }
    fs::write(rig.path("list"), &little).expect("write");
    for option in ["--files-from", "--files-from-verbatim"] {
        let said = rig.run(["backup", option, "list"]).ends(1).err;
        assert!(
            said.contains("read paths from list: it is in UTF-16"),
            "{said}"
        );
    }
    fs::write(rig.path("list"), b"s\0").expect("write");
    let said = rig.run(["backup", "--files-from", "list"]).ends(2).err;
    assert!(said.contains("--files-from-raw"), "{said}");
    assert_eq!(rig.snapshots(), [""; 0]);
    fs::write(rig.path("ex"), "*.c\n\n[a\n").expect("write");
    let said = rig.run(["backup", "s", "--exclude-file", "ex"]).ends(2).err;
    assert!(said.contains("ex, line 3: pattern \"[a\""), "{said}");
    // An ignore file is somebody else's: the rest is backed up, and it is told.
    fs::write(rig.path("s/.ignore"), &little).expect("write");
    for verb in [&["backup"][..], &["estimate", "--sizes", "4k"]] {
        let args = [verb, &["s", "--ignore-file", ".ignore"]].concat();
        let said = rig.run(args).ends(0).err;
        let told = "s/.ignore: it is passed over: it is in UTF-16";
        assert!(said.contains(told), "{said}");
    }
    // The mark of UTF-8 is none of the first pattern.
    fs::write(rig.path("ex"), "\u{feff}*.o\n").expect("write");
    let ran = rig
        .run(["backup", "s", "--json", "--exclude-file", "ex"])
        .ends(0);
    assert_eq!(ran.last()["total_files_processed"], 1, ".ignore alone");
}
