//! A modelled hard disk: the costs of an index on the device for which the papers were written.
//!
//! A spindle wraps a folder, whose disks keep the bytes, and keeps the account. A request at the position of the head
//! costs its transfer; one a little ahead costs the bytes in between; any other a seek, which grows with the root of
//! the distance, and half a turn (Ruemmler and Wilkes: "An introduction to disk drive modeling", 1994, without its
//! caches); each some time of the controller. Disks get extents in the order in which they grow, and give them back.
//!
//! Invariant: every byte that is read or written is counted once, and `modelled_us` is the sum of all requests, one
//! after the other. Nothing sleeps. Syncs cost nothing.

use std::collections::HashMap;

use crate::modelled::{Account, ModelledDir, ModelledDisk};
use crate::{Disk, ReadAt, Result, WriteAt};

/// Bytes that a disk is given at once.
const EXTENT_BYTES: u64 = 256 << 10;
/// Largest distance in bytes that is passed over without a seek.
const PASS_BYTES: u64 = 64 << 10;

/// The parameters of a hard disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpindleModel {
    /// Bytes from the first track to the last.
    pub capacity_bytes: u64,
    /// Microseconds of a seek to the next track.
    pub track_us: f64,
    /// Microseconds of a seek over the whole disk.
    pub stroke_us: f64,
    /// Microseconds a turn.
    pub turn_us: f64,
    /// Bytes transferred in a microsecond.
    pub bytes_a_us: f64,
    /// Microseconds that controller and disk spend on a request besides; neighbours in one call are one request.
    pub command_us: f64,
}

impl SpindleModel {
    /// PRUNE's disk for fingerprints (§5.1), a WD Raptor of 74 GB: 10,000 turns a minute, 4.6 ms a seek on the mean, 72
    /// MB/s.
    pub const RAPTOR: SpindleModel = SpindleModel {
        capacity_bytes: 74_000_000_000,
        track_us: 600.0,
        stroke_us: 8100.0,
        turn_us: 6000.0,
        bytes_a_us: 72.0,
        command_us: 0.0,
    };

    /// A disk of 7,200 turns a minute, 500 GB: 8.5 ms a seek on the mean, so about the 10 ms a lookup that ChunkStash
    /// counts with.
    pub const DESKTOP: SpindleModel = SpindleModel {
        capacity_bytes: 500_000_000_000,
        track_us: 1000.0,
        stroke_us: 15_000.0,
        turn_us: 8333.0,
        bytes_a_us: 80.0,
        command_us: 0.0,
    };

    /// The data disk of the Dmdedup report (§4.1), a Seagate Savvio 15K.2 of 146 GB behind its controller: 15,000 turns
    /// a minute, 3.3 ms a seek for writes on the mean. The report measured 147 MB/s with requests of 640 KiB (p. 24),
    /// and 11,100 requests of 4 KiB in order a second (p. 26), so 62.6 µs a request besides its transfer.
    pub const SAVVIO_15K2: SpindleModel = SpindleModel {
        capacity_bytes: 146_000_000_000,
        track_us: 440.0,
        stroke_us: 5800.0,
        turn_us: 4000.0,
        bytes_a_us: 149.1,
        command_us: 62.6,
    };

    /// This disk for data of `scale` times the size: seeks over the same share of the stroke cost the same.
    pub fn scaled(self, scale: f64) -> SpindleModel {
        SpindleModel {
            capacity_bytes: (self.capacity_bytes as f64 * scale) as u64,
            ..self
        }
    }
}

/// The figures of a hard disk's account.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SpindleCounts {
    /// Requests that moved the arm.
    pub seeks: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Modelled time of all requests, in microseconds.
    pub modelled_us: f64,
}

/// The account of a hard disk: the place of each extent, and the figures.
pub struct Spindle {
    model: SpindleModel,
    counts: SpindleCounts,
    /// Position of the head, in bytes from the first track.
    head: u64,
    next: u64,
    free: Vec<u64>,
    extents: HashMap<(u64, u64), u64>,
}

impl Spindle {
    /// Adds the cost of the requests of one call to disk `number`, offset and bytes, in the order of places, as a disk
    /// with a queue serves them.
    fn serve(&mut self, number: u64, mut requests: Vec<(u64, u64)>) {
        requests.sort_unstable();
        let mut end = None;
        for (offset, len) in requests {
            if end != Some(offset) {
                self.counts.modelled_us += self.model.command_us;
            }
            end = Some(offset + len);
            self.access(number, offset, len);
        }
    }

    /// Adds the cost of moving to `offset` and of the transfer.
    fn access(&mut self, number: u64, offset: u64, len: u64) {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let extent = at / EXTENT_BYTES;
            let until = end.min((extent + 1) * EXTENT_BYTES);
            let place = self.place(number, extent) + at % EXTENT_BYTES;
            self.turn_to(place, until - at);
            at = until;
        }
    }

    fn place(&mut self, number: u64, extent: u64) -> u64 {
        if let Some(place) = self.extents.get(&(number, extent)) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.next += EXTENT_BYTES;
            self.next - EXTENT_BYTES
        });
        self.extents.insert((number, extent), place);
        place
    }

    fn turn_to(&mut self, place: u64, len: u64) {
        let model = self.model;
        self.counts.modelled_us += len as f64 / model.bytes_a_us;
        self.counts.bytes += len;
        if place >= self.head && place - self.head <= PASS_BYTES {
            self.counts.modelled_us += (place - self.head) as f64 / model.bytes_a_us;
        } else {
            let part = self.head.abs_diff(place) as f64 / model.capacity_bytes.max(1) as f64;
            let seek = model.track_us + (model.stroke_us - model.track_us) * part.min(1.0).sqrt();
            self.counts.modelled_us += seek + model.turn_us / 2.0;
            self.counts.seeks += 1;
        }
        self.head = place + len;
    }
}

