//! Findings of the doctor in stores that do as they must, and in those that do not.

use onefold_remote::doctor::{self, Extent, Finding, Verdict};

use crate::fake::{Dialect, Fake};
use crate::fixture::{location, options};

fn examined(fake: &Fake) -> Vec<Finding> {
    let location = location(&fake.endpoint(), "p");
    let mut told = 0;
    let found = doctor::examine(&location, &options(1), Extent::Full, &mut |_| told += 1);
    let found = found.expect("it can be reached");
    assert_eq!(told, found.len());
    assert!(fake.keys().is_empty(), "it leaves nothing behind");
    found
}

fn of<'a>(found: &'a [Finding], trial: &str) -> &'a Finding {
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
    assert_eq!(doctor::verdict(&found), Verdict::Good, "{found:?}");
    assert_eq!(found.len(), 11);
}

#[test]
fn a_store_that_lets_several_win_cannot_be_shared() {
    let fake = Fake::start();
    fake.tell_the_time();
    fake.speak(Dialect::LooksThenWrites);
    let found = examined(&fake);
    assert_eq!(doctor::verdict(&found), Verdict::Unshared, "{found:?}");
    for trial in ["race for a free name", "race for a version"] {
        let finding = of(&found, trial);
        assert_eq!(finding.verdict, Verdict::Unshared, "{finding:?}");
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
    assert_eq!(finding.verdict, Verdict::Unshared);
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
    assert_eq!(finding.verdict, Verdict::Unshared, "{finding:?}");
}

#[test]
fn a_clock_that_is_far_off_is_told() {
    let fake = Fake::start();
    fake.tell_the_time();
    fake.advance_s(3600);
    let found = examined(&fake);
    let finding = of(&found, "clock");
    assert_eq!(finding.verdict, Verdict::Bad);
    assert!(finding.seen.contains("ahead"), "{finding:?}");
}
