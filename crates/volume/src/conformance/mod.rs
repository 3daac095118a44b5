//! Suites for every device, engine and metadata backend, which anyone can run on their own: each does random operations
//! and compares with a naive twin in RAM. A suite panics where the two differ; the message holds the seed.

mod backend;
mod caller;
mod contents;
mod device;
mod engine;
mod model;

pub use self::backend::{BackendTrial, OpenBackend, backend};
pub use self::caller::{Caller, Waiting, request};
pub use self::contents::Contents;
pub use self::device::{DeviceTrial, device};
pub use self::engine::{EngineTrial, engine};
pub use self::model::CrashModel;
