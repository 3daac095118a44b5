//! What a restore does where metadata cannot be read any more.

use std::collections::BTreeSet;
use std::fs;

use onefold_backup::{Progress, restore, snapshots};
use onefold_io::{Dir, MemDir};
use onefold_store::SessionKind;

use crate::scene::{self, Log, back_up, bytes};

/// All containers, as (folder, name).
fn containers(dir: &MemDir) -> BTreeSet<(String, String)> {
    let all = dir.open_subdir("containers").expect("containers");
    let folders = all.list().expect("list").into_iter();
    folders
        .flat_map(|folder| {
            let inner = all.open_subdir(&folder.name).expect("open").list();
            let names = inner.expect("list").into_iter();
            names.map(move |entry| (folder.name.clone(), entry.name))
        })
        .collect()
}

#[test]
fn lost_leaves_and_recipes_cost_their_files_and_no_others() {
    let source = tempfile::tempdir().expect("tempdir");
    let dir = MemDir::default();
    let repository = scene::repository_in(&dir);
    let fill = |folder: &str, files: u32| {
        fs::create_dir(source.path().join(folder)).expect("mkdir");
        for n in 0..files {
            let path = source
                .path()
                .join(format!("{folder}/a file with a long name {n}"));
            fs::write(path, "").expect("write");
        }
    };
    fill("a", 9000);
    back_up(&repository, source.path(), 1);
    let before = containers(&dir);
    fill("z", 2000);
    let outcome = back_up(&repository, source.path(), 2);
    let added = containers(&dir);
    // Empty files have no data: all that is new is metadata.
    let mut lost = added.difference(&before);
    let (folder, name) = lost.next().expect("new leaves are in a container");
    let all = dir.open_subdir("containers").expect("containers");
    let folder = all.open_subdir(folder).expect("open");
    folder.remove(name).expect("remove");

    let target = tempfile::tempdir().expect("tempdir");
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(&repository, outcome.id.expect("id")).expect("load");
    let log = Log::default();
    let options = restore::Options::default();
    let summary = restore::run(
        &session,
        &named.snapshot,
        &bytes(target.path()),
        &options,
        &Progress::default(),
        &log,
    )
    .expect("the rest is restored");
    assert!(summary.errors > 0, "{summary:?}");
    assert!(summary.files > 0 && summary.files < 11_000, "{summary:?}");
    assert_eq!(log.errors.lock().len() as u64, summary.errors);
}