impl Account for Spindle {
    type Model = SpindleModel;
    type Counts = SpindleCounts;

    fn new(model: SpindleModel) -> Self {
        Self {
            model,
            counts: SpindleCounts::default(),
            head: 0,
            next: 0,
            free: Vec::new(),
            extents: HashMap::new(),
        }
    }

    fn counts(&self) -> SpindleCounts {
        self.counts
    }

    fn drop_disk(&mut self, number: u64) {
        let free = &mut self.free;
        self.extents.retain(|(disk, _), place| {
            if *disk == number {
                free.push(*place);
            }
            *disk != number
        });
        // the lowest is given first, so that a new disk stands in one piece where an old one did
        free.sort_unstable_by(|a, b| b.cmp(a));
    }
}

/// A folder on a modelled hard disk. Clones share the disk.
pub type SpindleDir = ModelledDir<Spindle>;

impl Disk for ModelledDisk<Spindle> {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read_at(buf, offset)?;
        let request = (offset, buf.len() as u64);
        self.account.lock().serve(self.number, vec![request]);
        Ok(())
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        self.disk.read_many_at(reads)?;
        let request = |read: &ReadAt<'_>| (read.offset, read.buf.len() as u64);
        let requests = reads.iter().map(request).collect();
        self.account.lock().serve(self.number, requests);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.disk.write_at(data, offset)?;
        let request = (offset, data.len() as u64);
        self.account.lock().serve(self.number, vec![request]);
        Ok(())
    }

    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        self.disk.write_many_at(writes)?;
        let request = |write: &WriteAt<'_>| (write.offset, write.data.len() as u64);
        let requests = writes.iter().map(request).collect();
        self.account.lock().serve(self.number, requests);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Dir, MemDir};

    #[test]
    fn requests_in_order_cost_their_transfer_and_others_a_seek() {
        let model = SpindleModel::RAPTOR;
        let dir = SpindleDir::new(Arc::new(MemDir::new()), model);
        let disk = dir.create("a").unwrap();
        disk.write_at(&[1; 1 << 20], 0).unwrap();
        let written = dir.counts();
        assert_eq!((written.seeks, written.bytes), (0, 1 << 20));
        assert!((written.modelled_us - (1 << 20) as f64 / model.bytes_a_us).abs() < 1e-6);
        let mut buf = [0; 4096];
        disk.read_at(&mut buf, 0).unwrap();
        disk.read_at(&mut buf, 4096).unwrap();
        let read = dir.counts();
        assert_eq!(read.seeks, 1);
        let cost = read.modelled_us - written.modelled_us;
        // a short seek, half a turn, and two pages
        assert!((3700.0..3800.0).contains(&cost), "{cost}");
    }

    #[test]
    fn writes_of_one_call_are_served_in_the_order_of_places_and_neighbours_are_one_request() {
        let model = SpindleModel::SAVVIO_15K2;
        let cost = |offsets: &[u64], together: bool| {
            let dir = SpindleDir::new(Arc::new(MemDir::new()), model);
            let disk = dir.create("a").unwrap();
            disk.write_at(&[0; 1 << 20], 0).unwrap();
            let before = dir.counts().modelled_us;
            let write = |offset: &u64| WriteAt {
                offset: *offset,
                data: &[1; 4096],
            };
            let writes: Vec<_> = offsets.iter().map(write).collect();
            if together {
                disk.write_many_at(&writes).unwrap()
            } else {
                (writes.iter()).for_each(|one| disk.write_at(one.data, one.offset).unwrap())
            }
            dir.counts().modelled_us - before
        };
        let neighbours = [4096, 0, 8192];
        let seek = cost(&[0], true) - model.command_us - 4096.0 / model.bytes_a_us;
        let one = seek + model.command_us + 3.0 * 4096.0 / model.bytes_a_us;
        assert!((cost(&neighbours, true) - one).abs() < 1.0);
        assert!(cost(&neighbours, false) > one + seek);
    }

    #[test]
    fn far_seeks_cost_more_and_a_removed_disk_gives_its_place() {
        let dir = SpindleDir::new(Arc::new(MemDir::new()), SpindleModel::RAPTOR.scaled(1e-4));
        let (near, far) = (dir.create("near").unwrap(), dir.create("far").unwrap());
        near.write_at(&[0; 4096], 0).unwrap();
        far.write_at(&[0; 4 << 20], 0).unwrap();
        let mut buf = [0; 4096];
        let mut cost = |disk: &dyn Disk, offset| {
            let before = dir.counts().modelled_us;
            disk.read_at(&mut buf, offset).unwrap();
            dir.counts().modelled_us - before
        };
        cost(&*near, 0);
        let long = cost(&*far, (4 << 20) - 4096);
        let short = cost(&*far, 3 << 20);
        assert!(long > short + 1000.0, "{long} and {short}");
        dir.remove("near").unwrap();
        let again = dir.create("again").unwrap();
        again.write_at(&[0; 4096], 0).unwrap();
        // the place of `near`, to which the head is led back
        assert_eq!(dir.counts().seeks, 5);
    }
}
