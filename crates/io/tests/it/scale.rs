//! The amount of testing: shared by the tests of all crates.

/// `ONEFOLD_TEST_SCALE`: 1 in CI; from 10 on every point is tested where usually a sample is.
pub fn scale() -> u64 {
    match std::env::var("ONEFOLD_TEST_SCALE") {
        Ok(text) => text.parse().expect("ONEFOLD_TEST_SCALE is a number"),
        Err(_) => 1,
    }
}

/// Distance between the points that are tested, where every `step`th is tested at scale 1.
#[allow(dead_code, reason = "not every crate samples")]
pub fn apart(step: u64) -> u64 {
    match scale() {
        10.. => 1,
        scale => (step / scale.max(1)).max(1),
    }
}
