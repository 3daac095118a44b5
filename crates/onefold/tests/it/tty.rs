//! A terminal for the program: what it shows is read, and answers are typed when they are asked for.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::rig::Rig;
use crate::wait::wait_until;

/// A program that asks once more than was thought is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that is typed once the screen shows `after`; a hidden answer must not appear on the screen.
pub struct Answer {
    after: &'static str,
    is_hidden: bool,
    typed: &'static str,
}

pub fn shown(after: &'static str, typed: &'static str) -> Answer {
    Answer {
        after,
        is_hidden: false,
        typed,
    }
}

pub fn hidden(after: &'static str, typed: &'static str) -> Answer {
    Answer {
        after,
        is_hidden: true,
        typed,
    }
}

/// Runs the program on a terminal; gives what the screen showed and the exit code.
pub fn on_terminal(rig: &Rig, args: &str, answers: &[Answer]) -> (String, Option<i32>) {
    on_terminal_of(rig, "exec", args, answers)
}

/// The same, after words of the shell.
pub fn on_terminal_of(
    rig: &Rig,
    first: &str,
    args: &str,
    answers: &[Answer],
) -> (String, Option<i32>) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("grant");
    unlockpt(&master).expect("unlock");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let both = OFlags::RDWR | OFlags::NOCTTY;
    let slave = open(name.as_c_str(), both, Mode::empty()).expect("its other side");
    let also = || slave.try_clone().expect("clone");
    let command = format!("{first} {} {args}", env!("CARGO_BIN_EXE_onefold"));
    let child = Command::new("setsid")
        .args(["--ctty", "sh", "-c", &command])
        .current_dir(rig.dir.path())
        .env_remove("ONEFOLD_PASSWORD")
        .env("ONEFOLD_REPOSITORY", rig.repo())
        .env("TERM", "xterm")
        .stdin(also())
        .stdout(also())
        .stderr(also())
        .spawn();
    let mut child = child.expect("setsid");
    drop(slave);
    let mut screen = Screen {
        terminal: File::from(master),
        seen: Vec::new(),
    };
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, over) = mpsc::channel::<()>();
    let patience = std::thread::spawn(move || {
        if over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    screen.answer(answers);
    while screen.more() {}
    let status: ExitStatus = child.wait().expect("wait");
    drop(ended);
    patience.join().expect("join");
    let seen = String::from_utf8_lossy(&screen.seen).into_owned();
    (seen, status.code())
}

struct Screen {
    terminal: File,
    seen: Vec<u8>,
}

impl Screen {
    /// Reads on; not where nobody has the other side open any more.
    fn more(&mut self) -> bool {
        let mut buf = [0; 4096];
        let read = self.terminal.read(&mut buf).unwrap_or(0);
        self.seen.extend_from_slice(&buf[..read]);
        read > 0
    }

    fn answer(&mut self, answers: &[Answer]) {
        let mut from = 0;
        for answer in answers {
            let after = answer.after.as_bytes();
            let at = loop {
                let all = self.seen[from..].windows(after.len());
                match all.into_iter().position(|it| it == after) {
                    Some(at) => break at,
                    None if self.more() => {}
                    None => return,
                }
            };
            from += at + after.len();
            if answer.is_hidden {
                wait_until("a hidden answer", || !self.echoes());
            }
            let _ = self.terminal.write_all(answer.typed.as_bytes());
        }
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.terminal).is_ok_and(|it| it.local_modes.contains(LocalModes::ECHO))
    }
}
