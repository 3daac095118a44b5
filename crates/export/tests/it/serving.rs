//! Requests that are right, and what they do.

use crate::client::{BLOCK_STATUS, DISCONNECT, FLUSH, READ, Rig, TRIM, WRITE, WRITE_ZEROES};
use onefold_export::RawDevice;
use std::sync::Arc;

const FUA: u16 = 1;

#[test]
fn what_is_written_is_read_on_any_connection() {
    let rig = Rig::new();
    let (mut ann, mut bob) = (rig.client(), rig.client());
    assert_eq!(ann.write(4096, &[7; 8192], 0), 0);
    assert_eq!(ann.write(4093, b"unaligned", FUA), 0);
    assert_eq!(ann.ask(FLUSH, 0, 0, 0).error, 0);
    assert_eq!(bob.read(4093, 9), b"unaligned");
    assert_eq!(bob.read(4102, 8186), [7; 8186]);
    assert_eq!(bob.ask(WRITE_ZEROES, FUA | 2 | 16, 4096, 4096).error, 0);
    assert_eq!(ann.read(4096, 4096), [0; 4096]);
    assert_eq!(ann.ask(TRIM, 0, 8192, 4096).error, 0);
    assert_eq!(bob.read(0, 0), b"");
}

#[test]
fn many_requests_at_once_are_each_answered_with_their_own_data() {
    let rig = Rig::new();
    let mut client = rig.client();
    for block in 0..200u64 {
        client.request(WRITE, 0, block, block * 4096, 4096);
        client.send(&[block as u8; 4096]);
    }
    let mut answered: Vec<u64> = (0..200).map(|_| client.reply().cookie).collect();
    answered.sort_unstable();
    assert!(answered.iter().copied().eq(0..200));
    for block in 0..200u64 {
        client.request(READ, 0, block, block * 4096, 4096);
    }
    for _ in 0..200 {
        let reply = client.reply();
        assert_eq!(reply.data, [reply.cookie as u8; 4096]);
    }
}

#[test]
fn of_two_writes_to_one_place_in_a_row_the_later_one_stays() {
    let rig = Rig::new();
    let mut client = rig.client();
    for round in 0..100u8 {
        // In one system call, so that they come in one batch.
        let mut both = Vec::new();
        for (cookie, fill) in [(1u64, round), (2, round + 100)] {
            both.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1]);
            both.extend(cookie.to_be_bytes());
            both.extend(512u64.to_be_bytes());
            both.extend(1024u32.to_be_bytes());
            both.extend([fill; 1024]);
        }
        client.send(&both);
        client.reply();
        client.reply();
        assert_eq!(client.read(512, 1024), [round + 100; 1024]);
    }
}

#[test]
fn holes_of_a_file_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(1 << 20).expect("a length");
    let rig = Rig::over(Arc::new(
        RawDevice::open(&path, "disk", true).expect("a device"),
    ));
    let mut client = rig.client();
    assert_eq!(client.write(256 << 10, &[1; 64 << 10], FUA), 0);
    let status = |client: &mut crate::client::Client, flags, offset, bytes| {
        let reply = client.ask(BLOCK_STATUS, flags, offset, bytes);
        assert_eq!(reply.error, 0);
        let numbers = reply
            .data
            .chunks(4)
            .map(|n| u32::from_be_bytes(n.try_into().expect("four")));
        numbers.collect::<Vec<_>>()
    };
    let all = status(&mut client, 0, 0, 1 << 20);
    assert_eq!(all, [1, 256 << 10, 3, 64 << 10, 0, 704 << 10, 3]);
    assert_eq!(
        status(&mut client, 8, 0, 1 << 20),
        [1, 256 << 10, 3],
        "only one"
    );
    assert_eq!(client.ask(TRIM, 0, 256 << 10, 64 << 10).error, 0);
    assert_eq!(status(&mut client, 0, 0, 1 << 20), [1, 1 << 20, 3]);
}

#[test]
fn extended_headers_carry_lengths_beyond_four_gibibytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(6 << 30).expect("a sparse file");
    let rig = Rig::over(Arc::new(
        RawDevice::open(&path, "disk", true).expect("a device"),
    ));
    let mut client = rig.connect();
    client.agree(11);
    assert_eq!(client.contexts("disk", &["base:allocation"]), [4, 1]);
    client.go("disk");
    assert_eq!(client.write(5 << 30, &[9; 4096], 32), 0);
    assert_eq!(client.read(5 << 30, 4096), [9; 4096]);
    let reply = client.ask(BLOCK_STATUS, 0, 0, 6 << 30);
    assert_eq!(
        reply.data[..8],
        [0, 0, 0, 1, 0, 0, 0, 3],
        "context 1, three stretches"
    );
    assert_eq!(reply.data[8..16], (5u64 << 30).to_be_bytes());
    assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 6 << 30).error, 0);
    assert_eq!(client.read(5 << 30, 4096), [0; 4096]);
}

#[test]
fn what_was_sent_before_the_client_left_or_the_server_ended_is_done() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.request(WRITE, 0, 1, 0, 4096);
    client.send(&[5; 4096]);
    client.request(DISCONNECT, 0, 2, 0, 0);
    assert_eq!(client.reply().cookie, 1);
    assert!(client.is_cut());
    let mut other = rig.client();
    assert_eq!(other.read(0, 4096), [5; 4096]);
    rig.stop();
    assert!(other.is_cut());
}

#[test]
fn a_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let living = onefold_export::Listener::unix(&path).expect("nobody listens there");
    let second = onefold_export::Listener::unix(&path);
    assert!(matches!(second, Err(onefold_export::Error::InUse { .. })));
    living.close();
    assert!(!path.exists());
}
