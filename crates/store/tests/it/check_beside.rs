//! A check while others work: what comes up and what goes meanwhile is no damage.

use std::sync::Arc;

use onefold_io::{Dir, ErrorKind, LockKind, MemDir};
use onefold_store::{
    CheckDepth, CheckReport, Encryption, Error, KdfCost, Repository, StageProgress,
};

use crate::fixture::{Lists, back_up, chunks, init, open, secret};
use crate::guarded::{Failing, Guarded};

/// Two openers of one repository, as two processes are.
fn openers() -> (Arc<dyn Dir>, Repository, Repository) {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let (one, other) = (open(&dir, 1, 1).unwrap(), open(&dir, 1, 2).unwrap());
    (dir, one, other)
}

/// Checks all, and once it has looked at `after` containers, something happens.
fn check_while(
    repository: &Repository,
    after: u64,
    happens: &mut dyn FnMut(),
) -> (CheckReport, bool) {
    let mut has_happened = false;
    let mut observer = |progress: StageProgress| {
        if progress.stage == "checking containers" && progress.done >= after && !has_happened {
            has_happened = true;
            happens();
        }
    };
    let depth = CheckDepth::Data { part: 1, of: 1 };
    let report = repository
        .check(&Lists, depth, &mut observer, &mut |_| {})
        .unwrap();
    (report, has_happened)
}

/// Opening a container's table takes four looks at its file; then come its blocks.
#[test]
fn a_container_that_is_swept_while_it_is_read_is_not_damaged() {
    let (dir, _, writer) = openers();
    back_up(&writer, &chunks(1, 60)).unwrap();
    let (id, _) = writer.containers().unwrap()[0];
    for opens in 0..8 {
        let failing = Failing::default();
        failing.set_after(opens, &format!("/{:016x}", id.0), ErrorKind::NotFound);
        let checker = open(&Guarded::over(&dir, &failing), 1, 3).unwrap();
        let (report, _) = check_while(&checker, 0, &mut || {});
        assert!(report.damage.is_empty(), "{opens}: {:?}", report.damage);
    }
}

#[test]
fn keys_that_are_replaced_while_they_are_listed_are_neither_damaged_nor_wrong() {
    let (dir, _, _) = openers();
    let failing = Failing::default();
    // each time that somebody has listed the keys, all of them are replaced
    let replace = |seed| {
        let dir = Arc::clone(&dir);
        failing.once_listed("/keys", move || {
            let other = open(&dir, 1, seed).unwrap();
            let old = other.current_key().unwrap();
            other.add_key(&secret(), "test", KdfCost::LEAST, 2).unwrap();
            other.remove_key(old).unwrap();
        });
    };
    replace(10);
    let repository = open(&Guarded::over(&dir, &failing), 1, 3).unwrap();
    replace(11);
    assert!(repository.keys().unwrap().is_empty());
    replace(12);
    let (report, _) = check_while(&repository, 0, &mut || {});
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert_eq!(repository.keys().unwrap().len(), 1);
}

#[test]
fn of_two_who_remove_keys_at_once_one_is_told_to_wait() {
    let (dir, one, other) = openers();
    let added = one.add_key(&secret(), "test", KdfCost::LEAST, 2).unwrap();
    let lock = dir
        .subdir("locks")
        .unwrap()
        .lock("keys", LockKind::Exclusive);
    assert!(matches!(
        other.remove_key(&added),
        Err(Error::Locked { .. })
    ));
    drop(lock);
    other.remove_key(&added).unwrap();
}

#[test]
fn a_root_that_comes_up_while_containers_are_read_is_not_hurt() {
    let (_, checker, writer) = openers();
    back_up(&writer, &chunks(1, 60)).unwrap();
    for after in 0..3 {
        let (report, has_happened) = check_while(&checker, after, &mut || {
            back_up(&writer, &chunks(2 + after, 60)).unwrap();
        });
        assert!(has_happened);
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        assert!(report.hurt.is_empty() && report.damaged_roots.is_empty());
    }
}

/// First all containers are opened, with four looks at each, then those that references lead to.
#[test]
fn a_container_that_cannot_be_read_any_more_is_told() {
    let (dir, _, writer) = openers();
    back_up(&writer, &chunks(1, 60)).unwrap();
    let (id, _) = writer.containers().unwrap()[0];
    let failing = Failing::default();
    failing.set_after(4, &format!("/{:016x}", id.0), ErrorKind::Medium);
    let checker = open(&Guarded::over(&dir, &failing), 1, 3).unwrap();
    let structure = CheckDepth::Structure;
    let report = checker
        .check(&Lists, structure, &mut |_| {}, &mut |_| {})
        .unwrap();
    let named = |error: &Error| error.to_string().contains(&id.to_string());
    assert!(report.damage.iter().any(named), "{:?}", report.damage);
    assert!(report.hurt.containers.contains(&id));
}
