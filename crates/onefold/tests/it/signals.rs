//! SIGINT and SIGTERM end cleanly with 130; a closed standard output ends quietly; so does what a limit on threads
//! ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::promises::containers;
use crate::rig::{Random, Rig, seeded};
use crate::untested::not_tested;
use crate::wait::wait_until;

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().try_into().expect("a process number")).expect("not zero");
    kill_process(pid, signal).expect("signalled");
}

/// Whether a process (`self`: this one) has the signal in a set of its status.
fn has(process: &str, set: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = u64::from_str_radix(mask.unwrap_or_default().trim(), 16);
    mask.unwrap_or(0) >> (signal.as_raw() - 1) & 1 == 1
}

/// Those that interrupt a program which is started from here: under `nohup` not all do.
fn interrupting() -> Vec<Signal> {
    let hangup = (!has("self", "SigIgn:", Signal::HUP)).then_some(Signal::HUP);
    [Signal::INT, Signal::TERM]
        .into_iter()
        .chain(hangup)
        .collect()
}

/// Whether the process catches all of the signals that interrupt it, or has ended.
fn listens(child: &Child) -> bool {
    let id = child.id().to_string();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let mut all = interrupting().into_iter();
    all.all(|which| has(&id, "SigCgt:", which)) || status.contains("State:\tZ")
}

/// Whether somebody works on the repository, and so can be asked to end.
fn has_session(rig: &Rig) -> bool {
    let sessions = std::fs::read_dir(rig.repo().join("sessions"));
    sessions.is_ok_and(|mut sessions| sessions.next().is_some())
}

