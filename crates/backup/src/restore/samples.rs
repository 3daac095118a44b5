//! Chooses entries whose metadata is read back although nobody asked for a verification: some file systems report
//! success and keep something else, and a user without `--verify` is to learn of it, too.
//!
//! Entries are told apart by classes: on one device, entries of one kind, mode and owner are treated alike. The first
//! entry of each class is read back. Once one of them differs, all further entries on its device are, so that they can
//! be counted. A restore where all is kept reads back a few dozen entries, and one in a hundred at most.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::apply::Meta;
use crate::{Kind, Time};

/// Entries that are read back however small the restore is.
const READINGS_FREE: u64 = 32;
/// Number of entries for which one more is read back at most, while nothing differs.
const ENTRIES_PER_READING: u64 = 100;
/// Seconds since 1970 at which the ranges of some file systems begin or end: ext4 with small inodes (1901, 2038), FAT
/// and exFAT (1980, 2108), XFS without large times (2038), ext4 (2446).
const TIME_BOUNDS: [i64; 6] = [
    -0x8000_0000,
    0,
    315_532_800,
    0x8000_0000,
    4_354_819_200,
    0x3_8000_0000,
];

/// Entries that a file system is expected to treat alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    device: u64,
    pub kind: Kind,
    mode: u16,
    owner: (u32, u32),
    has_attributes: bool,
    has_access_time: bool,
    time_range: usize,
}

impl Class {
    /// Returns the class of an entry with this metadata on a device.
    pub fn of(device: u64, kind: Kind, meta: &Meta) -> Self {
        Self {
            device,
            kind,
            mode: meta.mode,
            owner: (meta.owner.uid, meta.owner.gid),
            has_attributes: !meta.xattrs.is_empty(),
            has_access_time: meta.atime.is_some(),
            time_range: time_range(meta.mtime),
        }
    }
}

fn time_range(time: Time) -> usize {
    TIME_BOUNDS.partition_point(|bound| *bound <= time.secs)
}

/// Entries of a restore that were read back so far.
#[derive(Default)]
pub struct Samples(Mutex<ReadBack>);

#[derive(Default)]
struct ReadBack {
    entries: u64,
    readings: u64,
    known: HashSet<Class>,
    /// Devices on which an entry differed.
    doubted: HashSet<u64>,
}

impl Samples {
    /// Calls `differs` for an entry that is to be read back; it returns whether the entry's metadata differs from what
    /// was set. Other threads wait meanwhile, so that no entry of the same class is left uncounted.
    pub fn take(&self, class: Class, differs: impl FnOnce() -> bool) {
        let mut state = self.0.lock();
        state.entries += 1;
        if state.doubted.contains(&class.device) {
            drop(state);
            differs();
            return;
        }
        let readings_max = READINGS_FREE + state.entries / ENTRIES_PER_READING;
        if state.readings < readings_max && state.known.insert(class) {
            state.readings += 1;
            if differs() {
                state.doubted.insert(class.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Owner, SharedXattrs};

    fn meta(mode: u16, uid: u32, secs: i64) -> Meta {
        let owner = Owner {
            uid,
            ..Owner::default()
        };
        Meta {
            mode,
            owner: Arc::new(owner),
            mtime: Time { secs, nanos: 0 },
            atime: None,
            xattrs: SharedXattrs::default(),
            knows_xattrs: true,
        }
    }

    /// Returns how many of `rounds` entries of these classes are read back, of which those on device 2 differ.
    fn read_back(samples: &Samples, classes: &[Class], rounds: usize) -> usize {
        let mut readings = 0;
        for class in classes.iter().cycle().take(rounds) {
            samples.take(*class, || {
                readings += 1;
                class.device == 2
            });
        }
        readings
    }

    #[test]
    fn one_entry_of_each_class_is_read_back_and_all_of_a_device_that_keeps_other_things() {
        let class = |device, mode| Class::of(device, Kind::File, &meta(mode, 0, 1_000_000_000));
        let kept = [class(1, 0o644), class(1, 0o600), class(3, 0o644)];
        let samples = Samples::default();
        assert_eq!(read_back(&samples, &kept, 3000), 3);
        assert_eq!(read_back(&samples, &[class(2, 0o644)], 1000), 1000);
        assert_eq!(read_back(&samples, &kept, 3000), 0);
    }

    #[test]
    fn times_that_file_systems_cut_off_are_classes_of_their_own() {
        let years = [
            -3_000_000_000,
            -1,
            1,
            1_000_000_000,
            2_200_000_000,
            5_000_000_000,
        ];
        let classes = years.map(|secs| Class::of(1, Kind::File, &meta(0o644, 0, secs)));
        assert_eq!(read_back(&Samples::default(), &classes, 600), years.len());
    }

    /// A server may have the files of thousands of users.
    #[test]
    fn entries_of_very_many_owners_are_not_all_read_back() {
        let of = |uid| Class::of(1, Kind::File, &meta(0o644, uid, 1_000_000_000));
        let classes: Vec<Class> = (0..10_000).map(of).collect();
        let readings = read_back(&Samples::default(), &classes, 10_000);
        assert_eq!(
            readings as u64,
            READINGS_FREE + 10_000 / ENTRIES_PER_READING
        );
    }
}
