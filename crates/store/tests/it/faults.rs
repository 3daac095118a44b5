//! A device that fails at each of its operations in turn, once or from then on, while backups, forgetting and a sweep
//! run: it is told, and once the device is well again nothing that was acknowledged is lost.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::{Faults, SimCounts, SimDir, When};
use onefold_store::{Encryption, Error, Result};

use crate::crash::{Roots, assert_recovers};
use crate::fixture::{back_up, chunks, init, open, sweep};

/// Works until the device fails; returns the roots that were acknowledged by then.
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

/// The same faults at the nth operation of those that they can hit, which `of` counts, alone and with all after it,
/// for every nth; afterwards the device is well again.
fn fail_everywhere(
    of: fn(SimCounts) -> u64,
    fault: impl Fn(When) -> Faults,
    is_expected: impl Fn(&Error) -> bool,
) {
    for when in [When::Once, When::From] {
        let hits = count_failures(of, |n| fault(when(n)), &is_expected);
        // A sweep goes on past most of what it cannot read.
        assert!(hits > 3, "only {hits} operations could fail");
    }
}

/// The same; how often that ended a verb.
fn count_failures(
    of: fn(SimCounts) -> u64,
    fault: impl Fn(u64) -> Faults,
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
        let faults = fault(n);
        device.inject(faults.clone());
        let (roots, failed) = work_until_it_fails(&device);
        let operations = of(device.counts());
        device.inject(Faults::default());
        // A sync that failed shows in a power cut alone.
        for (left, how) in [(device.crash_image(0), "power cut"), (device, "going on")] {
            let context = format!("{faults:?} ({failed:?}), {how}");
            assert_recovers(&left, &roots, &context);
        }
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

/// Once, it is read again, and no verb fails for it. At every read from some on, it is told as damage, and what was
/// stored is what was to be stored.
#[test]
fn a_bit_that_flips_in_a_read_is_told_or_costs_nothing() {
    let flips = |flip_read| Faults {
        flip_read,
        ..Faults::default()
    };
    let once = |n| flips(When::Once(n));
    let told = count_failures(|counts| counts.reads, once, Error::is_damage);
    assert_eq!(told, 0, "a single flip ended a verb");
    let from = |n| flips(When::From(n));
    let told = count_failures(|counts| counts.reads, from, Error::is_damage);
    assert!(told > 3, "only {told} flips were told");
}

#[test]
fn a_failed_write_is_told_and_loses_nothing() {
    fail_everywhere(
        |counts| counts.writes,
        |when| Faults {
            write_error: when,
            ..Faults::default()
        },
        |error| !error.is_damage(),
    );
}

#[test]
fn a_failed_operation_on_a_folder_is_told_and_loses_nothing() {
    fail_everywhere(
        |counts| counts.folders,
        |when| Faults {
            folder_error: when,
            ..Faults::default()
        },
        |error| !error.is_damage(),
    );
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
