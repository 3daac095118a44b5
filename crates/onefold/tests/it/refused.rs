//! Refusals of the system: a filter of system calls stands for file systems and machines that lack something.

use std::process::Command;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::rig::{Ran, Random, Rig, files};
use crate::untested::has;

/// A system call that fails.
pub struct Refusal {
    call: i64,
    errno: i32,
    /// The argument, by its number, that must be this, or must not be, for the call to fail.
    only_where: Option<(u8, SeccompCmpOp, u64)>,
}

impl Refusal {
    /// `call` always fails with `errno`.
    pub fn of(call: i64, errno: i32) -> Self {
        Self {
            call,
            errno,
            only_where: None,
        }
    }

    /// `call` fails where its argument of that number, counted from 0, is `value`.
    pub fn only_where(self, argument: u8, value: u64) -> Self {
        Self {
            only_where: Some((argument, SeccompCmpOp::Eq, value)),
            ..self
        }
    }

    /// `call` fails but where its argument of that number is `value`.
    pub fn unless(self, argument: u8, value: u64) -> Self {
        Self {
            only_where: Some((argument, SeccompCmpOp::Ne, value & u64::from(u32::MAX))),
            ..self
        }
    }

    fn filter(&self) -> BpfProgram {
        let rule = |(argument, op, value)| {
            let len = SeccompCmpArgLen::Dword;
            let condition = SeccompCondition::new(argument, len, op, value).expect("a condition");
            SeccompRule::new(vec![condition]).expect("a rule")
        };
        let rules = [(
            self.call,
            self.only_where.clone().map(rule).into_iter().collect(),
        )];
        let (pass, fail) = (
            SeccompAction::Allow,
            SeccompAction::Errno(self.errno as u32),
        );
        let arch = std::env::consts::ARCH.try_into().expect("a known machine");
        SeccompFilter::new(rules.into(), pass, fail, arch)
            .and_then(BpfProgram::try_from)
            .expect("a filter")
    }
}

/// Runs a program for which these calls fail.
pub fn run_refused(mut command: Command, refusals: &[Refusal]) -> Ran {
    let filters: Vec<BpfProgram> = refusals.iter().map(Refusal::filter).collect();
    // The filters stay with the thread and with what it starts.
    let run = move || {
        for filter in &filters {
            seccompiler::apply_filter(filter).expect("the kernel filters system calls");
        }
        command.output().expect("the program starts").into()
    };
    std::thread::spawn(run).join().expect("it runs")
}

/// sshfs with `disable_hardlink`, exfat-fuse.
fn no_links_and_no_careful_rename() -> Vec<Refusal> {
    vec![
        Refusal::of(libc::SYS_renameat2, libc::EINVAL).only_where(4, libc::RENAME_NOREPLACE.into()),
        Refusal::of(libc::SYS_linkat, libc::EPERM),
    ]
}

#[test]
fn a_repository_lives_on_a_file_system_with_neither_hard_links_nor_a_rename_that_replaces_nothing()
{
    let rig = Rig::empty();
    rig.write("src/a", &Random(1).bytes(300_000));
    let source = rig.path("src").display().to_string();
    let run = |args: &[&str]| run_refused(rig.command(args), &no_links_and_no_careful_rename());
    run(&["init"]).ends(0);
    run(&["backup", "src"]).ends(0);
    rig.write("src/b", &Random(2).bytes(300_000));
    run(&["backup", "src"]).ends(0);
    run(&["forget", "--keep-last", "1", "--prune"]).ends(0);
    run(&["check", "--read-data"]).ends(0);
    run(&["restore", &format!("latest:{source}"), "--target", "out"]).ends(0);
    assert_eq!(files(&rig.path("out")), files(&rig.path("src")));
    // A second making finds what is there.
    let again = run(&["init"]).ends(1);
    assert!(again.err.contains("already"), "{}", again.err);
}

#[test]
fn a_system_without_random_numbers_is_an_error_in_words() {
    let rig = Rig::open();
    rig.write("src/a", b"x");
    rig.backup("src");
    // With any other error than these the standard library goes on by /dev/urandom.
    for errno in [libc::EIO, libc::EFAULT] {
        for args in [
            &["backup", "src"][..],
            &["check"],
            &["prune"],
            &["restore", "latest", "--target", "out"],
            &["init", "-r", "other"],
        ] {
            let none = [Refusal::of(libc::SYS_getrandom, errno)];
            let ran = run_refused(rig.command(args), &none).ends(1);
            assert!(
                ran.err.contains("no random numbers"),
                "{args:?}: {}",
                ran.err
            );
            assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
        }
    }
}

#[test]
fn calls_that_are_interrupted_again_and_again_end_as_errors() {
    let rig = Rig::open();
    rig.write("src/a", b"x");
    rig.backup("src");
    let for_ever = |call| [Refusal::of(call, libc::EINTR)];
    for args in [
        &["snapshots"][..],
        &["backup", "src"],
        &["check"],
        &["prune"],
        &["restore", "latest", "--target", "out"],
    ] {
        let ran = run_refused(rig.command(args), &for_ever(libc::SYS_getdents64)).ends(1);
        assert!(
            ran.err.contains("Interrupted system call"),
            "{args:?}: {}",
            ran.err
        );
        assert!(
            !ran.err.contains("was interrupted"),
            "{args:?}: {}",
            ran.err
        );
        // Only files that are opened by their folder count: the libraries that the program needs are not.
        let opened = for_ever(libc::SYS_openat).map(|call| call.unless(0, libc::AT_FDCWD as u64));
        run_refused(rig.command(args), &opened).ends(1);
    }
}

#[test]
fn a_process_that_may_have_little_memory_ends_with_words_and_no_signal() {
    if !has("prlimit") {
        return;
    }
    let rig = Rig::open();
    rig.write("src/a", &Random(3).bytes(40 << 20));
    rig.backup("src");
    let mut failed = 0;
    for mib in [180, 230, 280, 330, 400] {
        for args in [
            &["backup", "src", "--force", "--json"][..],
            &["restore", "latest", "--target", "out"],
        ] {
            let program = rig.command(args);
            let mut limited = Command::new("prlimit");
            limited
                .arg(format!("--as={}", mib << 20))
                .arg(program.get_program())
                .args(program.get_args())
                .current_dir(rig.dir.path())
                .env_remove("ONEFOLD_PASSWORD")
                .env("ONEFOLD_REPOSITORY", rig.repo());
            let ran = Ran::from(limited.output().expect("it starts"));
            assert!(
                matches!(ran.code, Some(0..=14)),
                "{mib} {args:?}: {:?} {}",
                ran.code,
                ran.err
            );
            failed += usize::from(ran.code != Some(0));
        }
    }
    assert!(failed > 0, "there is memory enough for all of them");
}

#[test]
fn a_file_system_without_locks_is_named_as_what_it_is() {
    let rig = Rig::empty();
    for errno in [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP] {
        let no_locks = [Refusal::of(libc::SYS_flock, errno)];
        let ran = run_refused(rig.command(["init"]), &no_locks).ends(1);
        let says = "the file system has no locks (flock)";
        assert!(ran.err.contains(says), "{}", ran.err);
        assert!(!ran.err.contains("somebody else's"), "{}", ran.err);
    }
}
