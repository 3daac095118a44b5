//! The cleaning protocol of engine `log` as a state machine over zones in RAM, with a random scheduler: groups, runs,
//! merges, clones, cleaning, readers in flight, a full device, and crashes that tear and lose what was not synced.
//! Every chunk of every head is read after every step. Faults that the protocol must not have are switched on one by
//! one, and each has to be caught.
//!
//! `ONEFOLD_TEST_SCALE=50 cargo test --release -p onefold-volume --test it cleaning` does a million steps.

mod clean;
mod map;
mod recovery;
mod world;

use onefold_io::Random;

use self::world::{Fault, Lost, World};

/// Runs a world, and returns it or how it lost something.
fn run(seed: u64, steps: u32, fault: Option<Fault>) -> Result<World, (u32, Lost)> {
    let mut world = World::new(Random(seed), fault);
    for step in 0..steps {
        world.step().map_err(|lost| (step, lost))?;
    }
    Ok(world)
}

fn scale() -> u64 {
    let scale = std::env::var("ONEFOLD_TEST_SCALE");
    scale.ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

#[test]
fn the_protocol_loses_nothing() {
    let mut done = [0; 7];
    for seed in 0..20 * scale() {
        let world = run(seed, 1000, None)
            .unwrap_or_else(|(step, lost)| panic!("seed {seed}, step {step}: {}", lost.0));
        let counts = world.counts;
        let these = [
            counts.hits,
            counts.freed,
            counts.moved,
            counts.composed,
            counts.crashes,
            counts.full,
            counts.resolved_again,
        ];
        done.iter_mut()
            .zip(these)
            .for_each(|(sum, count)| *sum += count);
    }
    // Everything that the protocol is about has happened often.
    assert!(done.iter().all(|count| *count > 5), "{done:?}");
}

#[test]
fn each_fault_of_the_protocol_is_caught() {
    for fault in Fault::ALL {
        let caught = (0..400).find_map(|seed| run(seed, 500, Some(fault)).err());
        assert!(caught.is_some(), "{fault:?} loses nothing");
    }
}
