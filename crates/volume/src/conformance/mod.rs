//! What every device, engine and metadata backend must do, as suites that anyone can run on their own: each does random
//! operations and compares with a naive twin in RAM. A suite panics where the two differ; the message holds the seed.

mod caller;
mod contents;
mod device;

pub use self::caller::Caller;
pub use self::contents::Contents;
pub use self::device::{DeviceTrial, device};
