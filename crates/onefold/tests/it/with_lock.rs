//! `with-lock`: a repository is copied while others work there, and the copy is whole.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use crate::rig::{PASSWORD, Ran, Rig, files, seeded};

/// `with-lock` around a shell that says that it runs, and ends once its standard input does.
struct Holding(Child);

impl Holding {
    /// Runs `script` after the shell's input has ended.
    fn begin(rig: &Rig, script: &str) -> Self {
        let script = format!("echo runs; cat > cat.out; {script}");
        let mut child = rig
            .command(["with-lock", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = BufReader::new(child.stdout.as_mut().expect("a pipe"));
        let mut out = out.take(5);
        out.read_line(&mut line).expect("the shell runs");
        assert_eq!(line, "runs\n");
        Self(child)
    }

    fn end(mut self) -> Ran {
        drop(self.0.stdin.take());
        self.0.wait_with_output().expect("it ends").into()
    }
}

#[test]
fn no_prune_deletes_anything_while_a_copy_is_made() {
    let rig = Rig::new();
    rig.write("src/a", &seeded("no_prune").bytes(300_000));
    rig.backup("src");
    rig.write("src/a", b"other bytes");
    rig.backup("src");
    rig.run(["forget", "--keep-last", "1"]).ends(0);
    let before = files(&rig.repo().join("containers"));

    let holding = Holding::begin(&rig, "true");
    let prune = rig.run(["prune"]).ends(11);
    assert!(prune.err.contains("with-lock"), "{}", prune.err);
    rig.run(["repair"]).ends(11);
    // Two may copy at once, and what deletes nothing goes on.
    rig.run(["with-lock", "true"]).ends(0);
    rig.backup("src");
    rig.run(["check"]).ends(0);
    let after = files(&rig.repo().join("containers"));
    assert!(
        before
            .iter()
            .all(|container| after.get(container.0) == Some(container.1))
    );
    holding.end().ends(0);
    rig.run(["prune"]).ends(0);
    let after = files(&rig.repo().join("containers"));
    assert!(before.keys().any(|name| !after.contains_key(name)));
}

#[test]
fn who_waits_for_a_copy_with_retry_lock_prunes_after_it() {
    let rig = Rig::open();
    let holding = Holding::begin(&rig, "true");
    let mut prune = rig.command(["prune", "--retry-lock", "10m"]);
    let mut prune = prune.stderr(Stdio::piped()).spawn().expect("it starts");
    // The prune prints that it waits.
    let mut line = String::new();
    let said = BufReader::new(prune.stderr.as_mut().expect("a pipe")).read_line(&mut line);
    said.expect("it says it");
    assert!(line.contains("waiting"), "{line}");
    holding.end().ends(0);
    assert!(prune.wait().expect("it ends").success());
}

/// The commands of docs/repository.md, while somebody backs up and somebody would prune.
#[test]
fn a_copy_made_in_the_documented_order_while_backups_run_is_whole() {
    let rig = Rig::new();
    let mut random = seeded("a_copy_made");
    rig.write("src/a", &random.bytes(200_000));
    rig.backup("src");
    rig.write("src/b", &random.bytes(200_000));
    let onefold = rig.command(["x"]).get_program().to_owned();
    let onefold = onefold.to_string_lossy();
    // Between the two steps others store a snapshot, and try to prune.
    let script = format!(
        "mkdir copy && cp -a repo/snapshots copy/ &&
        {onefold} forget latest -q && {onefold} backup src -q && ! {onefold} prune -q &&
        cp -a repo/config repo/config.copy repo/keys repo/containers copy/"
    );
    rig.run(["with-lock", "--retry-lock", "1m", "sh", "-c", &script])
        .ends(0);
    let copy = |args: &[&str]| {
        let mut command = rig.command([&["-r", "copy"], args].concat());
        let ran = command.env("ONEFOLD_PASSWORD", PASSWORD).output();
        Ran::from(ran.expect("it starts")).ends(0)
    };
    copy(&["check", "--read-data"]);
    let snapshots = copy(&["snapshots", "--json"]).last();
    assert_eq!(snapshots.as_array().map(Vec::len), Some(1));
    // The copy is a repository as any other.
    copy(&["backup", "src"]);
    copy(&["prune"]);
    copy(&["check", "--read-data"]);
}

#[test]
fn the_exit_code_is_the_commands() {
    let rig = Rig::new();
    rig.run(["with-lock", "true"]).ends(0);
    rig.run(["with-lock", "--", "sh", "-c", "exit 77"]).ends(77);
    rig.run(["with-lock", "sh", "-c", "kill -KILL $$"])
        .ends(137);
    rig.run(["with-lock", "no-such-command-anywhere"]).ends(127);
    rig.run(["with-lock", "./repo"]).ends(126);
    rig.run(["with-lock"]).ends(2);
    rig.run(["with-lock", "-r", "nowhere", "true"]).ends(10);
    // The command's words are its own, also options that ours has.
    let said = rig.run(["with-lock", "echo", "--help", "-r", "x"]).ends(0);
    assert_eq!(said.out, "--help -r x\n");
    // No password is needed.
    let mut command = rig.command(["with-lock", "true"]);
    let ran = Ran::from(
        command
            .env_remove("ONEFOLD_PASSWORD")
            .output()
            .expect("it starts"),
    );
    ran.ends(0);
}

#[test]
fn a_signal_ends_the_command_and_only_then_the_lock() {
    let rig = Rig::open();
    // The command takes the signal, and goes on until its input ends: others are kept out all the time.
    let script = "trap 'echo took it' TERM; echo runs; while ! read line; do :; done; exit 5";
    let mut child = rig
        .command(["with-lock", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).expect("the shell says it");
        line
    };
    assert_eq!(next(), "runs\n");
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..2 {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert_eq!(next(), "took it\n");
        rig.run(["prune"]).ends(11);
    }
    std::io::Write::write_all(child.stdin.as_mut().expect("a pipe"), b"end\n").expect("it reads");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    rig.run(["prune"]).ends(0);
}

#[test]
fn who_loses_the_lock_while_it_copies_hears_that_the_copy_may_not_be_whole() {
    let rig = Rig::open();
    // Another machine that takes this one for dead does so.
    for (script, code) in [("rm repo/sessions/*", 1), ("rm repo/sessions/*; exit 9", 9)] {
        let ran = rig.run(["with-lock", "sh", "-c", script]).ends(code);
        assert!(ran.err.contains("copy it again"), "{}", ran.err);
    }
}
