//! What the system refuses: a filter of system calls stands for file systems and machines that lack something.

use std::process::Command;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::rig::{Ran, Random, Rig, files};

/// A system call that fails.
pub struct Refusal {
    call: i64,
    errno: i32,
    /// The argument, by its number, that must be this for the call to fail.
    only_where: Option<(u8, u64)>,
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
            only_where: Some((argument, value)),
            ..self
        }
    }

    fn filter(&self) -> BpfProgram {
        let rule = |(argument, value)| {
            let (len, op) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(argument, len, op, value).expect("a condition");
            SeccompRule::new(vec![condition]).expect("a rule")
        };
        let rules = [(self.call, self.only_where.map(rule).into_iter().collect())];
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
