//! Requests that are wrong: each gets its error, the connection stays usable, and memory stays bounded.

use crate::client::{BLOCK_STATUS, FLUSH, READ, Rig, TRIM, WRITE, WRITE_ZEROES};
use onefold_export::RawDevice;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

#[test]
fn a_wrong_request_gets_its_error_and_the_next_one_is_served() {
    let rig = Rig::new();
    let mut client = rig.client();
    let end = 1 << 20;
    assert_eq!(client.write(7, b"before", 0), 0);
    assert_eq!(client.write(end - 10, &[1; 4096], 0), ENOSPC);
    assert_eq!(client.write(u64::MAX, &[1; 4096], 0), ENOSPC);
    assert_eq!(client.ask(READ, 0, end, 4096).error, EINVAL);
    assert_eq!(client.ask(READ, 0, u64::MAX - 1, 4096).error, EINVAL);
    assert_eq!(client.ask(TRIM, 0, end - 1, 2).error, ENOSPC);
    assert_eq!(client.ask(WRITE_ZEROES, 0, end, 1).error, ENOSPC);
    assert_eq!(client.ask(BLOCK_STATUS, 0, end, 1).error, EINVAL);
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 0).error, EINVAL);
    assert_eq!(client.ask(FLUSH, 0, 1, 0).error, EINVAL);
    assert_eq!(client.ask(99, 0, 0, 0).error, EINVAL, "unknown command");
    assert_eq!(
        client.ask(READ, 1 << 9, 0, 512).error,
        EINVAL,
        "unknown flag"
    );
    assert_eq!(
        client.write(0, &[1; 512], 1 << 9),
        EINVAL,
        "its payload is skipped"
    );
    assert_eq!(
        client.write(0, &[1; 512], 32),
        EINVAL,
        "no extended headers here"
    );
    assert_eq!(client.write(0, &vec![1; (32 << 20) + 1], 0), ENOSPC);
    assert_eq!(client.read(7, 6), b"before");
}

#[test]
fn a_write_longer_than_the_largest_block_is_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(1 << 30))
        .expect("a file");
    let rig = Rig::over(Arc::new(
        RawDevice::open(&path, "disk", true).expect("a device"),
    ));
    let mut client = rig.client();
    assert_eq!(client.write(0, &vec![1; (32 << 20) + 1], 0), EINVAL);
    assert_eq!(client.ask(READ, 0, 0, (32 << 20) + 1).error, EINVAL);
    assert_eq!(client.read(0, 4096), [0; 4096]);
}

#[test]
fn what_is_read_only_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::write(&path, [3; 8192]).expect("a file");
    let rig = Rig::over(Arc::new(
        RawDevice::open(&path, "disk", false).expect("a device"),
    ));
    let mut client = rig.client();
    assert_eq!(client.write(0, &[1; 512], 0), EPERM);
    assert_eq!(client.ask(TRIM, 0, 0, 512).error, EPERM);
    assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 512).error, EPERM);
    assert_eq!(client.read(0, 8192), [3; 8192]);
    let (_, flags) = rig.connect().go("disk");
    assert_eq!(flags & 2, 2, "the client is told");
}

#[test]
fn who_sends_no_request_is_cut_off_and_others_are_not() {
    let rig = Rig::new();
    let mut other = rig.client();
    let mut client = rig.client();
    client.send(&[9; 28]);
    assert!(client.is_cut());
    // A payload that never comes whole.
    let mut client = rig.client();
    client.request(WRITE, 0, 1, 0, 4096);
    client.send(&[1; 100]);
    drop(client);
    assert_eq!(other.read(0, 4096), [0; 4096]);
}

#[test]
fn a_client_that_takes_no_replies_gets_only_its_share_of_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(64 << 20))
        .expect("a file");
    let device = Arc::new(RawDevice::open(&path, "disk", true).expect("a device"));
    let limits = onefold_export::nbd::ServerLimits {
        request_bytes_max: 32 << 20,
        ..Default::default()
    };
    let rig = Rig::limited(device, limits);
    let mut greedy = rig.client();
    // 64 reads of 4 MiB: 256 MiB that nobody takes.
    for cookie in 0..64 {
        greedy.request(READ, 0, cookie, 0, 4 << 20);
    }
    let mut other = rig.client();
    for _ in 0..10 {
        assert_eq!(other.read(0, 4 << 20).len(), 4 << 20);
    }
    for _ in 0..64 {
        assert_eq!(
            greedy.reply().data.len(),
            4 << 20,
            "it is served when it takes them"
        );
    }
}

