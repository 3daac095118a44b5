//! A crash at every write, sync, creation, renaming and removal of backups, forgetting and sweeps: nothing that was
//! acknowledged is lost.

use std::sync::Arc;

use onefold_io::sim::{Faults, SimDir};
use onefold_io::{Dir, Random};
use onefold_papers::KINDS;
use onefold_store::{Encryption, Error, Result, RootId};

use crate::fixture::{assert_sound, back_up, check, chunks, init, init_with, open, sweep};
use crate::guarded::{Failing, Guarded};
use crate::scale::{apart, scale};

pub type Roots = Vec<(RootId, Vec<Vec<u8>>)>;

/// Roots that had been acknowledged when the device had passed this many points.
struct Acknowledged {
    points: u64,
    roots: Roots,
}

/// Backups that share chunks, forgetting, and sweeps that delete and compact. Notes what is acknowledged as it goes: a
/// root from when its backup returns until its removal begins.
fn work(
    device: &SimDir,
    (encryption, index): (Encryption, &str),
    (rounds, threads): (u64, usize),
    told: &mut Vec<Acknowledged>,
) -> Result<()> {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let mut note = |roots: &Roots| {
        told.push(Acknowledged {
            points: device.counts().points,
            roots: roots.clone(),
        })
    };
    let mut roots: Roots = Vec::new();
    init_with(&dir, encryption, index)?;
    note(&roots);
    for round in 0..rounds {
        let repository = open(&dir, threads, 100 + round)?;
        // Half of what the round before stored, and as much that is new, interleaved: containers end up half alive.
        let old = chunks(round, 40);
        let new = chunks(round + 1, 40);
        let mixed: Vec<_> = old
            .into_iter()
            .step_by(2)
            .zip(new)
            .flat_map(|(old, new)| [old, new])
            .collect();
        let (root, _) = back_up(&repository, &mixed)?;
        roots.push((root, mixed));
        note(&roots);
        if round % 2 == 1 {
            let (gone, _) = roots.remove(0);
            note(&roots);
            repository.remove_root(&gone)?;
            sweep(&repository)?;
        }
    }
    Ok(())
}

/// Opens what a crash left, and finds all of it sound: as it is, after one more backup, and after a sweep.
pub fn assert_recovers(image: &SimDir, roots: &Roots, context: &str) {
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let repository = match open(&dir, 1, 999) {
        Ok(repository) => repository,
        Err(Error::NoRepository { .. }) if roots.is_empty() => return,
        Err(error) => panic!("{context}: open: {error}"),
    };
    assert_sound(&repository, roots, &format!("{context}, reopened"));
    let data = chunks(77, 10);
    let (root, _) =
        back_up(&repository, &data).unwrap_or_else(|error| panic!("{context}: backup: {error}"));
    sweep(&repository).unwrap_or_else(|error| panic!("{context}: sweep: {error}"));
    let mut roots = roots.clone();
    roots.push((root, data));
    assert_sound(&repository, &roots, &format!("{context}, after a sweep"));
}

/// Rounds of backups; `ONEFOLD_TEST_SCALE` multiplies them.
fn rounds() -> u64 {
    4 * scale().max(1)
}

/// A crash at every `step`th point, or at more of them by the scale.
fn crash_everywhere(encryption: Encryption, index: &str, step: u64) {
    let step = apart(step);
    let device = SimDir::new(1);
    device.keep_history();
    let mut told = Vec::new();
    work(&device, (encryption, index), (rounds(), 1), &mut told).expect("no fault was asked for");
    let points = device.counts().points;
    assert!(points > 150, "only {points} points");
    for point in (0..points).step_by(step as usize) {
        let acknowledged = told.iter().rfind(|told| told.points <= point);
        let roots = acknowledged.map_or(Roots::new(), |told| told.roots.clone());
        // All seeds where all points are tried, one for each otherwise.
        let seeds = [0, 1, point + 2];
        let some = if step == 1 { &seeds[..] } else { &seeds[2..] };
        for seed in some {
            let image = device
                .crash_image_at(point, *seed)
                .expect("history was kept");
            assert_recovers(
                &image,
                &roots,
                &format!("{encryption:?}, {index}, point {point} of {points}, seed {seed}"),
            );
        }
    }
}

/// Beside the default: tails, journals and tables that are half written. `ONEFOLD_TEST_SCALE` of 10 and more tries
/// every point.
#[test]
fn nothing_acknowledged_is_lost_with_any_index() {
    for index in KINDS.iter().map(|kind| kind.name) {
        crash_everywhere(Encryption::None, index, 23);
    }
    crash_everywhere(Encryption::None, "ram", 41);
}

#[test]
fn nothing_acknowledged_is_lost_whatever_the_crash() {
    crash_everywhere(Encryption::Aes256Gcm, "strata", 1);
}

#[test]
fn nothing_acknowledged_is_lost_without_encryption() {
    crash_everywhere(Encryption::None, "strata", 1);
}

/// Rounds of the work with threads: so many that the index merges beside it.
const ROUNDS_WITH_THREADS: u64 = 10;
/// Power cuts of it that a quick run tries.
const CUTS: u64 = 36;

