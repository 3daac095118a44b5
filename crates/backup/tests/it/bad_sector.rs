//! A sector that the device does not give, anywhere in the containers: a restore restores all files without bytes in
//! it, names the others, and a repair names the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use onefold_backup::backup::Outcome;
use onefold_backup::restore::{self, RestoreSummary};
use onefold_backup::roots::{self, Hurt, SnapshotRoots};
use onefold_backup::{Progress, path, snapshots};
use onefold_io::sim::SimDir;
use onefold_store::{CheckDepth, CheckReport, ContainerId, Repository, SessionKind};

use crate::crash::{NoWait, back_up, init, open};
use crate::scene::{Log, bytes, noise};

const FILES: u64 = 60;
/// Bytes that a device, or a page of its cache, loses at once.
const PAGE: u64 = 4096;

fn write_source(root: &Path) {
    for n in 0..FILES {
        let folder = root.join(format!("{}", n % 5));
        fs::create_dir_all(&folder).expect("dirs");
        fs::write(folder.join(format!("file-{n}")), noise(n, 3_000)).expect("write");
    }
}

/// Restores into a new folder; returns the summary, and the files that came back as they were.
fn restore(
    repository: &Repository,
    outcome: &Outcome,
    source: &Path,
) -> (RestoreSummary, BTreeSet<u64>) {
    let target = tempfile::tempdir().expect("tempdir");
    let options = restore::Options {
        path: path::clean(&bytes(source)),
        ..restore::Options::default()
    };
    let session = repository.session(SessionKind::Read).expect("session");
    let (progress, log) = (Progress::default(), Log::default());
    let to = bytes(target.path());
    let named = snapshots::load(repository, outcome.id.expect("a snapshot")).expect("load");
    let summary = restore::run(&session, &named.snapshot, &to, &options, &progress, &log)
        .expect("a restore goes on");
    session.finish().expect("finish");
    let whole = (0..FILES).filter(|n| {
        let name = format!("{}/file-{n}", n % 5);
        fs::read(target.path().join(name)).is_ok_and(|found| found == noise(*n, 3_000))
    });
    (summary, whole.collect())
}

fn check(repository: &Repository) -> CheckReport {
    let depth = CheckDepth::Data { part: 1, of: 1 };
    repository
        .check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {})
        .expect("a check goes on")
}

/// Returns the files that are reported as hurt; `None` where other parts are reported, too.
fn hurt(
    repository: &Repository,
    outcome: &Outcome,
    report: &CheckReport,
) -> Option<BTreeSet<Vec<u8>>> {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let named = snapshots::load(repository, outcome.id.expect("a snapshot")).expect("load");
    let mut found = Some(BTreeSet::new());
    let mut is_lost = |chunk: &_| report.hurt.hurts(chunk);
    roots::hurt(
        &named.snapshot,
        &mut reader,
        &mut is_lost,
        &mut |hurt| match (hurt, &mut found) {
            (Hurt::File(path), Some(found)) => drop(found.insert(path)),
            _ => found = None,
        },
    )
    .expect("hurt");
    found
}

#[test]
fn a_bad_sector_costs_the_files_that_it_holds() {
    let source = tempfile::tempdir().expect("tempdir");
    write_source(source.path());
    let device = SimDir::new(1);
    init(&device);
    let (_, outcome, _) = back_up(&open(&device, 1).expect("open"), source.path(), 1);
    let containers = open(&device, 2).and_then(|open| open.containers());
    let (mut partly, mut wholly) = (0, 0);
    for (container, len) in containers.expect("containers").into_iter().step_by(2) {
        for at in [0, len / 2, len - 1] {
            let device = device.fork();
            let object = object(container);
            device
                .spoil(&object, at / PAGE * PAGE..(at / PAGE + 1) * PAGE)
                .expect("a container is there");
            let context = format!("{object} at {at} of {len}");
            let repository = open(&device, 3).expect("open");
            let (summary, whole) = restore(&repository, &outcome, source.path());
            let gone = FILES - whole.len() as u64;
            assert!(summary.errors >= u64::from(gone > 0), "{context}");
            assert_eq!(
                summary.errors,
                summary.lost + summary.lost_parts,
                "{context}"
            );

            let found = check(&repository);
            assert!(!found.damage.is_empty(), "{context}");
            let repaired = repository.repair(&SnapshotRoots, &mut NoWait);
            let repaired = repaired.unwrap_or_else(|error| panic!("{context}: repair: {error}"));
            let set_aside: Vec<_> = repaired.set_aside.iter().map(|aside| aside.id).collect();
            assert_eq!(set_aside, [container], "{context}");
            let (_, left) = restore(&repository, &outcome, source.path());
            assert!(left.is_superset(&whole), "{context}");
            if let Some(hurt) = hurt(&repository, &outcome, &repaired.left) {
                let all = (0..FILES).filter(|n| !left.contains(n));
                let file = |n| {
                    path::join(
                        &bytes(source.path()),
                        format!("{}/file-{n}", n % 5).as_bytes(),
                    )
                };
                assert_eq!(hurt, all.map(file).collect(), "{context}");
            }
            partly += u64::from(!left.is_empty());
            wholly += u64::from(left.is_empty());
        }
    }
    println!("{partly} sectors cost some files, {wholly} all");
    assert!(partly > 5);
}

fn object(id: ContainerId) -> String {
    let name = id.to_string();
    format!("containers/{}/{name}", &name[..2])
}
