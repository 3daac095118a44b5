//! What a user of the block device notices: what is written is read, whatever happens in between.

mod device;
mod golden;
