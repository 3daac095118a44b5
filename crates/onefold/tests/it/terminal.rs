//! On a terminal: prompts, the offer to make a repository, the progress bar. The terminal is `script`'s, which every Debian has.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::rig::Rig;

/// Runs the program on a terminal, typing `keys`; gives what the screen showed and the exit code.
fn on_terminal(rig: &Rig, args: &str, keys: &str) -> Option<(String, Option<i32>)> {
    let command = format!("{} {args}", env!("CARGO_BIN_EXE_onefold"));
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
    let output = child.wait_with_output().ok()?;
    drop(typed);
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
        println!("there is no `script` here: terminals are not tested");
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
