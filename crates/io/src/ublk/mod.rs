//! ublk, the kernel's driver for block devices that a process serves (Documentation/block/ublk.rst): commands that make
//! and remove devices, and queues of requests, both through io_uring.
//!
//! ```text
//! /dev/ublk-control ─▶ Control: add, start, stop, delete        /dev/ublkcN ─▶ Queue: requests come, answers go
//!                                                                           ─▶ UblkData: bytes of a request
//! ```
//!
//! Invariants:
//! 1. No memory of ours is lent to the kernel beyond a call: data is copied by `pread` and `pwrite` at `/dev/ublkcN`
//!    (UBLK_F_USER_COPY, Linux 6.5), by any thread, straight into and out of the buffers that are used anyway.
//! 2. The thread that opened a queue answers its requests: the kernel refuses all others.
//! 3. No recovery flag is set: a device ends with the process that serves it.
//!
//! This module knows bytes and queues, and nothing of what a block device does with its requests.

mod control;
mod queue;
mod wire;

pub use control::{CONTROL, Control, NewDevice};
pub use queue::{Queue, QueueBell, UblkData};
pub use wire::{Answer, UblkInfo, UblkOp, UblkRequest};
