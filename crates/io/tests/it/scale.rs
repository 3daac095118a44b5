//! How much is tested: shared by the tests of all crates.

/// `ONEFOLD_TEST_SCALE`: 1 as CI has it; from 10 on every point is tried of what is sampled otherwise.
pub fn scale() -> u64 {
    match std::env::var("ONEFOLD_TEST_SCALE") {
        Ok(text) => text.parse().expect("ONEFOLD_TEST_SCALE is a number"),
        Err(_) => 1,
    }
}

/// How far apart the points are that are tried, where every `step`th is as a rule.
#[allow(dead_code, reason = "not every crate samples")]
pub fn apart(step: u64) -> u64 {
    match scale() {
        10.. => 1,
        scale => (step / scale.max(1)).max(1),
    }
}