/// Threads that seal, one that stores and one that merges meet the power cut: each run goes otherwise, so each has
/// its own.
#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut_among_threads() {
    let what = (Encryption::Aes256Gcm, "strata");
    let how = (ROUNDS_WITH_THREADS, 3);
    let rehearsal = SimDir::new(1);
    work(&rehearsal, what, how, &mut Vec::new()).expect("no fault was asked for");
    let points = rehearsal.counts().points;
    let is_run = |path: &&String| path.starts_with("index/run");
    let runs = rehearsal.paths().iter().filter(is_run).count() as u64;
    assert!(runs < ROUNDS_WITH_THREADS, "{runs} runs: none were merged");
    let mut crashed = 0;
    for seed in 0..CUTS * scale().max(1) {
        let device = SimDir::new(seed);
        let point = Random(seed).below(points);
        device.inject(Faults {
            crash_at: Some(point),
            ..Faults::default()
        });
        let mut told = Vec::new();
        let ended = work(&device, what, how, &mut told);
        let context = format!("seed {seed}, point {point} of {points}, 3 threads ({ended:?})");
        // Some runs have fewer points than the first one had.
        assert!(ended.is_ok() || device.crashed(), "{context}");
        crashed += u64::from(device.crashed());
        let roots = told.pop().map_or(Roots::new(), |told| told.roots);
        for image in [0, 1, seed + 2] {
            let context = format!("{context}, image {image}");
            assert_recovers(&device.crash_image(image), &roots, &context);
        }
    }
    assert!(crashed > CUTS / 2, "only {crashed} power cuts");
}

/// A backup is killed at every point, another one stores the same, then the power fails: what the first put under its
/// name need not have been durable.
#[test]
fn what_a_killed_backup_left_is_durable_before_another_counts_on_it() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    device.sync().unwrap();
    let data = chunks(1, 40);
    let mut counted_on = 0;
    for point in 0.. {
        let killed = device.fork();
        killed.inject(Faults {
            crash_at: Some(point),
            ..Faults::default()
        });
        let dir: Arc<dyn Dir> = Arc::new(killed.clone());
        let done = open(&dir, 1, 2).and_then(|repository| back_up(&repository, &data));
        if !killed.crashed() {
            assert!(done.is_ok() && point > 20, "{point}: {done:?}");
            break;
        }
        let lives_on = killed.fork();
        let dir: Arc<dyn Dir> = Arc::new(lives_on.clone());
        let (root, stats) = back_up(&open(&dir, 1, 3).unwrap(), &data).unwrap();
        counted_on += u64::from(stats.new_chunks < 40);
        for seed in [0, point + 2] {
            let context = format!("killed at point {point}, seed {seed}");
            let roots = vec![(root, data.clone())];
            assert_recovers(&lives_on.crash_image(seed), &roots, &context);
        }
    }
    assert!(counted_on > 10, "{counted_on}");
}

/// Killed at every point, with or without the power failing: either there is a repository, or one can be made in the
/// same place.
#[test]
fn an_init_that_was_interrupted_anywhere_can_be_begun_anew() {
    let mut begun_anew = 0;
    for point in 0.. {
        let device = SimDir::new(3);
        device.inject(Faults {
            crash_at: Some(point),
            ..Faults::default()
        });
        let done = init(
            &(Arc::new(device.clone()) as Arc<dyn Dir>),
            Encryption::Aes256Gcm,
        );
        let has_crashed = device.crashed();
        assert!(has_crashed || done.is_ok(), "{point}: {done:?}");
        for left in [device.fork(), device.crash_image(point)] {
            let dir: Arc<dyn Dir> = Arc::new(left);
            if onefold_store::Repository::config_at(&dir).is_err() {
                assert!(has_crashed, "what was acknowledged is there");
                init(&dir, Encryption::Aes256Gcm).unwrap_or_else(|e| panic!("{point}: {e}"));
                begun_anew += 1;
            }
            let repository = open(&dir, 1, 4).unwrap_or_else(|e| panic!("{point}: {e}"));
            back_up(&repository, &chunks(1, 5)).unwrap();
            assert_eq!(repository.key_names().unwrap().len(), 1);
            let report = check(&repository).unwrap();
            assert!(report.damage.is_empty(), "{point}: {:?}", report.damage);
        }
        if !has_crashed {
            break;
        }
    }
    assert!(begun_anew > 20, "{begun_anew}");
}

#[test]
fn what_is_somebody_elses_stays_where_a_repository_was_to_be_made() {
    for (folder, name) in [
        ("", "notes"),
        ("keys", "id_rsa"),
        ("containers", "tmp-0123"),
        ("index", "html"),
        ("locks", "other"),
    ] {
        let dir: Arc<dyn Dir> = Arc::new(onefold_io::MemDir::new());
        let inside = match folder {
            "" => Arc::clone(&dir),
            folder => dir.subdir(folder).unwrap(),
        };
        inside.create(name).unwrap();
        let refused = init(&dir, Encryption::None);
        assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{name}");
        assert_eq!(dir.list().unwrap().len(), 1);
        assert_eq!(inside.list().unwrap().len(), 1);
    }
}

#[test]
fn what_is_put_there_while_a_repository_is_made_stays() {
    let dir: Arc<dyn Dir> = Arc::new(onefold_io::MemDir::new());
    let failing = Failing::default();
    let theirs = Arc::clone(&dir);
    // The locks' folder is listed after the folder that it is in.
    failing.once_listed("/locks", move || drop(theirs.create("notes").unwrap()));
    init(&Guarded::writable(&dir, &failing), Encryption::None).unwrap();
    assert!(dir.open("notes").is_ok());
}

/// Whoever removed it was killed before the removal was durable; then a sweep deletes what it referred to, and then the
/// power fails.
#[test]
fn a_removed_root_does_not_come_back_without_its_chunks() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let (gone, _) = back_up(&repository, &chunks(1, 40)).unwrap();
    let kept = chunks(2, 40);
    let (root, _) = back_up(&repository, &kept).unwrap();
    let roots = dir.open_subdir("snapshots").unwrap();
    roots.remove(&gone.to_string()).unwrap();
    assert!(sweep(&repository).unwrap().deleted_containers > 0);
    drop(repository);
    assert_recovers(
        &device.crash_image(0),
        &vec![(root, kept)],
        "after the sweep",
    );
}
