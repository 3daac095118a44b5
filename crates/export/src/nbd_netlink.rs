//! The size of a device that the kernel's nbd has connected, told by generic netlink (`linux/nbd-netlink.h`):
//! nbd-client has no command for it. Messages are built as bytes, in the order of this machine.

use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

const NETLINK: i32 = 16;
const NETLINK_GENERIC: i32 = 16;
/// Longest time for an answer of the kernel, which gives it during the request.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Types of messages, and the flags of ours: a request that wants an acknowledgement.
const MESSAGE_ERROR: u16 = 2;
const CONTROL_FAMILY: u16 = 0x10;
const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;

/// Commands and attributes of the family that knows the others, and of nbd.
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;

/// Bytes of a message before its attributes: `struct nlmsghdr` and `struct genlmsghdr`.
const HEADER_BYTES: usize = 20;

/// Has the connected device `/dev/nbd<index>` take a new size.
///
/// # Errors
/// The kernel knows no such device, or refuses: it is connected in another way, or this process is not root's.
pub fn resize(index: u32, bytes: u64) -> io::Result<()> {
    let mut socket = Socket::new(
        Domain::from(NETLINK),
        Type::RAW,
        Some(Protocol::from(NETLINK_GENERIC)),
    )?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    let name = attribute(FAMILY_NAME, b"nbd\0");
    let found = ask(&mut socket, &message(CONTROL_FAMILY, GET_FAMILY, &name))?;
    let family = family_in(&found)
        .ok_or_else(|| io::Error::other("the kernel's netlink does not know the family nbd"))?;
    let mut attributes = attribute(INDEX, &index.to_ne_bytes());
    attributes.extend(attribute(SIZE_BYTES, &bytes.to_ne_bytes()));
    ask(&mut socket, &message(family, RECONFIGURE, &attributes)).map(drop)
}

/// Sends a message, and reads answers until its acknowledgement. Returns those before it.
fn ask(socket: &mut Socket, message: &[u8]) -> io::Result<Vec<u8>> {
    socket.write_all(message)?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = socket.read(&mut buffer)?;
        for (kind, answer) in messages(&buffer[..len]) {
            if kind == MESSAGE_ERROR {
                return result(answer).map(|()| answers);
            }
            answers.extend_from_slice(answer);
        }
    }
}

/// The result in an acknowledgement: 0, or an error's number, negated.
fn result(answer: &[u8]) -> io::Result<()> {
    let number = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match number.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn message(kind: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + attributes.len());
    message.extend(((HEADER_BYTES + attributes.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // No sequence and no sender: the socket has one request at a time. Then command, version and two empty bytes.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    attribute.extend((4 + value.len() as u16).to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Messages of a datagram, each with its type. What is no whole message ends them.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
        let message = datagram.get(..len).filter(|_| len >= 16)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, message))
    })
}

/// The number of a family, in the answer that describes it.
fn family_in(answer: &[u8]) -> Option<u16> {
    let mut attributes = answer.get(HEADER_BYTES..)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..len)?;
        if kind == FAMILY_ID {
            return Some(u16::from_ne_bytes(value.try_into().ok()?));
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_netlink_wants_it() {
        let bytes = message(0x10, GET_FAMILY, &attribute(FAMILY_NAME, b"nbd\0"));
        let header = [28u32.to_ne_bytes(), [0x10, 0, 5, 0]].concat();
        if cfg!(target_endian = "little") {
            assert_eq!(bytes[..8], header);
            assert_eq!(bytes[16..], *b"\x03\x01\0\0\x08\0\x02\0nbd\0");
        }
        assert_eq!(bytes.len(), 28);
    }

    #[test]
    fn an_answer_that_is_cut_short_or_false_names_no_family() {
        let mut attributes = attribute(FAMILY_NAME, b"nbd\0");
        attributes.extend(attribute(FAMILY_ID, &27u16.to_ne_bytes()));
        let answer = message(0x10, 1, &attributes);
        assert_eq!(family_in(&answer), Some(27));
        for len in 0..answer.len() - 4 {
            assert_eq!(family_in(&answer[..len]), None, "{len} bytes");
        }
        let endless = message(0x10, 1, &[0; 8]);
        assert_eq!(family_in(&endless), None);
        assert_eq!(messages(&answer).count(), 1);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }

    #[test]
    fn an_acknowledgement_tells_the_error() {
        let mut refused = message(MESSAGE_ERROR, 0, &[]);
        refused.truncate(16);
        refused.extend((-22i32).to_ne_bytes());
        assert_eq!(
            result(&refused).expect_err("refused").raw_os_error(),
            Some(22)
        );
        refused[16..].fill(0);
        assert!(result(&refused).is_ok());
        assert!(result(&refused[..17]).is_err());
    }
}
