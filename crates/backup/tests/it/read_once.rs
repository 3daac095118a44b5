//! A restore reads the parts that it needs of each container once, in whatever order files refer to it.

use std::fs;
use std::sync::Arc;

use onefold_backup::{path, restore};
use onefold_io::count::{CountedDir, Counters};
use onefold_io::{Dir, MemDir};
use onefold_store::{OpenOptions, Repository, Secret};

use crate::scene::{back_up, bytes, look, noise, repository_in, restore_with};

/// Number of files, each in a container of its own, one after another; each pair of distant ones shares a further file.
const FILES: usize = 200;
const FILE_BYTES: usize = 60_000;

fn container_bytes(dir: &MemDir) -> u64 {
    let all = dir.open_subdir("containers").expect("containers");
    let folders = all.list().expect("list").into_iter();
    let bytes_in = |name: &str| -> u64 {
        let folder = all.open_subdir(name).expect("open");
        let names = folder.list().expect("list").into_iter();
        names
            .map(|entry| folder.len_of(&entry.name).expect("len"))
            .sum()
    };
    folders.map(|folder| bytes_in(&folder.name)).sum()
}

#[test]
fn a_restore_reads_each_container_once() {
    let place = tempfile::tempdir().expect("tempdir");
    let source = place.path().join("source");
    for folder in ["one", "two"] {
        fs::create_dir_all(source.join(folder)).expect("mkdir");
    }
    let content = |n: usize| noise(n as u64, FILE_BYTES);
    for n in 0..FILES {
        fs::write(source.join(format!("one/{n:03}")), content(n)).expect("write");
        let distant = [n, (n + FILES / 2) % FILES, (n * 37) % FILES];
        let mixed = distant.map(content).concat();
        fs::write(source.join(format!("two/{n:03}")), mixed).expect("write");
    }
    let dir = MemDir::default();
    let outcome = back_up(&repository_in(&dir), &source, 1);
    let stored = container_bytes(&dir);
    let counters = Counters::new();
    let memory: Arc<dyn Dir> = Arc::new(dir.clone());
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(memory, counters.clone()));
    let secret = Secret::new("open sesame");
    let options = OpenOptions::default();
    let repository = Repository::open(counted, options, Some(&secret)).expect("open");
    let read_in_windows_of = |window_bytes| {
        let target = tempfile::tempdir_in(place.path()).expect("tempdir");
        let before = counters.counts();
        let options = restore::Options {
            path: path::clean(&bytes(&source)),
            window_bytes,
            ..restore::Options::default()
        };
        restore_with(&repository, &outcome, target.path(), &options);
        let read = (counters.counts() - before).read_bytes;
        assert!(look(&source) == look(target.path()));
        read
    };
    let read = read_in_windows_of(restore::Options::default().window_bytes);
    assert!(
        read <= stored + stored / 20,
        "{read} bytes were read to restore {stored}"
    );
    // Several windows read a container several times, so the count shows it.
    let in_parts = read_in_windows_of(16 << 10);
    assert!(in_parts > stored * 3 / 2, "{in_parts} of {stored}");
}
