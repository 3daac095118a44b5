//! The suite of block devices: whatever is written is read, in every way of asking.

use std::ops::Range;
use std::sync::Arc;

use super::caller::{Caller, request};
use super::contents::Contents;
use crate::{BlockDevice, Buffer, ExtentKind, Op};

/// How much a suite does, and with which random numbers.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTrial {
    /// The random numbers.
    pub seed: u64,
    /// How many requests are made.
    pub requests: u64,
    /// How many different contents a sector can have.
    pub kinds: u64,
}

/// Runs the suite. `open` gives the device, for the first time and whenever it is to be closed and opened again; what
/// was written before must still be there. The device is all zeros at first, and best a few MiB large.
pub fn device(trial: DeviceTrial, open: &mut dyn FnMut() -> Arc<dyn BlockDevice>) {
    let mut suite = DeviceSuite::new(trial, open());
    for _ in 0..trial.requests {
        match suite.contents.below(40) {
            0..16 => suite.write(),
            16..18 => suite.write_several(),
            18..30 => suite.read(),
            30..32 => suite.discard(),
            32..34 => suite.write_zeroes(),
            34..37 => suite.caller.flush().expect("a flush succeeds"),
            37 => suite.check_extents(),
            38 => suite.refuse(),
            _ => {
                if suite.contents.below(4) == 0 {
                    suite.caller = Caller(suite.placeholder());
                    suite.caller = Caller(open());
                    suite.check_all();
                }
            }
        }
    }
    suite.check_all();
    suite.check_extents();
}

struct DeviceSuite {
    trial: DeviceTrial,
    contents: Contents,
    caller: Caller,
    chunk_bytes: u64,
    /// The naive twin: what the device holds.
    twin: Vec<u8>,
}

impl DeviceSuite {
    fn new(trial: DeviceTrial, device: Arc<dyn BlockDevice>) -> Self {
        let geometry = device.geometry();
        assert!(geometry.is_writable && geometry.chunk_bytes.is_power_of_two());
        Self {
            trial,
            contents: Contents::new(trial.seed, trial.kinds),
            caller: Caller(device),
            chunk_bytes: u64::from(geometry.chunk_bytes),
            twin: vec![0; geometry.bytes as usize],
        }
    }

    /// Nothing is held of the device while it is opened again.
    fn placeholder(&self) -> Arc<dyn BlockDevice> {
        Arc::new(Nothing)
    }

    fn range(&mut self) -> Range<u64> {
        self.contents.range(self.twin.len() as u64)
    }

    fn write(&mut self) {
        let range = self.range();
        let bytes = self.contents.bytes(&range);
        match self.contents.below(8) {
            0 => self.caller.write_through(range.start, &bytes),
            _ => self.caller.write(range.start, &bytes),
        }
        .expect("a write succeeds");
        self.twin[usized(&range)].copy_from_slice(&bytes);
    }

    /// Writes that are submitted together end in their order, also where they overlap.
    fn write_several(&mut self) {
        let mut requests = Vec::new();
        let near = self.range();
        for _ in 0..2 + self.contents.below(6) {
            let within = self.contents.range(near.end - near.start);
            let range = near.start + within.start..near.start + within.end;
            let bytes = self.contents.bytes(&range);
            let buffer = Buffer::copy_of(&bytes);
            let fua = self.contents.below(8) == 0;
            requests.push(request(
                Op::Write,
                range.start,
                bytes.len() as u64,
                buffer,
                fua,
            ));
            self.twin[usized(&range)].copy_from_slice(&bytes);
        }
        for waiting in self.caller.submit(requests) {
            waiting.wait().expect("a write succeeds");
        }
        self.check(near);
    }

    fn read(&mut self) {
        let range = self.range();
        self.check(range);
    }

    fn check(&self, range: Range<u64>) {
        let found = self.caller.read(range.start, range.end - range.start);
        let found = found.expect("a read succeeds");
        let expected = &self.twin[usized(&range)];
        if let Some(at) = expected.iter().zip(&found[..]).position(|(a, b)| a != b) {
            panic!(
                "{:?}: byte {} of a read of {range:?} differs",
                self.trial,
                range.start + at as u64
            );
        }
    }

    fn check_all(&self) {
        let bytes = self.twin.len() as u64;
        let step = 1 << 20;
        (0..bytes)
            .step_by(step)
            .for_each(|at| self.check(at..bytes.min(at + step as u64)));
    }

    /// Whole chunks become zeros; of others each byte stays or becomes zero.
    fn discard(&mut self) {
        let range = self.range();
        self.caller
            .discard(range.start, range.end - range.start)
            .expect("a discard succeeds");
        let chunk = self.chunk_bytes;
        let start = range.start.next_multiple_of(chunk);
        let whole = start..(range.end / chunk * chunk).max(start);
        self.twin[usized(&whole)].fill(0);
        for edge in [
            range.start..whole.start.min(range.end),
            whole.end.max(range.start)..range.end,
        ] {
            let found = self
                .caller
                .read(edge.start, edge.end.saturating_sub(edge.start));
            let found = found.expect("a read succeeds");
            for (now, old) in found.iter().zip(&mut self.twin[usized(&edge)]) {
                assert!(
                    *now == 0 || now == old,
                    "{:?}: a discard of {range:?}",
                    self.trial
                );
                *old = *now;
            }
        }
    }

    fn write_zeroes(&mut self) {
        let range = self.range();
        self.caller
            .write_zeroes(range.start, range.end - range.start)
            .expect("zeroing succeeds");
        self.twin[usized(&range)].fill(0);
    }

    /// Extents have no gaps, and holes are zeros.
    fn check_extents(&mut self) {
        let range = self.range();
        let mut at = range.start;
        let twin = &self.twin;
        let trial = self.trial;
        self.caller
            .0
            .extents(range.clone(), &mut |extent, kind| {
                assert_eq!(extent.start, at, "{trial:?}: extents of {range:?}");
                assert!(extent.end > at && extent.end <= range.end);
                let is_zero = twin[usized(&extent)].iter().all(|byte| *byte == 0);
                assert!(
                    kind == ExtentKind::Data || is_zero,
                    "{trial:?}: a hole at {extent:?}"
                );
                at = extent.end;
                true
            })
            .expect("extents can be told");
        assert_eq!(at, range.end, "{trial:?}: extents of {range:?}");
    }

    /// Requests beyond the end are refused, and change nothing.
    fn refuse(&mut self) {
        let bytes = self.twin.len() as u64;
        assert!(self.caller.write(bytes - 1, &[1, 2]).is_err());
        assert!(self.caller.read(bytes, 1).is_err());
        assert!(self.caller.discard(u64::MAX - 1, 2).is_err());
        assert!(
            self.caller
                .0
                .extents(0..bytes + 1, &mut |_, _| true)
                .is_err()
        );
        self.check(bytes - 1..bytes);
    }
}

fn usized(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end.max(range.start) as usize
}

/// Stands for a device that is closed.
struct Nothing;

impl BlockDevice for Nothing {
    fn geometry(&self) -> crate::Geometry {
        crate::Geometry {
            bytes: 0,
            chunk_bytes: 512,
            io_bytes_max: 0,
            is_writable: false,
            name: String::new(),
        }
    }

    fn submit(&self, requests: &mut Vec<crate::Request>) {
        requests.clear();
    }

    fn extents(&self, _range: Range<u64>, _visit: crate::Visit<'_>) -> crate::Result<()> {
        Ok(())
    }
}
