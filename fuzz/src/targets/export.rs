//! Messages of an NBD client: the handshake, then requests, as a server understands them.

use std::sync::Arc;

use onefold_export::RawDevice;
use onefold_export::control::{self, Answer, Handler};
use onefold_export::nbd::{
    Agreement, Exports, Handshake, RequestHeader, RequestPlan, Step, TlsPolicy, header_bytes, plan,
};
use onefold_io::{Disk, MemDisk};
use onefold_volume::Op;

use super::{Reach, Target};

const DEVICE_BYTES: u64 = 1 << 20;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("export/nbd", vec![old_client(), client()], |bytes| {
            talk(bytes, TlsPolicy::Off)
        }),
        Target::new(
            "export/nbd-before-tls",
            vec![client(), starts_tls()],
            |bytes| talk(bytes, TlsPolicy::Required),
        ),
        Target::new("export/control", control_lines(), |bytes| {
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let answer = control::answer(line, &Known).to_string();
                assert!(!answer.contains('\n'), "an answer is one line");
            }
        }),
    ]
}

/// Knows one request.
struct Known;

impl Handler for Known {
    fn handle(&self, what: &str, request: &serde_json::Value) -> Answer {
        match what {
            "check" => Ok(request["read_data"].clone()),
            _ => Err(format!("there is no \"{what}\"").into()),
        }
    }
}

fn control_lines() -> Vec<Vec<u8>> {
    [
        "{\"version\":1,\"do\":\"check\",\"read_data\":true}\n",
        "{\"version\":1,\"do\":\"sing\"}\n{\"version\":2}\n",
    ]
    .map(|line| line.as_bytes().to_vec())
    .to_vec()
}

fn exports() -> Exports {
    let disk = MemDisk::default();
    disk.set_len(DEVICE_BYTES).expect("memory");
    let device = RawDevice::new(Arc::new(disk), "disk").expect("a device");
    Exports::new(vec![Arc::new(device)])
}

/// Takes what a client sends in pieces.
fn talk(bytes: &[u8], tls: TlsPolicy) -> Reach {
    let mut out = Vec::new();
    let mut handshake = Handshake::begin(exports(), tls, &mut out);
    let mut input = bytes;
    loop {
        let before = input.len();
        match handshake.take(&mut input, &mut out) {
            Step::More if input.len() == before => return Reach::Inside,
            Step::More => {}
            Step::Transmit(agreement) => {
                assert!(tls != TlsPolicy::Required, "an export before TLS");
                requests(&agreement, input);
                return Reach::Inside;
            }
            Step::StartTls => {
                assert!(
                    input.is_empty(),
                    "bytes in the clear would count as encrypted"
                );
                handshake = handshake.within_tls();
            }
            Step::End => return Reach::Inside,
        }
        out.clear();
    }
}

fn requests(agreement: &Agreement, mut input: &[u8]) {
    let geometry = agreement.device.geometry();
    let length = header_bytes(agreement.is_extended);
    while let Some((header, rest)) = input.split_at_checked(length) {
        let Some(header) = RequestHeader::decode(header, agreement.is_extended) else {
            return;
        };
        if let RequestPlan::Device {
            op, buffer_bytes, ..
        } = plan(&header, agreement, &geometry)
        {
            let end = header
                .offset
                .checked_add(header.bytes)
                .expect("a place on the device");
            assert!(end <= DEVICE_BYTES && buffer_bytes as u64 <= DEVICE_BYTES);
            assert!(op == Op::Flush || end > 0 || header.bytes == 0);
        }
        let payload = header.payload_bytes(agreement.is_extended);
        let Some(rest) = usize::try_from(payload)
            .ok()
            .and_then(|count| rest.get(count..))
        else {
            return;
        };
        input = rest;
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let (option, bytes) = (option.to_be_bytes(), (data.len() as u32).to_be_bytes());
    [b"IHAVEOPT", &option[..], &bytes[..], data].concat()
}

fn request(command: u16, offset: u64, bytes: u32) -> Vec<u8> {
    let mut header = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
    header.extend(command.to_be_bytes());
    header.extend(7u64.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header.extend(bytes.to_be_bytes());
    header
}

fn commands() -> Vec<u8> {
    let write = [request(1, 4096, 16), vec![9; 16]].concat();
    [
        request(0, 0, 4096),
        write,
        request(3, 0, 0),
        request(4, 0, 512),
        request(6, 0, 512),
    ]
    .into_iter()
    .chain([request(7, 0, 1 << 20), request(5, 0, 1), request(2, 0, 0)])
    .flatten()
    .collect()
}

fn old_client() -> Vec<u8> {
    [vec![0, 0, 0, 3], option(1, b"disk"), commands()].concat()
}

fn client() -> Vec<u8> {
    let name = [&4u32.to_be_bytes()[..], b"disk"].concat();
    let query = [
        &1u32.to_be_bytes()[..],
        &15u32.to_be_bytes(),
        b"base:allocation",
    ]
    .concat();
    [
        vec![0, 0, 0, 3],
        option(8, b""),
        option(3, b""),
        option(9, &[&name[..], &[0; 4]].concat()),
        option(10, &[&name[..], &query].concat()),
        option(6, &[&name[..], &[0, 2, 0, 1, 0, 3]].concat()),
        option(7, &[&name[..], &[0, 0]].concat()),
        commands(),
    ]
    .concat()
}

fn starts_tls() -> Vec<u8> {
    [vec![0, 0, 0, 3], option(5, b"")].concat()
}
