//! On a terminal: prompts, the offer to make a repository, the progress bar.

use std::process::Command;

use crate::rig::{PASSWORD, Random, Rig};
use crate::tty::{hidden, on_terminal, on_terminal_of, shown};
use crate::untested::{has, is_root, not_tested};

#[test]
fn a_terminal_is_asked() {
    let rig = Rig::empty();
    rig.write("s/f", &[1; 100_000]);
    let (screen, code) = on_terminal(&rig, "backup s", &[shown("make one?", "n\n")]);
    assert_eq!(code, Some(10), "{screen}");
    assert!(screen.contains("make one?"), "{screen}");
    assert!(!rig.repo().exists());
    let made = [
        shown("make one?", "y\n"),
        hidden("password for", "horse\n"),
        hidden("once more", "horse\n"),
    ];
    let (screen, code) = on_terminal(&rig, "backup s", &made);
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("saved"), "{screen}");
    let answers = [
        hidden("password for", "wrong\n"),
        hidden("try again", "horse\n"),
    ];
    let (screen, code) = on_terminal(&rig, "snapshots", &answers);
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("try again") && screen.contains("1 snapshot"),
        "{screen}"
    );
}

#[test]
fn two_new_passwords_that_differ_are_asked_for_again() {
    let rig = Rig::empty();
    let both = |first, second| [hidden("password for", first), hidden("once more", second)];
    let differing = || both("horse\n", "house\n");
    let thrice = [differing(), differing(), differing()];
    let (screen, code) = on_terminal(&rig, "init", thrice.as_flattened());
    assert_eq!(code, Some(12), "{screen}");
    assert_eq!(screen.matches("differ, try again").count(), 2, "{screen}");
    assert!(!rig.repo().join("config").exists(), "{screen}");
    let again = [differing(), both("horse\n", "horse\n")];
    let (screen, code) = on_terminal(&rig, "init", again.as_flattened());
    assert_eq!(code, Some(0), "{screen}");
    let right = [hidden("password for", "horse\n")];
    let (screen, code) = on_terminal(&rig, "snapshots", &right);
    assert_eq!(code, Some(0), "{screen}");
}

/// Standard input may be what is backed up.
#[test]
fn a_password_is_asked_for_at_the_terminal_wherever_standard_input_comes_from() {
    let rig = Rig::new();
    let password = format!("{PASSWORD}\n").leak();
    for (first, args) in [
        ("echo piped |", "backup --stdin"),
        ("", "snapshots < /dev/null"),
        ("", "snapshots 2> words"),
    ] {
        let answers = [hidden("password for", password)];
        let (screen, code) = on_terminal_of(&rig, first, args, &answers);
        assert_eq!(code, Some(0), "{first} {args}: {screen}");
        assert!(screen.contains("password for"), "{first} {args}: {screen}");
    }
    assert_eq!(rig.run(["dump", "latest", "stdin"]).ends(0).out, "piped\n");
    // A session of its own has no terminal.
    let (screen, code) = on_terminal_of(&rig, "setsid --wait", "snapshots", &[]);
    assert_eq!(code, Some(12), "{screen}");
    assert!(screen.contains("no password was given"), "{screen}");
}

/// There the group that the terminal listens to has no number.
#[test]
fn in_a_namespace_of_processes_the_terminal_is_asked_where_there_is_one() {
    if !is_root() || !has("unshare") {
        return;
    }
    let inside = "unshare --pid --fork --mount-proc";
    if !Command::new("sh")
        .args(["-c", &format!("{inside} true")])
        .status()
        .is_ok_and(|it| it.success())
    {
        not_tested("there are no namespaces of processes here");
        return;
    }
    let rig = Rig::new();
    let answers = [hidden("password for", format!("{PASSWORD}\n").leak())];
    let (screen, code) = on_terminal_of(&rig, inside, "snapshots", &answers);
    assert_eq!(code, Some(0), "{screen}");
    let (screen, code) = on_terminal_of(&rig, &format!("setsid --wait {inside}"), "snapshots", &[]);
    assert_eq!(code, Some(12), "{screen}");
    assert!(screen.contains("no password was given"), "{screen}");
}

/// A line that is overwritten is never wider than the terminal, and the last line is clean.
#[test]
fn progress_fits_the_terminal() {
    let rig = Rig::open();
    for n in 0..4 {
        let name = format!("s/a-name-that-is-much-longer-than-the-terminal-is-wide/{n}");
        rig.write(&name, &Random(n).bytes(12 << 20));
    }
    for columns in [20, 40, 132] {
        let first = format!("stty cols {columns} rows 24;");
        let args = "backup s --force --threads 1 --compression max";
        let (screen, code) = on_terminal_of(&rig, &first, args, &[]);
        assert_eq!(code, Some(0), "{screen}");
        let Some((progress, summary)) = screen.rsplit_once("\r\x1b[2K") else {
            println!("too fast to be seen");
            continue;
        };
        assert!(summary.starts_with("scanned"), "{summary}");
        for drawn in progress.split("\r\x1b[2K") {
            let line = drawn.rsplit(['\r', '\n']).next().unwrap_or_default();
            let text = line.trim_end();
            assert!(text.chars().count() < columns, "{columns}: {line:?}");
            assert!(line.chars().count() <= columns, "{columns}: {line:?}");
        }
        assert!(!progress.contains("\x1b[?25l"), "the cursor is hidden");
    }
    let (screen, code) = on_terminal_of(&rig, "TERM=dumb", "backup s --force", &[]);
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
}

/// Before there is a repository there are no older snapshots.
#[test]
fn an_interrupted_question_about_a_new_repository_says_that_there_is_none() {
    let rig = Rig::empty();
    rig.write("s/f", b"text");
    let offered = [shown("make one?", "y\n"), hidden("password for", "\x03")];
    let asked = || {
        [
            hidden("password for", "horse\n"),
            hidden("once more", "\x03"),
        ]
    };
    for (args, answers) in [
        ("backup s", offered),
        ("backup --init s", asked()),
        ("init", asked()),
    ] {
        let (screen, code) = on_terminal(&rig, args, &answers);
        assert_eq!(code, Some(130), "{args}: {screen}");
        assert!(
            screen.contains("no repository was made"),
            "{args}: {screen}"
        );
        assert!(!rig.repo().exists(), "{args}");
    }
}

#[test]
fn an_archive_is_not_poured_onto_a_terminal() {
    let rig = Rig::open();
    rig.write("s/f", b"text");
    rig.backup("s");
    let (screen, code) = on_terminal(&rig, "dump latest", &[]);
    assert_eq!(code, Some(2), "{screen}");
    assert!(screen.contains("--target FILE"), "{screen}");
    let file = format!("dump latest {}", rig.path("s/f").display());
    assert_eq!(on_terminal(&rig, &file, &[]), ("text".into(), Some(0)));
}
