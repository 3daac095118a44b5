//! Repositories whose chunker learns from the data: a backup's sketch serves the next one, and when it is gone no data
//! is lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::Progress;
use onefold_backup::backup::{self, Input, Outcome, Parent};
use onefold_io::{Dir, MemDir};
use onefold_store::sketch::SKETCH_OBJECT;
use onefold_store::{
    Compression, Encryption, InitOptions, KdfCost, OpenOptions, Repository, Secret,
};

use crate::scene::{Log, bytes, look, noise, options, restore_folder};

fn made(encryption: Encryption) -> MemDir {
    let dir = MemDir::default();
    let mut init = InitOptions::new("test", 1);
    (init.kdf_cost, init.encryption) = (KdfCost::LEAST, encryption);
    (init.chunker, init.chunk_bytes_mean) = ("fbc".into(), 2048);
    let root: Arc<dyn Dir> = Arc::new(dir.clone());
    Repository::init(root, &init, Some(&Secret::new("open sesame"))).expect("init");
    dir
}

fn open(dir: &MemDir) -> Repository {
    let options = OpenOptions {
        compression: Compression::Off,
        ..OpenOptions::default()
    };
    open_with(dir, options)
}

fn open_with(dir: &MemDir, options: OpenOptions) -> Repository {
    let root: Arc<dyn Dir> = Arc::new(dir.clone());
    let config = Repository::config_at(&root).expect("a configuration");
    let secret = Secret::new("open sesame");
    let secret = (config.encryption != Encryption::None).then_some(&secret);
    Repository::open_agreed(root, config, options, secret).expect("open")
}

/// Backs up with one reader, so that files are cut in the same order each time; every file is read.
fn back_up(dir: &MemDir, source: &Path, secs: i64) -> (Outcome, Vec<String>) {
    let options = backup::Options {
        walkers: 1,
        readers: 1,
        hashers: 1,
        parent: Parent::None,
        ..options(secs)
    };
    let (input, log) = (Input::Paths(vec![bytes(source)]), Log::default());
    let outcome = backup::run(&open(dir), input, &options, &Progress::default(), &log);
    assert_eq!(*log.errors.lock(), []);
    let warnings = log.warnings.into_inner().into_iter();
    (
        outcome.expect("backup"),
        warnings.map(|(_, what)| what).collect(),
    )
}

/// Makes twenty files of pieces that come again in other places; in version `n` every file has `n` edits.
fn write(folder: &Path, version: u64) {
    fs::create_dir_all(folder).expect("folder");
    let pieces: Vec<_> = (0..200).map(|seed| noise(seed, 3000)).collect();
    for file in 0..20u64 {
        let order = noise(1000 + file, 30);
        let mut content: Vec<u8> = order
            .iter()
            .flat_map(|piece| pieces[usize::from(*piece) % 200].clone())
            .collect();
        for edit in 0..version {
            let at = noise(file * 100 + edit, 3);
            let at = usize::from(at[0]) << 8 | usize::from(at[1]);
            content.splice(at..at, noise(7000 + file * 100 + edit, 40));
        }
        fs::write(folder.join(format!("{file:02}")), content).expect("write");
    }
}

/// Bytes by which backups may differ because of the times of the folders above the files.
const TIMES_BYTES: u64 = 100;

fn added(outcome: &Outcome) -> u64 {
    outcome.snapshot.summary.data_added
}

fn remove(dir: &MemDir) {
    dir.remove(SKETCH_OBJECT).expect("there was one");
}

/// The second backup cuts at the places that the first one learnt, so it stores some data once more; every later one
/// stores less, and so do all together.
#[test]
fn backups_that_know_what_those_before_learnt_store_less() {
    let temporary = tempfile::tempdir().expect("tempdir");
    let source = temporary.path().join("source");
    let (kept, lost) = (made(Encryption::None), made(Encryption::None));
    let mut sums = (0, 0);
    for version in 0..8 {
        write(&source, version);
        let (with, warnings) = back_up(&kept, &source, version as i64);
        assert_eq!(warnings, [""; 0]);
        if version > 0 {
            remove(&lost);
        }
        let (without, warnings) = back_up(&lost, &source, version as i64);
        assert_eq!(warnings.len(), usize::from(version > 0), "{warnings:?}");
        if version == 0 {
            assert!(added(&with).abs_diff(added(&without)) < TIMES_BYTES);
        }
        sums = (sums.0 + added(&with), sums.1 + added(&without));
        assert!(
            version == 1 || added(&with) <= added(&without) + TIMES_BYTES,
            "version {version}: {} {}",
            added(&with),
            added(&without)
        );
    }
    assert!(sums.0 < sums.1, "{sums:?}");
}

#[test]
fn the_sketch_is_sealed_where_all_is_and_a_damaged_one_is_begun_anew() {
    let temporary = tempfile::tempdir().expect("tempdir");
    let (source, target) = (
        temporary.path().join("source"),
        temporary.path().join("target"),
    );
    write(&source, 0);
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        let dir = made(encryption);
        back_up(&dir, &source, 1);
        let sketch = open(&dir).sketch().expect("whole").expect("there");
        let stored = stored(&dir);
        let is_open = stored.windows(sketch.len()).any(|bytes| bytes == sketch);
        assert_eq!(is_open, encryption == Encryption::None);
        for (round, at) in [0, 25, 50, stored.len() - 1].into_iter().enumerate() {
            let disk = dir.open_write(SKETCH_OBJECT).expect("open");
            disk.write_at(&[!stored_at(&dir, at)], at as u64)
                .expect("write");
            assert!(open(&dir).sketch().is_err());
            let (outcome, warnings) = back_up(&dir, &source, 2 + round as i64);
            assert!(
                warnings.len() == 1 && warnings[0].contains("sketch"),
                "{warnings:?}"
            );
            assert!(open(&dir).sketch().expect("made anew").is_some());
            let target = target.join(format!("{encryption:?}-{round}"));
            restore_folder(&open(&dir), &outcome, &source, &target);
            assert_eq!(look(&source), look(&target));
        }
    }
}

fn stored(dir: &MemDir) -> Vec<u8> {
    let disk = dir.open(SKETCH_OBJECT).expect("open");
    let mut bytes = vec![0; disk.len().expect("len") as usize];
    disk.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn stored_at(dir: &MemDir, at: usize) -> u8 {
    stored(dir)[at]
}

#[test]
fn whole_bytes_that_are_no_sketch_and_dry_runs_change_nothing_but_cuts() {
    let temporary = tempfile::tempdir().expect("tempdir");
    let source = temporary.path().join("source");
    write(&source, 0);
    let dir = made(Encryption::None);
    open(&dir)
        .put_sketch(b"what another program put")
        .expect("put");
    let (_, warnings) = back_up(&dir, &source, 1);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let before = stored(&dir);
    assert_eq!(back_up(&dir, &source, 2).1, [""; 0]);
    let options = OpenOptions {
        dry_run: true,
        ..OpenOptions::default()
    };
    let dry = open_with(&dir, options);
    let after = stored(&dir);
    dry.put_sketch(b"nothing").expect("nothing is put");
    assert_eq!(stored(&dir), after);
    assert!(before.len() <= after.len());
}
