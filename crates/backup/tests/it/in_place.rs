//! Files of bytes that look random: stored in long chunks, and finely where they change in place.

use std::fs;
use std::os::unix::fs::FileExt;

use onefold_backup::backup::Outcome;
use onefold_chunk::adaptive::LONG_BYTES_MAX;
use onefold_io::MemDir;
use onefold_store::{Entropy, Repository};

use crate::scene::{back_up, look, noise, repository_from, restore_folder};

const FILE_BYTES: usize = 20 << 20;
const PLACES: [u64; 3] = [1 << 20, 9 << 20, 19 << 20];

fn change(file: &fs::File, seed: u64) {
    for (place, seed) in PLACES.into_iter().zip(seed..) {
        let write = file.write_all_at(&noise(seed, 4096), place);
        write.expect("write");
    }
    file.sync_all().expect("sync");
}

fn added(outcome: &Outcome) -> u64 {
    outcome.snapshot.summary.data_added
}

#[test]
fn what_changes_in_place_is_stored_finely_from_its_second_change_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("disk"), noise(1, FILE_BYTES)).expect("write");
    // Wherever the cuts lie, a change may move one, and then a second long chunk changes: here none does.
    let repository: Repository = repository_from(&MemDir::default(), Entropy::seeded(1));
    let first = back_up(&repository, &source, 1);
    let chunks = first.snapshot.summary.data_chunks;
    assert!(chunks < 12, "{chunks}");

    let file = fs::File::options()
        .write(true)
        .open(source.join("disk"))
        .expect("open");
    change(&file, 10);
    let second = back_up(&repository, &source, 2);
    let long = 3 * LONG_BYTES_MAX as u64 + 100_000;
    assert!(added(&second) < long, "{}", added(&second));
    assert!(second.snapshot.summary.data_chunks > 200);

    for (seed, time) in [(20, 3), (30, 4)] {
        change(&file, seed);
        let next = back_up(&repository, &source, time);
        assert!(added(&next) < 300_000, "{}", added(&next));
        if time == 4 {
            restore_folder(&repository, &next, &source, &target);
            assert_eq!(look(&source), look(&target));
        }
    }
}
