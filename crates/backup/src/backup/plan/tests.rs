//! Tests of the bytes that steps take from the budget.

use crossbeam_channel::unbounded;
use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, InitOptions, OpenOptions, Repository, SessionKind};

use super::*;
use crate::NoEvents;
use crate::walk;
use onefold_chunk::fixed::Fixed;

/// Returns all steps of a backup of `folder`.
fn steps(folder: &std::path::Path) -> Vec<PlanStep> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::default());
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    Repository::init(dir.clone(), &init, None).expect("init");
    let repository = Repository::open(dir, OpenOptions::default(), None).expect("open");
    let session = repository.session(SessionKind::Backup).expect("session");
    let ((work, _jobs), (sender, steps)) = (unbounded(), unbounded());
    let budget = Gate::new(usize::MAX / 2);
    let planner = Planner {
        options: &Options::default(),
        session: &session,
        owners: &Owners::of(b"", b""),
        budget: &budget,
        large_budget: &budget,
        ahead: &LargeFileQueue::new(usize::MAX / 2),
        buffers: &Buffers::new(&Fixed::new(1 << 16), Arc::default()),
        open_bytes: OpenBytes::of(32 << 20),
        progress: &Progress::default(),
        events: &NoEvents,
        work,
        steps: sender,
        reader: session.reader().expect("reader"),
        parent_started_ns: 0,
        links: Linked::new(1 << 20),
        sizeless: Sizeless::default(),
    };
    let options = walk::Options {
        threads: 2,
        excludes: Arc::default(),
        one_file_system: false,
        open_files: 0,
        read_special: false,
        failing: walk::SOUND,
    };
    let source = folder.as_os_str().as_encoded_bytes().to_vec();
    planner.run(Walk::start(&[source], &options).expect("walk"), None);
    steps.iter().collect()
}

#[test]
fn a_step_takes_of_the_budget_what_its_entries_have_with_them() {
    const TARGET_BYTES: usize = 4000;
    let folder = tempfile::tempdir().expect("tempdir");
    for n in 0..200 {
        let link = folder.path().join(n.to_string());
        std::os::unix::fs::symlink("t".repeat(TARGET_BYTES), link).expect("symlink");
    }
    let mut links = 0;
    for step in steps(folder.path()) {
        let PlanStep::Entries {
            entries,
            budget_bytes,
            ..
        } = step
        else {
            panic!("nothing failed");
        };
        let entries: Vec<_> = entries.into_iter().map(|(_, planned)| planned).collect();
        let is_link = |planned: &&Planned| planned.entry.kind == Kind::Symlink;
        links += entries.iter().filter(is_link).count();
        let bytes: usize = entries.iter().map(Planned::heap_bytes).sum();
        assert!(budget_bytes >= bytes, "{budget_bytes} for {bytes}");
        assert!(bytes <= STEP_BYTES + 2 * TARGET_BYTES, "{bytes}");
    }
    assert_eq!(links, 200);
}
