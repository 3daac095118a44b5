//! Structures of `linux/ublk_cmd.h` as bytes, in the order of this machine.

use std::ops::Range;

/// Bytes of a sector, the driver's unit.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Commands at `/dev/ublk-control`.
#[derive(Clone, Copy)]
pub(super) enum Command {
    GetInfo,
    Add,
    Delete,
    Start,
    Stop,
    SetParameters,
    GetFeatures,
    DeleteLater,
    UpdateSize,
}

const IOC_READ: u32 = 2 << 30;
const IOC_READ_WRITE: u32 = 3 << 30;

const fn ioctl(direction: u32, number: u32, bytes: u32) -> u32 {
    direction | bytes << 16 | (b'u' as u32) << 8 | number
}

impl Command {
    /// Its number: `_IOR` or `_IOWR` over `struct ublksrv_ctrl_cmd` of 32 bytes.
    pub fn number(self) -> u32 {
        match self {
            Self::GetInfo => ioctl(IOC_READ, 0x02, 32),
            Self::Add => ioctl(IOC_READ_WRITE, 0x04, 32),
            Self::Delete => ioctl(IOC_READ_WRITE, 0x05, 32),
            Self::Start => ioctl(IOC_READ_WRITE, 0x06, 32),
            Self::Stop => ioctl(IOC_READ_WRITE, 0x07, 32),
            Self::SetParameters => ioctl(IOC_READ_WRITE, 0x08, 32),
            Self::GetFeatures => ioctl(IOC_READ, 0x13, 32),
            Self::DeleteLater => ioctl(IOC_READ, 0x14, 32),
            Self::UpdateSize => ioctl(IOC_READ_WRITE, 0x15, 32),
        }
    }
}

/// Commands at `/dev/ublkcN`, over `struct ublksrv_io_cmd` of 16 bytes.
pub(super) const FETCH: u32 = ioctl(IOC_READ_WRITE, 0x20, 16);
pub(super) const COMMIT_AND_FETCH: u32 = ioctl(IOC_READ_WRITE, 0x21, 16);

/// Data is copied by `pread` and `pwrite`.
pub(super) const F_USER_COPY: u64 = 1 << 7;
/// The size of a device can change while it is there (Linux 6.16).
pub(super) const F_UPDATE_SIZE: u64 = 1 << 10;

/// `struct ublksrv_ctrl_cmd`, at the begin of an entry's 80 bytes.
pub(super) fn control_command(id: u32, memory: u64, bytes: u16, data: u64) -> [u8; 80] {
    let mut command = [0; 80];
    put(&mut command, 0, &id.to_ne_bytes());
    put(&mut command, 4, &u16::MAX.to_ne_bytes()); // no queue
    put(&mut command, 6, &bytes.to_ne_bytes());
    put(&mut command, 8, &memory.to_ne_bytes());
    put(&mut command, 16, &data.to_ne_bytes());
    command
}

/// `struct ublksrv_io_cmd`.
pub(super) fn queue_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut command = [0; 16];
    put(&mut command, 0, &queue.to_ne_bytes());
    put(&mut command, 2, &tag.to_ne_bytes());
    put(&mut command, 4, &result.to_ne_bytes());
    command
}

/// A device as the driver knows it (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UblkInfo {
    /// Number of the device: that of `/dev/ublkbN` and `/dev/ublkcN`.
    pub id: u32,
    /// Number of queues.
    pub queues: u16,
    /// Requests that a queue holds at once.
    pub depth: u16,
    /// Longest request with data, in bytes.
    pub io_bytes_max: u32,
    /// Whether there is a block device; without, its server has ended, or has not started it yet.
    pub is_live: bool,
    /// The server's own mark, which the driver keeps.
    pub mark: u64,
    pub(super) flags: u64,
}

pub(super) const INFO_BYTES: usize = 64;

impl UblkInfo {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut info = [0; INFO_BYTES];
        put(&mut info, 0, &self.queues.to_ne_bytes());
        put(&mut info, 2, &self.depth.to_ne_bytes());
        put(&mut info, 8, &self.io_bytes_max.to_ne_bytes());
        put(&mut info, 12, &self.id.to_ne_bytes());
        put(&mut info, 24, &self.flags.to_ne_bytes());
        put(&mut info, 32, &self.mark.to_ne_bytes());
        info
    }

    pub(super) fn decode(info: &[u8; INFO_BYTES]) -> Self {
        const LIVE: u16 = 1;
        Self {
            queues: u16_at(info, 0),
            depth: u16_at(info, 2),
            is_live: u16_at(info, 4) == LIVE,
            io_bytes_max: u32_at(info, 8),
            id: u32_at(info, 12),
            flags: u64_at(info, 24),
            mark: u64_at(info, 32),
        }
    }
}

pub(super) const PARAMETERS_BYTES: usize = 64;