/// The exit code of a child that was signalled.
#[track_caller]
fn ends(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("its end", || {
        status = child.try_wait().expect("waits");
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// A backup that reads on until the pipe is closed.
fn backup_of_a_stream(rig: &Rig) -> (Child, ChildStdin) {
    let mut child = rig
        .command(["backup", "--stdin"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let pipe = child.stdin.take().expect("a pipe");
    (child, pipe)
}

#[test]
fn a_signal_ends_a_backup_cleanly() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let kept = rig.backup("s");
    // `timeout` sends two at once.
    for (which, times) in [(Signal::INT, 1), (Signal::TERM, 2)] {
        let (child, mut pipe) = backup_of_a_stream(&rig);
        pipe.write_all(&Random(3).bytes(30 << 20)).expect("written");
        wait_until("a session", || has_session(&rig));
        // Later backups find what the first one stored, so the first signal falls once a container of data is stored.
        wait_until("a container of data", || {
            containers(&rig).first() >= Some(&(8 << 20))
        });
        (0..times).for_each(|_| signal(&child, which));
        let ended = child.wait_with_output().expect("ends");
        drop(pipe);
        assert_eq!(
            ended.status.code(),
            Some(130),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            said.starts_with("onefold: backup was interrupted\n"),
            "{said}"
        );
        assert!(said.contains("run it again"), "{said}");
        assert_eq!(
            std::fs::read_dir(rig.repo().join("sessions"))
                .expect("a folder")
                .count(),
            0
        );
    }
    assert_eq!(rig.snapshots(), [kept]);
    rig.run(["check", "--read-data"]).ends(0);
    // Chunks that the interrupted backups stored are not stored again.
    let mut child = rig
        .command(["backup", "--stdin", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&Random(3).bytes(30 << 20)).expect("written");
    drop(pipe);
    let ran: crate::rig::Ran = child.wait_with_output().expect("ends").into();
    let summary = ran.ends(0).last();
    assert!(
        summary["data_added"].as_u64().expect("a number") < 20 << 20,
        "{summary}"
    );
}

/// The other end of the pipe says nothing and does not close: a hung `pg_dump` must not make the backup one that only
/// kill -9 ends.
#[test]
fn a_signal_ends_a_backup_whose_stream_is_silent() {
    let rig = Rig::open();
    for which in interrupting() {
        let (mut child, mut pipe) = backup_of_a_stream(&rig);
        pipe.write_all(&Random(3).bytes(1 << 20)).expect("written");
        wait_until("a session", || has_session(&rig));
        signal(&child, which);
        let code = ends(&mut child);
        drop(pipe);
        assert_eq!(code, Some(130));
        let said = crate::rig::Ran::from(child.wait_with_output().expect("ends")).err;
        assert!(!said.contains("error:"), "{said}");
    }
    assert!(rig.snapshots().is_empty());
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn a_signal_ends_a_backup_whose_command_does_not_end() {
    let rig = Rig::open();
    let command = "echo $$ > pid; echo hi; exec >&- 2>&-; exec sleep 97";
    for which in interrupting() {
        let mut child = rig
            .command(["backup", "--stdin-from-command", "--", "sh", "-c", command])
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let pid = || std::fs::read_to_string(rig.path("pid")).unwrap_or_default();
        let process = || std::path::PathBuf::from(format!("/proc/{}", pid().trim()));
        wait_until("a session", || has_session(&rig));
        wait_until("a command without output", || {
            let name = std::fs::read_to_string(process().join("comm"));
            name.is_ok_and(|name| name == "sleep\n")
        });
        signal(&child, which);
        let code = ends(&mut child);
        let said = crate::rig::Ran::from(child.wait_with_output().expect("ends")).err;
        assert_eq!(code, Some(130), "{said}");
        assert!(
            said.starts_with("onefold: backup was interrupted\n"),
            "{said}"
        );
        assert!(!process().exists());
        std::fs::remove_file(rig.path("pid")).expect("removed");
    }
    assert!(rig.snapshots().is_empty());
}

/// Wherever the signal falls: prune, check, repair and forget end with 130 (or had ended), and what is kept is whole.
#[test]
fn a_signal_ends_what_works_on_the_repository_at_once() {
    let mut random = seeded("interrupted");
    let rig = Rig::open();
    for _ in 0..3 {
        crate::rig::change(&rig.path("s"), &mut random);
        rig.backup("s");
    }
    let verbs: [&[&str]; 4] = [
        &["prune", "--compact-below", "95%"],
        &["check", "--read-data"],
        &["repair"],
        &["forget", "--keep-last", "2", "--prune"],
    ];
    // Some signals come while the program reads its arguments, and some when it has ended.
    let began = Instant::now();
    rig.run(["check", "--read-data"]).ends(0);
    let mut usual_us = began.elapsed().as_micros() as u64;
    let mut interrupted = [0; 4];
    let rounds = 20 * crate::scale::scale();
    let mut round = 0;
    while round < rounds || interrupted.iter().sum::<u64>() < rounds / 10 {
        assert!(
            round < 10 * rounds,
            "{interrupted:?} of {round}: hardly any was interrupted in its work"
        );
        let verb = round as usize % verbs.len();
        let args = verbs[verb];
        crate::rig::change(&rig.path("s"), &mut random);
        rig.backup("s");
        let expected = crate::rig::files(&rig.path("s"));
        let began = Instant::now();
        let child = rig
            .command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        wait_until("its listening", || listens(&child));
        // Half of the signals come before it can have done much.
        let after_us = random.below(2) * random.below(usual_us);
        std::thread::sleep(Duration::from_micros(after_us));
        let all = interrupting();
        let which = all[round as usize % all.len()];
        signal(&child, which);
        let ended = child.wait_with_output().expect("ends");
        let (code, said) = (ended.status.code(), String::from_utf8_lossy(&ended.stderr));
        if code == Some(0) {
            // The signal came too late: later ones fall within the time that this run took.
            usual_us = began.elapsed().as_micros() as u64;
        }
        if code == Some(130) && !said.is_empty() {
            // Empty: it had not even read its arguments.
            let headline = format!("onefold: {} was interrupted\n", args[0]);
            assert!(said.starts_with(&headline), "{said}");
            assert_eq!(said.lines().count(), 2, "{said}");
            interrupted[verb] += 1;
        }
        assert!(matches!(code, Some(0 | 130)), "{args:?}: {code:?}");
        rig.run(["check", "--read-data"]).ends(0);
        assert_eq!(rig.restored("latest", "s"), expected, "{args:?}");
        round += 1;
    }
    println!("{interrupted:?} of {round} were interrupted in their work");
}

#[test]
fn a_signal_leaves_no_half_of_a_dump() {
    let rig = Rig::open();
    // This data takes little room, and a while to be written out; a hole would not.
    let much = ["sh", "-c", "yes onefold | head -c 2147483648"];
    let backup = ["backup", "--stdin-from-command", "--"];
    rig.run(backup.iter().chain(&much)).ends(0);
    for archive in ["tar", "zip"] {
        let interrupted = || {
            let mut child = rig
                .command(["dump", "latest", "/", "--target", "half", "-a", archive])
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            wait_until("the file", || rig.path("half").exists());
            signal(&child, Signal::INT);
            ends(&mut child)
        };
        let mut code = interrupted();
        if code == Some(0) {
            // The dump had ended before its signal.
            std::fs::remove_file(rig.path("half")).expect("it is whole");
            code = interrupted();
        }
        assert_eq!(code, Some(130), "{archive}");
        assert!(!rig.path("half").exists(), "{archive}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let rig = Rig::open();
    let mut child = rig
        .command(["backup", "--stdin"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("starts");
    let pipe = child.stdin.take().expect("a pipe");
    wait_until("a session", || {
        std::fs::read_dir(rig.repo().join("sessions")).is_ok_and(|mut dir| dir.next().is_some())
    });
    signal(&child, Signal::INT);
    let id = child.id().to_string();
    wait_until("the first to arrive", || !has(&id, "ShdPnd:", Signal::INT));
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    drop(pipe);
    rig.run(["check"]).ends(0);
}

#[test]
fn a_closed_pipe_is_quiet() {
    let rig = Rig::open();
    for n in 0..3000 {
        rig.write(
            &format!("s/a-file-with-a-rather-long-name-that-fills-the-pipe-{n}"),
            b"",
        );
    }
    rig.write("s/big", &Random(4).bytes(3 << 20));
    rig.backup("s");
    let big = rig.path("s/big").display().to_string();
    for args in [
        &["ls", "latest"][..],
        &["ls", "latest", "--json"],
        &["find", "*"],
        &["dump", "latest", &big],
        &["dump", "latest", "/"],
    ] {
        let mut child = rig
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut first = Vec::new();
        BufReader::with_capacity(64, child.stdout.take().expect("a pipe"))
            .read_until(b'\n', &mut first)
            .expect("read");
        let ended = child.wait_with_output().expect("ends");
        let err = String::from_utf8_lossy(&ended.stderr);
        // A list that was cut off is as long as was wanted; half a file is none.
        let code = i32::from(args[0] == "dump");
        let found = (ended.status.code(), err.as_ref());
        assert_eq!(found, (Some(code), ""), "{args:?}");
    }
}

#[test]
fn sigusr1_asks_how_far_it_is() {
    let rig = Rig::open();
    let (mut child, mut pipe) = backup_of_a_stream(&rig);
    pipe.write_all(&Random(3).bytes(1 << 20)).expect("written");
    wait_until("a listener", || {
        listens(&child) && has(&child.id().to_string(), "SigCgt:", Signal::USR1)
    });
    signal(&child, Signal::USR1);
    let mut line = String::new();
    let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
    err.read_line(&mut line).expect("read");
    assert!(line.contains("/s"), "{line}");
    drop(pipe);
    assert!(child.wait().expect("ends").success());
}

/// As many as `ulimit -u`, a container or systemd allow.
#[test]
fn a_limit_on_threads_is_an_error_and_no_panic() {
    if !rustix::process::geteuid().is_root() {
        return not_tested("a limit on threads, which only root can set for another user");
    }
    let rig = Rig::empty();
    rig.write("s/f", b"x");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(rig.dir.path(), all).expect("chmod");
    let as_other = |limit: &[&str], args: &[&str]| {
        let limited = [limit, &["setpriv", "--reuid=61234", "--clear-groups"]].concat();
        let program = rig.command(args);
        let mut command = std::process::Command::new(limited[0]);
        command
            .args(&limited[1..])
            .arg(program.get_program())
            .args(args);
        command.current_dir(rig.dir.path());
        let variables = program.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        command.output().map(crate::rig::Ran::from)
    };
    if !as_other(&["env"], &["version"]).is_ok_and(|ran| ran.code == Some(0)) {
        return not_tested("a limit on threads, since no other user can run the program here");
    }
    for threads in [1, 2, 4] {
        let limit = format!("--nproc={threads}");
        let backup = ["backup", "--init", "--json", "s"];
        let ran = as_other(&["prlimit", &limit], &backup).expect("starts");
        assert!(!ran.err.contains("panicked"), "{threads}: {}", ran.err);
        assert!(ran.err.contains("exit_error"), "{threads}: {}", ran.err);
        ran.ends(1);
    }
}

/// As few open files as an old system or a container allows.
#[test]
fn a_backup_gets_by_with_few_open_files() {
    let rig = Rig::open();
    for n in 0..600 {
        rig.write(&format!("s/{n}/a/f"), b"x");
        rig.write(&format!("s/{n}/f"), b"y");
    }
    let program = rig.command(["backup", "s"]);
    let mut limited = std::process::Command::new("prlimit");
    limited.arg("--nofile=128:128").arg(program.get_program());
    limited.args(program.get_args()).current_dir(rig.dir.path());
    let variables = program.get_envs();
    limited.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    let ran = limited.output().map(crate::rig::Ran::from).expect("starts");
    ran.ends(0);
}

/// `nohup` asks for this, and closing a terminal would end the program without it.
#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    let rig = Rig::open();
    let onefold = rig.command(["backup", "--stdin"]);
    let mut child = std::process::Command::new("sh");
    child.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    child.arg(onefold.get_program()).args(onefold.get_args());
    for (name, value) in onefold.get_envs() {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
    child.current_dir(onefold.get_current_dir().expect("a folder"));
    let mut child = child.stdin(Stdio::piped()).spawn().expect("starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(b"some").expect("written");
    wait_until("a session", || {
        std::fs::read_dir(rig.repo().join("sessions")).is_ok_and(|mut dir| dir.next().is_some())
    });
    signal(&child, Signal::HUP);
    pipe.write_all(b" more").expect("written");
    drop(pipe);
    assert!(child.wait().expect("ends").success());
}
