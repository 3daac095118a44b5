//! Bits that flip on the way from the device, once or at every read from some on: no wrong byte is given, and no repair
//! makes a loss final that the bytes on the device do not bear out.

use std::collections::BTreeSet;
use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::{Faults, SimDir, When};
use onefold_store::{Encryption, RepairReport, Repository, Result, RootId, SessionKind};

use crate::fixture::{Hasty, Lists, containers, decode_root, open, stored_with};
use crate::scale::apart;
use crate::unreadable::take_back;

/// A device whose first container has a damaged block, the next one a damaged header, one more a damaged table; with a
/// sketch.
fn damaged(encryption: Encryption) -> (SimDir, RootId, Vec<Vec<u8>>) {
    let (device, root, data) = stored_with(encryption);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let repository = open(&dir, 1, 2).unwrap();
    repository.put_sketch(b"what was learnt").unwrap();
    let all = containers(&device);
    assert!(all.len() >= 3, "{all:?}");
    device
        .damage(&all[0], |bytes| bytes[6000] ^= 1)
        .and_then(|()| device.damage(&all[1], |bytes| bytes[10] ^= 1))
        .unwrap();
    device
        .damage(&all[2], |bytes| {
            let at = bytes.len() - 150;
            bytes[at] ^= 1;
        })
        .unwrap();
    (device, root, data)
}

/// The chunks of a root that can be read, each as it was written.
fn readable(repository: &Repository, root: &RootId, data: &[Vec<u8>]) -> BTreeSet<usize> {
    let session = repository.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let refs = decode_root(&repository.root(root).unwrap());
    let mut found = BTreeSet::new();
    for (number, chunk) in refs.iter().enumerate() {
        if let Ok(bytes) = reader.read(chunk) {
            assert!(*bytes == data[number][..], "chunk {number} reads otherwise");
            found.insert(number);
        }
    }
    session.finish().unwrap();
    found
}

fn repair(device: &SimDir, seed: u64) -> Result<RepairReport> {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    open(&dir, 1, seed)?.repair(&Lists, &mut Hasty)
}

#[test]
fn no_read_of_a_repair_that_flips_a_bit_loses_anything() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let (device, root, data) = damaged(encryption);
        let rehearsal = device.fork();
        rehearsal.inject(Faults::default());
        let without = repair(&rehearsal, 3).unwrap();
        let reads = rehearsal.counts().reads;
        let dir: Arc<dyn Dir> = Arc::new(rehearsal);
        let left = readable(&open(&dir, 1, 4).unwrap(), &root, &data);
        assert!(!left.is_empty() && left.len() < data.len());
        assert!(without.removed_objects.is_empty());
        assert_eq!(without.replaced_containers.len(), 3);
        for n in 0..reads {
            let context = format!("{encryption:?}, read {n} of {reads}");
            let device = device.fork();
            device.inject(Faults {
                flip_read: When::Once(n),
                ..Faults::default()
            });
            let report = repair(&device, 3).unwrap_or_else(|error| panic!("{context}: {error}"));
            device.inject(Faults::default());
            assert!(
                report.removed_objects.is_empty(),
                "{context}: {:?}",
                report.removed_objects
            );
            let found = report.replaced_containers.len() + report.set_aside.len();
            assert_eq!(found, 3, "{context}: {:?}", report.found);
            let dir: Arc<dyn Dir> = Arc::new(device);
            let repository = open(&dir, 1, 4).unwrap();
            assert_eq!(readable(&repository, &root, &data), left, "{context}");
        }
    }
}

/// The worst case: from some read on each one flips a bit. What is set aside then can be taken back when the device is
/// well again.
#[test]
fn a_repair_that_reads_nothing_right_any_more_loses_nothing() {
    let (device, root, data) = damaged(Encryption::Aes256Gcm);
    let rehearsal = device.fork();
    rehearsal.inject(Faults::default());
    repair(&rehearsal, 3).unwrap();
    let reads = rehearsal.counts().reads;
    let dir: Arc<dyn Dir> = Arc::new(rehearsal);
    let left = readable(&open(&dir, 1, 4).unwrap(), &root, &data);
    let mut were_set_aside = 0;
    for n in (0..reads).step_by(apart(5) as usize) {
        let context = format!("from read {n} of {reads} on");
        let device = device.fork();
        device.inject(Faults {
            flip_read: When::From(n),
            ..Faults::default()
        });
        were_set_aside += repair(&device, 3).map_or(0, |report| report.set_aside.len());
        device.inject(Faults::default());
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        take_back(&dir, &device);
        repair(&device, 5).unwrap_or_else(|error| panic!("{context}: {error}"));
        let repository = open(&dir, 1, 4).unwrap();
        assert_eq!(readable(&repository, &root, &data), left, "{context}");
    }
    assert!(were_set_aside > 0);
}
