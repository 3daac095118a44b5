//! `cargo xtask model`: every state that sessions, sweeps and changes of roots can reach, with the state machines that
//! the store runs (`onefold_store::protocol`), in a world where everybody may sleep, die, be taken for dead while
//! alive, and have an answer lost. The search looks for a root whose chunk is gone. Each rule is also left out once,
//! and the search must then find the loss: otherwise it proves nothing.

mod search;
mod steps;
mod world;

use onefold_store::protocol::{ProtocolRules, Rule};

use search::{Outcome, search};
use world::Cast;

/// Largest number of states in a search that should end before: more than any search for a loss needs.
const STATES_MAX: usize = 50_000_000;
/// Number of states to search of the largest cast, which has too many to search all.
const LARGEST_STATES_MAX: usize = 100_000_000;

/// A cast and its description.
struct Scene {
    words: &'static str,
    cast: Cast,
}

fn scene(words: &'static str, sessions: usize, sweeps: usize, has: (bool, bool)) -> Scene {
    Scene {
        words,
        cast: Cast {
            sessions,
            sweeps,
            has_forget: has.0,
            has_tag: has.1,
            rules: ProtocolRules::default(),
        },
    }
}

/// With this variable the large casts are searched, too: a quarter of an hour, and 4 GB of RAM, when built for release.
const LARGE_CASTS: &str = "ONEFOLD_LARGE_CASTS";

#[test]
fn no_chunk_is_lost_and_each_rule_is_needed() {
    let small = scene("1 session, 1 sweep, forget and tag", 1, 1, (true, true));
    let sweeps = scene("2 sweeps and a forget", 0, 2, (true, false));
    for scene in [&small, &sweeps] {
        find_no_loss(scene, STATES_MAX, true);
    }
    if std::env::var_os(LARGE_CASTS).is_some() {
        search_large_casts();
    }
    for rule in Rule::ALL {
        // These two need two sweeps, one of which stores again what the other deletes.
        let is_of_sweeps = matches!(rule, Rule::CondemnedForEver | Rule::ConfirmPlace);
        let scene = if is_of_sweeps { &sweeps } else { &small };
        find_loss(scene, rule);
    }
}

fn search_large_casts() {
    let large = scene("1 session, 2 sweeps and a forget", 1, 2, (true, false));
    find_no_loss(&large, STATES_MAX, true);
    let tags = scene("2 sessions, a sweep and a tag", 2, 1, (false, true));
    find_no_loss(&tags, STATES_MAX, true);
    let largest = scene("2 sessions, 2 sweeps, forget and tag", 2, 2, (true, true));
    find_no_loss(&largest, LARGEST_STATES_MAX, false);
}

fn find_no_loss(scene: &Scene, states_max: usize, is_to_be_all: bool) {
    let words = scene.words;
    match search(&scene.cast, states_max) {
        Outcome::All(states) => println!("{words}: no loss in all {states} states"),
        Outcome::Limit(states) if !is_to_be_all => {
            println!("{words}: no loss in the first {states} states");
        }
        Outcome::Limit(states) => {
            panic!("{words}: more than {states} states");
        }
        Outcome::Loss(steps, _) => {
            let steps: Vec<_> = steps
                .iter()
                .map(|(who, what)| format!("  {who} {what}\n"))
                .collect();
            panic!("{words}: a chunk is lost:\n{}", steps.concat());
        }
    }
}

fn find_loss(scene: &Scene, rule: Rule) {
    let cast = Cast {
        rules: ProtocolRules::without(rule),
        ..scene.cast
    };
    match search(&cast, STATES_MAX) {
        Outcome::Loss(steps, states) => {
            let (count, words) = (steps.len(), scene.words);
            println!(
                "without {rule:?}: {words}: loss after {count} steps, found in {states} states"
            );
        }
        Outcome::All(states) | Outcome::Limit(states) => panic!(
            "without {rule:?}: no loss in {states} states: the model does not see what this rule is for"
        ),
    }
}
