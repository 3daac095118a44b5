//! Options before an export is chosen.

use crate::client::{Rig, text};

const INVALID: u32 = (1 << 31) + 3;
const UNKNOWN: u32 = (1 << 31) + 6;
const UNSUPPORTED: u32 = (1 << 31) + 1;
const TOO_BIG: u32 = (1 << 31) + 9;

#[test]
fn exports_are_listed_and_the_empty_name_is_the_first() {
    let rig = Rig::new();
    let mut client = rig.connect();
    client.option(3, &[]);
    assert_eq!(client.answer(), (3, 2, text("disk")));
    assert_eq!(client.answer(), (3, 1, vec![]));
    assert_eq!(client.go("").0, 1 << 20);
}

#[test]
fn an_old_client_chooses_by_name_alone() {
    use std::io::Read;
    let rig = Rig::new();
    let mut client = rig.connect();
    client.option(1, b"disk");
    let mut export = [0; 10];
    client
        .socket
        .read_exact(&mut export)
        .expect("size and flags");
    assert_eq!(export[..8], (1u64 << 20).to_be_bytes());
    // Simple replies, since nothing else was agreed on.
    client.request(3, 0, 9, 0, 0);
    let mut reply = [0; 16];
    client.socket.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    assert_eq!(reply[8..], 9u64.to_be_bytes());
}

#[test]
fn what_is_not_there_is_refused_and_the_handshake_goes_on() {
    let rig = Rig::new();
    let mut client = rig.connect();
    client.option(99, b"what");
    assert_eq!(client.answers(), [UNSUPPORTED]);
    client.option(5, &[]);
    assert_eq!(client.answers(), [UNSUPPORTED], "no TLS here");
    client.option(7, &[text("nobody"), vec![0, 0]].concat());
    assert_eq!(client.answers(), [UNKNOWN]);
    client.option(7, &[text("disk"), vec![0, 9]].concat());
    assert_eq!(
        client.answers(),
        [INVALID],
        "nine kinds of information, none sent"
    );
    client.option(3, b"data");
    assert_eq!(client.answers(), [INVALID]);
    client.option(6, &vec![0; 70 << 10]);
    assert_eq!(client.answers(), [TOO_BIG]);
    assert_eq!(
        client.contexts("disk", &["base:allocation"]),
        [INVALID],
        "not structured"
    );
    client.agree(8);
    assert_eq!(client.contexts("nobody", &["base:allocation"]), [UNKNOWN]);
    assert_eq!(client.contexts("disk", &["qemu:dirty-bitmap:b"]), [1]);
    assert_eq!(client.contexts("disk", &["x:", "base:allocation"]), [4, 1]);
    client.option(2, &[]);
    assert_eq!(client.answers(), [1]);
    assert!(client.is_cut());
}

#[test]
fn who_floods_with_options_or_sends_no_option_is_cut_off() {
    let rig = Rig::new();
    let mut client = rig.connect();
    for _ in 0..onefold_export::nbd::OPTIONS_MAX {
        client.option(8, &[]);
        assert_eq!(client.answers(), [1]);
    }
    client.option(8, &[]);
    assert!(client.is_cut());

    let mut client = rig.connect();
    client.send(&[7; 16]);
    assert!(client.is_cut());

    let mut client = rig.connect();
    let mut huge = crate::client::IHAVEOPT.to_be_bytes().to_vec();
    huge.extend([0, 0, 0, 6, 0xff, 0xff, 0xff, 0xff]);
    client.send(&huge);
    assert!(client.is_cut(), "an option of 4 GiB is not waited for");
}
