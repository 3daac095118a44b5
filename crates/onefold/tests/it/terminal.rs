//! On a terminal: prompts, the offer to make a repository, the progress bar. The terminal is `script`'s, which every Debian has.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::rig::{Random, Rig};
use crate::untested::has;

/// Runs the program on a terminal, typing `keys`; gives what the screen showed and the exit code.
fn on_terminal(rig: &Rig, args: &str, keys: &str) -> Option<(String, Option<i32>)> {
    on_terminal_of(rig, "", args, keys)
}

/// The same, after a command of the shell.
fn on_terminal_of(rig: &Rig, first: &str, args: &str, keys: &str) -> Option<(String, Option<i32>)> {
    if !has("script") {
        return None;
    }
    let command = format!("{first} {} {args}", env!("CARGO_BIN_EXE_onefold"));
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(rig.dir.path());
    script
        .env_remove("ONEFOLD_PASSWORD")
        .env("ONEFOLD_REPOSITORY", rig.repo())
        .env("TERM", "xterm");
    let mut child = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut typed = child.stdin.take()?;
    for line in keys.split_inclusive('\n') {
        typed.write_all(line.as_bytes()).ok()?;
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    // A program that asks once more than was thought is not waited for for ever.
    let (ended, over) = std::sync::mpsc::channel::<()>();
    let patience = std::thread::spawn(move || {
        let _ = over.recv_timeout(std::time::Duration::from_secs(60));
        drop(typed);
    });
    let output = child.wait_with_output().ok()?;
    drop(ended);
    patience.join().ok()?;
    Some((
        String::from_utf8_lossy(&output.stdout).into_owned(),
        output.status.code(),
    ))
}

#[test]
fn a_terminal_is_asked() {
    let rig = Rig::empty();
    rig.write("s/f", &[1; 100_000]);
    let Some((screen, code)) = on_terminal(&rig, "backup s", "n\n") else {
        return;
    };
    assert_eq!(code, Some(10), "{screen}");
    assert!(screen.contains("make one?"), "{screen}");
    assert!(!rig.repo().exists());
    let (screen, code) = on_terminal(&rig, "backup s", "y\nhorse\nhouse\n").expect("as before");
    assert_eq!(code, Some(12), "{screen}");
    let (screen, code) = on_terminal(&rig, "backup s", "y\nhorse\nhorse\n").expect("as before");
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("saved"), "{screen}");
    let (screen, code) = on_terminal(&rig, "snapshots", "wrong\nhorse\n").expect("as before");
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("try again") && screen.contains("1 snapshot"),
        "{screen}"
    );
}

/// Standard input may be what is backed up.
#[test]
fn a_password_is_asked_for_at_the_terminal_wherever_standard_input_comes_from() {
    let rig = Rig::new();
    let keys = format!("{}\n", crate::rig::PASSWORD);
    for (first, args) in [
        ("echo piped |", "backup --stdin"),
        ("", "snapshots < /dev/null"),
        ("", "snapshots 2> words"),
    ] {
        let Some((screen, code)) = on_terminal_of(&rig, first, args, &keys) else {
            return;
        };
        assert_eq!(code, Some(0), "{first} {args}: {screen}");
        assert!(screen.contains("password for"), "{first} {args}: {screen}");
    }
    assert_eq!(rig.run(["dump", "latest", "stdin"]).ends(0).out, "piped\n");
    // A session of its own has no terminal.
    let Some((screen, code)) = on_terminal_of(&rig, "setsid --wait", "snapshots", "") else {
        return;
    };
    assert_eq!(code, Some(12), "{screen}");
    assert!(screen.contains("no password was given"), "{screen}");
}

/// What is written over is never wider than the terminal, and the last line is clean.
#[test]
fn progress_fits_the_terminal() {
    let rig = Rig::open();
    for n in 0..4 {
        let name = format!("s/a-name-that-is-much-longer-than-the-terminal-is-wide/{n}");
        rig.write(&name, &Random(n).bytes(12 << 20));
    }
    for columns in [20, 40, 132] {
        let first = format!("stty cols {columns};");
        let args = "backup s --force --threads 1 --compression max";
        let Some((screen, code)) = on_terminal_of(&rig, &first, args, "") else {
            return;
        };
        assert_eq!(code, Some(0), "{screen}");
        let Some((progress, summary)) = screen.rsplit_once("\r\x1b[K") else {
            println!("too fast to be seen");
            continue;
        };
        assert!(summary.starts_with("scanned"), "{summary}");
        for line in progress
            .split("\x1b[K")
            .filter_map(|line| line.split('\r').next_back())
        {
            assert!(line.chars().count() < columns, "{columns}: {line:?}");
        }
        assert!(!progress.contains("\x1b[?25l"), "the cursor is hidden");
    }
    let (screen, code) =
        on_terminal_of(&rig, "TERM=dumb", "backup s --force", "").expect("as before");
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
}

/// Before there is a repository there are no older snapshots.
#[test]
fn an_interrupted_question_about_a_new_repository_says_that_there_is_none() {
    let rig = Rig::empty();
    rig.write("s/f", b"text");
    for (args, keys) in [
        ("backup s", "y\n\x03"),
        ("backup --init s", "horse\n\x03"),
        ("init", "horse\n\x03"),
    ] {
        let Some((screen, code)) = on_terminal(&rig, args, keys) else {
            return;
        };
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
    let Some((screen, code)) = on_terminal(&rig, "dump latest", "") else {
        return;
    };
    assert_eq!(code, Some(2), "{screen}");
    assert!(screen.contains("--target FILE"), "{screen}");
    let file = format!("dump latest {}", rig.path("s/f").display());
    assert_eq!(on_terminal(&rig, &file, ""), Some(("text".into(), Some(0))));
}
