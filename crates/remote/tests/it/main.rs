//! Tests of the crate: against a server of our own that fails as it is told, and against a real one.

mod conformance;
mod doctor;
mod ending;
mod fake;
mod fixture;
mod lost_answers;
mod real;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
#[path = "../../../io/tests/it/told.rs"]
mod untested;
mod versitygw;