/// `struct ublk_params` with its parts `basic` and `discard`: a device with a volatile cache, FUA, discard and
/// write-zeroes.
pub(super) fn parameters(
    bytes: u64,
    block_bytes: u32,
    io_bytes_max: u32,
    is_writable: bool,
) -> [u8; PARAMETERS_BYTES] {
    const TYPES_BASIC_AND_DISCARD: u32 = 1 | 1 << 1;
    const READ_ONLY: u32 = 1;
    const VOLATILE_CACHE_AND_FUA: u32 = 1 << 2 | 1 << 3;
    let attributes = VOLATILE_CACHE_AND_FUA | if is_writable { 0 } else { READ_ONLY };
    // The kernel takes blocks of a page at most.
    let block_shift = block_bytes.clamp(512, 4096).ilog2() as u8;
    let most_sectors = u32::MAX / SECTOR_BYTES as u32;
    let mut all = [0; PARAMETERS_BYTES];
    put(&mut all, 0, &(PARAMETERS_BYTES as u32).to_ne_bytes());
    put(&mut all, 4, &TYPES_BASIC_AND_DISCARD.to_ne_bytes());
    put(&mut all, 8, &attributes.to_ne_bytes());
    let shifts = [
        SECTOR_BYTES.ilog2() as u8,
        block_shift,
        block_shift,
        block_shift,
    ];
    put(&mut all, 12, &shifts);
    let io_sectors = io_bytes_max / SECTOR_BYTES as u32;
    put(&mut all, 16, &io_sectors.to_ne_bytes());
    put(&mut all, 24, &(bytes / SECTOR_BYTES).to_ne_bytes());
    put(&mut all, 44, &(1u32 << block_shift).to_ne_bytes());
    put(&mut all, 48, &most_sectors.to_ne_bytes());
    put(&mut all, 52, &most_sectors.to_ne_bytes());
    put(&mut all, 56, &1u16.to_ne_bytes());
    all
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UblkOp {
    /// Data is wanted.
    Read,
    /// Data is to be stored.
    Write,
    /// Everything that was answered survives a crash.
    Flush,
    /// Bytes are no longer needed.
    Discard,
    /// Bytes read as zeros afterwards.
    WriteZeroes,
    /// A kind that the driver was not asked for.
    Unknown,
}

/// A request of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UblkRequest {
    /// Names the request in its queue, until it is answered.
    pub tag: u16,
    /// Its kind.
    pub op: UblkOp,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The answer comes when this very request survives a crash.
    pub is_fua: bool,
    /// A file system says that it is metadata. Merged requests may mix metadata with data.
    pub is_metadata: bool,
}

/// Bytes of `struct ublksrv_io_desc`.
pub(super) const DESCRIPTOR_BYTES: usize = 24;

impl UblkRequest {
    pub(super) fn decode(tag: u16, descriptor: &[u8; DESCRIPTOR_BYTES]) -> Self {
        const F_META: u32 = 1 << 11;
        const F_FUA: u32 = 1 << 13;
        let flags = u32_at(descriptor, 0);
        let op = match flags & 0xff {
            0 => UblkOp::Read,
            1 => UblkOp::Write,
            2 => UblkOp::Flush,
            3 => UblkOp::Discard,
            5 => UblkOp::WriteZeroes,
            _ => UblkOp::Unknown,
        };
        Self {
            tag,
            op,
            offset: u64_at(descriptor, 8).saturating_mul(SECTOR_BYTES),
            bytes: u64::from(u32_at(descriptor, 4)) * SECTOR_BYTES,
            is_fua: flags & F_FUA != 0,
            is_metadata: flags & F_META != 0,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The request's tag.
    pub tag: u16,
    /// Bytes that were read or written, 0 for requests without data, or the negative number of an error.
    pub result: i32,
}

/// Where the bytes of a request lie in `/dev/ublkcN`.
pub(super) fn data_offset(queue: u16, tag: u16) -> u64 {
    const DATA_BEGIN: u64 = 0x8000_0000;
    DATA_BEGIN + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// Where the descriptors of a queue lie in `/dev/ublkcN`.
pub(super) fn descriptors(queue: u16, depth: u16, page_bytes: usize) -> Range<u64> {
    const DEPTH_MAX: usize = 4096;
    let all = (DEPTH_MAX * DESCRIPTOR_BYTES).next_multiple_of(page_bytes) as u64;
    let own = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(page_bytes) as u64;
    let begin = u64::from(queue) * all;
    begin..begin + own
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and bytes as a C program has them that includes the header of Linux 6.12.
    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(Command::Add.number(), 0xc020_7504);
        assert_eq!(Command::GetInfo.number(), 0x8020_7502);
        assert_eq!(Command::GetFeatures.number(), 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_offset(1, 2), 0x200_8400_0000);
        assert_eq!(descriptors(2, 128, 4096), 196_608..199_680 + 1024);
    }

    #[test]
    fn a_device_comes_back_as_it_was_told() {
        let info = UblkInfo {
            id: u32::MAX,
            queues: 2,
            depth: 128,
            io_bytes_max: 1 << 20,
            is_live: false,
            mark: 0x1234_5678_9abc_def0,
            flags: F_USER_COPY,
        };
        assert_eq!(UblkInfo::decode(&info.encode()), info);
        let mut live = info.encode();
        put(&mut live, 4, &1u16.to_ne_bytes());
        assert!(UblkInfo::decode(&live).is_live);
    }

    #[test]
    fn parameters_say_cache_fua_and_size() {
        let all = parameters(1 << 30, 65536, 1 << 20, true);
        assert_eq!((u32_at(&all, 0), u32_at(&all, 4)), (64, 3));
        assert_eq!(
            (u32_at(&all, 8), all[12..16].to_vec()),
            (12, vec![9, 12, 12, 12])
        );
        assert_eq!((u32_at(&all, 16), u64_at(&all, 24)), (2048, 1 << 21));
        assert_eq!((u32_at(&all, 44), u16_at(&all, 56)), (4096, 1));
        assert_eq!(u32_at(&parameters(1 << 30, 512, 4096, false), 8), 13);
    }

    #[test]
    fn a_request_tells_its_flags() {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        put(
            &mut descriptor,
            0,
            &(1u32 | 1 << 11 | 1 << 13).to_ne_bytes(),
        );
        put(&mut descriptor, 4, &8u32.to_ne_bytes());
        put(&mut descriptor, 8, &16u64.to_ne_bytes());
        let request = UblkRequest::decode(7, &descriptor);
        assert_eq!((request.tag, request.op), (7, UblkOp::Write));
        assert_eq!((request.offset, request.bytes), (8192, 4096));
        assert!(request.is_fua && request.is_metadata);
    }
}
