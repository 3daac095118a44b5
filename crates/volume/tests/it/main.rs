//! What a user of the block device notices: what is written is read, whatever happens in between.

mod crash;
mod depot;
mod device;
mod faults;
mod front;
mod golden;
mod log_limits;
mod recorder;
mod room;
mod suites;
