//! A crash at every write, sync, creation, renaming and removal of backups, forgetting and sweeps: nothing that was acknowledged is lost.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::{Faults, SimCounts, SimDir, When};
use onefold_store::{Encryption, Error, IndexName, Result, RootId};

use crate::fixture::{assert_sound, back_up, check, chunks, init, init_with, open, sweep};
use crate::guarded::{Failing, Guarded};
use crate::scale::{apart, scale};

type Roots = Vec<(RootId, Vec<Vec<u8>>)>;

/// What had been acknowledged when the device had passed this many points.
struct Acknowledged {
    points: u64,
    roots: Roots,
}

/// Backups that share chunks, forgetting, and sweeps that delete and compact. Notes what is acknowledged as it goes: a root from when its backup
/// returns until its removal begins.
fn work(device: &SimDir, encryption: Encryption, index: &str) -> Result<Vec<Acknowledged>> {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let mut told = Vec::new();
    let mut note = |roots: &Roots| {
        told.push(Acknowledged {
            points: device.counts().points,
            roots: roots.clone(),
        })
    };
    let mut roots: Roots = Vec::new();
    init_with(&dir, encryption, index)?;
    note(&roots);
    for round in 0..rounds() {
        let repository = open(&dir, 1, 100 + round)?;
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
    Ok(told)
}

/// Opens what a crash left, and finds all of it sound: as it is, after one more backup, and after a sweep.
fn assert_recovers(image: &SimDir, roots: &Roots, context: &str) {
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
    let told = work(&device, encryption, index).expect("no fault was asked for");
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

/// Beside the default: tails, journals and tables that are half written. `ONEFOLD_TEST_SCALE` of 10 and more tries every point.
#[test]
fn nothing_acknowledged_is_lost_with_any_index() {
    for (index, _) in IndexName::ALL {
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

/// What was acknowledged by the time the device first said no.
fn work_until_it_fails(device: &SimDir) -> (Roots, Option<Error>) {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let mut roots: Roots = Vec::new();
    let mut run = || -> Result<()> {
        for round in 0..3u64 {
            let repository = open(&dir, 1, 100 + round)?;
            let data: Vec<_> = chunks(round, 30)
                .into_iter()
                .chain(chunks(round + 1, 30))
                .collect();
            roots.push((back_up(&repository, &data)?.0, data));
            if round == 1 {
                repository.remove_root(&roots.remove(0).0)?;
                sweep(&repository)?;
            }
        }
        Ok(())
    };
    let failed = run().err();
    (roots, failed)
}

/// The same faults at the nth operation of those that they can hit, which `of` counts, for every nth; afterwards the device is well again.
fn fail_everywhere(
    of: fn(SimCounts) -> u64,
    fault: impl Fn(When) -> Faults,
    is_expected: impl Fn(&Error) -> bool,
) {
    let hits = count_failures(of, fault, is_expected);
    // A sweep goes on past most of what it cannot read.
    assert!(hits > 3, "only {hits} operations could fail");
}

/// The same; how often that ended a verb.
fn count_failures(
    of: fn(SimCounts) -> u64,
    fault: impl Fn(When) -> Faults,
    is_expected: impl Fn(&Error) -> bool,
) -> u64 {
    let mut hits = 0;
    for n in 0.. {
        let device = SimDir::new(n);
        init(
            &(Arc::new(device.clone()) as Arc<dyn Dir>),
            Encryption::Aes256Gcm,
        )
        .unwrap();
        device.inject(fault(When::Once(n)));
        let (roots, failed) = work_until_it_fails(&device);
        let operations = of(device.counts());
        device.inject(Faults::default());
        assert_recovers(
            &device,
            &roots,
            &format!("fault at operation {n} ({failed:?})"),
        );
        match failed {
            Some(error) => {
                assert!(is_expected(&error), "operation {n}: {error:?}");
                hits += 1;
            }
            // Past the end of the work nothing can fail any more.
            None if n >= operations => break,
            None => {}
        }
        assert!(n < 3000, "the work never ends");
    }
    hits
}

#[test]
fn a_full_device_fails_cleanly_at_every_write_and_loses_nothing() {
    fail_everywhere(
        |counts| counts.space,
        |when| Faults {
            no_space: when,
            ..Faults::default()
        },
        Error::is_no_space,
    );
}

#[test]
fn a_failed_read_is_told_and_loses_nothing() {
    fail_everywhere(
        |counts| counts.reads,
        |when| Faults {
            read_error: when,
            ..Faults::default()
        },
        |error| !error.is_damage(),
    );
}

/// Once, it is read again, and no verb fails for it. At every read from some on, it is told as damage, and what was stored is what was to be stored.
#[test]
fn a_bit_that_flips_in_a_read_is_told_or_costs_nothing() {
    let flips = |flip_read| Faults {
        flip_read,
        ..Faults::default()
    };
    let told = count_failures(|counts| counts.reads, flips, Error::is_damage);
    assert_eq!(told, 0, "a single flip ended a verb");
    let from = |when| match when {
        When::Once(n) => flips(When::From(n)),
        when => flips(when),
    };
    fail_everywhere(|counts| counts.reads, from, Error::is_damage);
}

#[test]
fn a_failed_sync_is_never_acknowledged() {
    fail_everywhere(
        |counts| counts.syncs,
        |when| Faults {
            sync_error: when,
            ..Faults::default()
        },
        |error| !error.is_damage(),
    );
}

/// A backup is killed at every point, another one stores the same, then the power fails: what the first put under its name need not have been durable.
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

/// Killed at every point, with or without the power failing: either there is a repository, or one can be made in the same place.
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
    // That folder is looked into after the one that it is in was listed.
    failing.once_listed("/locks", move || drop(theirs.create("notes").unwrap()));
    init(&Guarded::writable(&dir, &failing), Encryption::None).unwrap();
    assert!(dir.open("notes").is_ok());
}

/// Whoever removed it was killed before the removal was durable; then a sweep deletes what it referred to, and then the power fails.
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
