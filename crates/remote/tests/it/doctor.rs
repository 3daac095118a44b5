//! Findings of the doctor in stores that do as they must, and in those that do not.

use onefold_remote::doctor::{self, TrialExtent, TrialOutcome, TrialResult};

use crate::fake::{Dialect, Fake};
use crate::fixture::{location, options};

fn examined(fake: &Fake) -> Vec<TrialResult> {
    let location = location(&fake.endpoint(), "p");
    let mut told = 0;
    let found = doctor::examine(&location, &options(1), TrialExtent::Full, &mut |_| {
        told += 1
    });
    let found = found.expect("it can be reached");
    assert_eq!(told, found.len());
    assert!(fake.keys().is_empty(), "it leaves nothing behind");
    found
}

fn of<'a>(found: &'a [TrialResult], trial: &str) -> &'a TrialResult {
    found
        .iter()
        .find(|finding| finding.trial == trial)
        .expect(trial)
}

#[test]
fn a_store_that_keeps_conditions_is_good() {
    let fake = Fake::start();
    fake.tell_the_time();
    let found = examined(&fake);
    assert_eq!(doctor::verdict(&found), TrialOutcome::Good, "{found:?}");
    assert_eq!(found.len(), 11);
}

#[test]
fn a_store_that_lets_several_win_cannot_be_shared() {
    let fake = Fake::start();
    fake.tell_the_time();
    fake.speak(Dialect::LooksThenWrites);
    let found = examined(&fake);
    assert_eq!(doctor::verdict(&found), TrialOutcome::Unshared, "{found:?}");
    for trial in ["race for a free name", "race for a version"] {
        let finding = of(&found, trial);
        assert_eq!(finding.verdict, TrialOutcome::Unshared, "{finding:?}");
        assert!(
            finding
                .remedy
                .as_ref()
                .is_some_and(|it| it.contains("another store"))
        );
    }
}

#[test]
fn a_store_that_ignores_conditions_cannot_be_shared() {
    let fake = Fake::start();
    fake.speak(Dialect::IgnoresConditions);
    let found = examined(&fake);
    let finding = of(&found, "conditional writes");
    assert_eq!(finding.verdict, TrialOutcome::Unshared);
    assert!(
        finding.seen.contains("a name that was taken"),
        "{finding:?}"
    );
}

#[test]
fn a_store_whose_readings_mix_versions_cannot_be_shared() {
    let fake = Fake::start();
    fake.tell_the_time();
    fake.speak(Dialect::TagsBeforeBytes);
    let found = examined(&fake);
    let finding = of(&found, "version and bytes");
    assert_eq!(finding.verdict, TrialOutcome::Unshared, "{finding:?}");
}

#[test]
fn a_clock_that_is_far_off_is_told() {
    let fake = Fake::start();
    fake.tell_the_time();
    fake.advance_s(3600);
    let found = examined(&fake);
    let finding = of(&found, "clock");
    assert_eq!(finding.verdict, TrialOutcome::Bad);
    assert!(finding.seen.contains("ahead"), "{finding:?}");
}