#[test]
fn there_are_only_so_many_clients() {
    let limits = onefold_export::nbd::ServerLimits {
        connections_max: 2,
        ..Default::default()
    };
    let rig = Rig::in_memory(limits);
    let (mut ann, mut bob) = (rig.client(), rig.client());
    let third = rig.try_connect();
    assert!(third.is_none(), "a third one is turned away");
    assert_eq!(ann.read(0, 1).len() + bob.read(0, 1).len(), 2);
}

/// A client that goes away in the middle of a request, without a word, is cut off; so is one whose host stands still
/// for longer than is allowed. Others do not notice.
#[test]
fn a_client_that_stops_in_the_middle_is_cut_off() {
    let limits = onefold_export::nbd::ServerLimits {
        connections_max: 3,
        stall_max: std::time::Duration::ZERO,
        ..Default::default()
    };
    let rig = Rig::in_memory(limits);
    let (mut silent, mut gone, mut other) = (rig.client(), rig.client(), rig.client());
    assert_eq!(other.write(0, &[7; 4096], 0), 0);
    // Half of a request's head; all of it and a part of its bytes.
    silent.send(&[0x25, 0x60, 0x95, 0x13, 0, 0]);
    gone.request(1, 0, 1, 0, 65_536);
    gone.send(&[9; 4096]);
    assert!(silent.is_cut() && gone.is_cut());
    assert_eq!(other.read(0, 4096), [7; 4096], "half a write is none");
    drop((silent, gone));
    let mut late = rig.client();
    assert_eq!(late.read(0, 4096), [7; 4096]);
}

/// Clients that announce more than all memory of requests and send nothing keep none from being served whose requests
/// are there, and are cut off.
#[test]
fn writers_that_stall_keep_nobody_from_being_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(64 << 20))
        .expect("a file");
    let device = Arc::new(RawDevice::open(&path, "disk", true).expect("a device"));
    let limits = onefold_export::nbd::ServerLimits {
        stall_max: Duration::from_secs(12),
        ..Default::default()
    };
    let rig = Rig::limited(device, limits);
    let mut stalled: Vec<_> = (0..9).map(|_| rig.client()).collect();
    for client in &mut stalled {
        client.request(WRITE, 0, 1, 0, 32 << 20);
        client.send(&[1]);
    }
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    let mut healthy = rig.client();
    assert_eq!(healthy.read(0, 4096), [0; 4096]);
    assert_eq!(healthy.write(0, &[7; 128 << 10], 0), 0);
    let took = asked.elapsed();
    // The first of those that stall is cut off some two seconds later.
    assert!(
        took < Duration::from_secs(10),
        "it was served after {took:?}"
    );
    // Those who waited for memory themselves have their whole patience after that.
    assert!(stalled.iter_mut().all(|client| client.is_cut()));
    let took = asked.elapsed();
    assert!(
        took < Duration::from_secs(90),
        "they were cut off after {took:?}"
    );
    assert_eq!(
        healthy.write(0, &vec![8; 4 << 20], 0),
        0,
        "a large write is taken again"
    );
}

/// A client that sends a little now and then is cut off as well.
#[test]
fn a_payload_that_drips_is_cut_off() {
    let limits = onefold_export::nbd::ServerLimits {
        stall_max: Duration::from_secs(1),
        ..Default::default()
    };
    let rig = Rig::in_memory(limits);
    let mut client = rig.client();
    client.request(WRITE, 0, 1, 0, 1 << 20);
    let began = Instant::now();
    while client.try_send(&[1]) {
        assert!(began.elapsed() < Duration::from_secs(30), "it drips on");
        std::thread::sleep(Duration::from_millis(100));
    }
}
