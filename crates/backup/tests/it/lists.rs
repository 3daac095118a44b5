//! Snapshots with long lists of paths, as `--files-from` makes them: many are listed at once without their lists in
//! RAM.

use onefold_backup::forget::{GroupBy, GroupKey, group};
use onefold_backup::snapshot::Snapshot;
use onefold_backup::snapshots::{Brief, list, load};
use onefold_store::{Repository, RootId, SessionKind};

use crate::scene::{back_up, repository};

/// Makes four megabytes of paths; the last one is `end`.
fn long_list(end: &str) -> Vec<Vec<u8>> {
    let name = "n".repeat(180);
    let listed = (0..20_000).map(|number| format!("/{name}/{number:05}").into_bytes());
    listed.chain([end.into()]).collect()
}

fn put(repository: &Repository, snapshot: &Snapshot) -> RootId {
    let session = repository.session(SessionKind::Pinned).expect("session");
    let id = session.put_root(&snapshot.encode()).expect("put");
    session.finish().expect("finish");
    id
}

/// Makes a snapshot with a short list, then one with a long list for each of `ends`. Returns all names, oldest first.
fn snapshots_with_lists(repository: &Repository, ends: &[&str]) -> Vec<RootId> {
    let source = tempfile::tempdir().expect("tempdir");
    std::fs::write(source.path().join("f"), "content").expect("write");
    let first = back_up(repository, source.path(), 1).id.expect("an id");
    let mut snapshot = load(repository, first).expect("load").snapshot;
    let later = ends.iter().map(|end| {
        snapshot.time.secs += 1;
        snapshot.paths = long_list(end);
        put(repository, &snapshot)
    });
    let later: Vec<RootId> = later.collect();
    [vec![first], later].concat()
}

fn all(repository: &Repository) -> Vec<Brief> {
    let mut damaged = |id, error| panic!("{id}: {error}");
    list(repository, &mut |_| true, &mut damaged).expect("list")
}

#[test]
fn each_of_many_snapshots_is_given_whole_whether_its_list_is_kept_or_read_again() {
    let repository = repository();
    let ids = snapshots_with_lists(&repository, &["/x", "/y", "/z"]);
    let listed = all(&repository);
    let names: Vec<RootId> = listed.iter().map(|brief| brief.id).collect();
    assert_eq!(names, ids);
    for brief in &listed {
        let whole = brief
            .whole(&repository)
            .expect("read")
            .expect("it is there");
        let loaded = load(&repository, brief.id).expect("load");
        assert_eq!((whole.id, whole.tree), (loaded.id, loaded.tree));
        assert!(whole.snapshot.paths == loaded.snapshot.paths);
        assert_eq!(brief.host, loaded.snapshot.host);
    }
    // A list that is not in RAM is gone once its snapshot is forgotten.
    for id in &ids {
        repository.remove_root(id).expect("remove");
    }
    let left = listed.iter().map(|brief| brief.whole(&repository));
    let left = left.map(|whole| whole.expect("read").is_some());
    let left: Vec<bool> = left.collect();
    assert!(left.contains(&true) && left.contains(&false), "{left:?}");
}

#[test]
fn series_are_told_apart_by_the_ends_of_long_lists() {
    let repository = repository();
    let ids = snapshots_with_lists(&repository, &["/x", "/y", "/x"]);
    let groups = group(all(&repository), GroupBy::default());
    let names =
        |group: &Vec<Brief>| -> Vec<RootId> { group.iter().map(|brief| brief.id).collect() };
    let mut groups: Vec<Vec<RootId>> = groups.iter().map(names).collect();
    groups.sort();
    let mut expected = [vec![ids[0]], vec![ids[2]], vec![ids[3], ids[1]]];
    expected.sort();
    assert_eq!(groups, expected);
    let paths = GroupBy::default();
    let key = |id: RootId| GroupKey::of(&load(&repository, id).expect("load").snapshot, paths);
    assert!(key(ids[1]) == key(ids[3]) && key(ids[1]) != key(ids[2]));
    assert_eq!(group(all(&repository), GroupBy::ALL).len(), 1);
}
