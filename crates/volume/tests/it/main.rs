//! Promises to a user of the block device: written data is read, whatever happens in between.

mod cbt;
mod check;
mod cleaning;
mod crash;
mod damage_matrix;
mod depot;
mod determinism;
mod device;
mod dtb;
mod encrypted;
mod faults;
mod front;
mod full;
mod golden;
mod healing;
mod hints;
mod inferred;
mod log_faults;
mod log_limits;
mod opened;
mod recorder;
mod resources;
mod room;
mod shortage;
mod suites;
mod tables;
