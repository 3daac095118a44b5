//! An NBD client that speaks what it is told to, right or wrong.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use onefold_export::nbd::{Exports, Server, ServerLimits};
use onefold_export::{Listener, RawDevice};
use onefold_io::MemDisk;
use onefold_volume::BlockDevice;

pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

/// A server of one export `disk`, and its socket.
pub struct Rig {
    pub server: Arc<Server>,
    listener: Arc<Listener>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// Over 1 MiB of memory.
    pub fn new() -> Self {
        Self::in_memory(ServerLimits::default())
    }

    /// Over 1 MiB of memory, with these limits.
    pub fn in_memory(limits: ServerLimits) -> Self {
        let disk = Arc::new(MemDisk::default());
        onefold_io::Disk::set_len(&*disk, 1 << 20).expect("memory");
        let device = RawDevice::new(disk, "disk").expect("a device");
        Self::limited(Arc::new(device), limits)
    }

    pub fn over(device: Arc<dyn BlockDevice>) -> Self {
        Self::limited(device, ServerLimits::default())
    }

    pub fn limited(device: Arc<dyn BlockDevice>, limits: ServerLimits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = Arc::new(Listener::unix(&path).expect("a socket"));
        let server = Server::new(Exports::new(vec![device]), None, limits);
        server.listen(&listener).expect("a thread");
        Self {
            server,
            listener,
            path,
            _folder: folder,
        }
    }

    /// A client that has read the server's first bytes and answered with its flags.
    pub fn connect(&self) -> Client {
        self.try_connect().expect("the server takes clients")
    }

    /// The same; `None` where the server turns it away.
    pub fn try_connect(&self) -> Option<Client> {
        let socket = UnixStream::connect(&self.path).expect("the server listens");
        let mut client = Client {
            socket,
            is_structured: false,
            is_extended: false,
        };
        let mut hello = [0; 18];
        client.socket.read_exact(&mut hello).ok()?;
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(hello[16..], [0, 3], "fixed newstyle, no zeroes");
        client.send(&3u32.to_be_bytes());
        Some(client)
    }

    /// A client in the transmission phase with structured replies and block status.
    pub fn client(&self) -> Client {
        let mut client = self.connect();
        client.agree(8);
        let kinds: Vec<u32> = client.contexts("disk", &["base:allocation"]);
        assert_eq!(kinds, [4, 1]);
        client.go("disk");
        client
    }

    /// Ends the server as SIGTERM does.
    pub fn stop(&self) {
        self.listener.close();
        self.server.stop();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

pub struct Client {
    pub socket: UnixStream,
    pub is_structured: bool,
    pub is_extended: bool,
}

/// The server's reply to a request.
#[derive(Debug, PartialEq)]
pub struct Replied {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes it");
    }

    /// The same; `false` where the server has cut the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Whether the server has cut the connection.
    pub fn is_cut(&mut self) -> bool {
        let mut rest = Vec::new();
        // A reset counts as well as an end.
        let _ = self.socket.read_to_end(&mut rest);
        rest.is_empty()
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    /// A reply to an option: which option, its kind, its data.
    pub fn answer(&mut self) -> (u32, u32, Vec<u8>) {
        let mut head = [0; 20];
        self.socket.read_exact(&mut head).expect("a reply");
        assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
        let mut data = vec![0; number(16) as usize];
        self.socket.read_exact(&mut data).expect("its data");
        (number(8), number(12), data)
    }

    /// An option that is acknowledged: structured replies (8), extended headers (11).
    pub fn agree(&mut self, option: u32) {
        self.option(option, &[]);
        assert_eq!(self.answer(), (option, 1, vec![]));
        self.is_structured = true;
        self.is_extended |= option == 11;
    }

    /// SET_META_CONTEXT: the kinds of the replies.
    pub fn contexts(&mut self, export: &str, queries: &[&str]) -> Vec<u32> {
        let mut data = text(export);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(text(query)));
        self.option(10, &data);
        self.answers()
    }

    /// Kinds of the replies to one option.
    pub fn answers(&mut self) -> Vec<u32> {
        let mut kinds = Vec::new();
        loop {
            kinds.push(self.answer().1);
            let last = kinds.last().expect("one");
            if *last == 1 || *last >> 31 == 1 {
                return kinds;
            }
        }
    }

    /// Chooses the export: its size and flags.
    pub fn go(&mut self, export: &str) -> (u64, u16) {
        let mut data = text(export);
        data.extend([0, 0]);
        self.option(7, &data);
        let (_, kind, export) = self.answer();
        assert_eq!(kind, 3, "{}", String::from_utf8_lossy(&export));
        self.answers();
        (
            u64::from_be_bytes(export[2..10].try_into().expect("eight")),
            u16::from_be_bytes(export[10..12].try_into().expect("two")),
        )
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, bytes: u64) {
        let mut head = Vec::new();
        let magic: u32 = if self.is_extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        head.extend(magic.to_be_bytes());
        head.extend(flags.to_be_bytes());
        head.extend(command.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        if self.is_extended {
            head.extend(bytes.to_be_bytes())
        } else {
            head.extend((bytes as u32).to_be_bytes())
        }
        self.send(&head);
    }

    /// The next reply, which is one chunk.
    pub fn reply(&mut self) -> Replied {
        assert!(self.is_structured);
        let mut head = vec![0; if self.is_extended { 32 } else { 20 }];
        self.socket.read_exact(&mut head).expect("a reply");
        let magic: u32 = if self.is_extended {
            0x6e8a_278c
        } else {
            0x668e_33ef
        };
        assert_eq!(head[..4], magic.to_be_bytes());
        assert_eq!(head[4..6], [0, 1], "the last chunk");
        let kind = u16::from_be_bytes([head[6], head[7]]);
        let cookie = u64::from_be_bytes(head[8..16].try_into().expect("eight"));
        let bytes = if self.is_extended {
            u64::from_be_bytes(head[24..32].try_into().expect("eight")) as usize
        } else {
            u32::from_be_bytes(head[16..20].try_into().expect("four")) as usize
        };
        let mut data = vec![0; bytes];
        self.socket.read_exact(&mut data).expect("its data");
        let mut error = 0;
        match kind {
            0x8001 => {
                error = u32::from_be_bytes(data[..4].try_into().expect("four"));
                data.clear();
            }
            1 => drop(data.drain(..8)),
            _ => {}
        }
        Replied {
            cookie,
            error,
            data,
        }
    }

    /// A request and its reply.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, bytes: u64) -> Replied {
        self.request(command, flags, 7, offset, bytes);
        self.reply()
    }

    /// A write and the error of its reply.
    pub fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> u32 {
        self.request(WRITE, flags, 7, offset, data.len() as u64);
        self.send(data);
        self.reply().error
    }

    pub fn read(&mut self, offset: u64, bytes: u64) -> Vec<u8> {
        let reply = self.ask(READ, 0, offset, bytes);
        assert_eq!((reply.error, reply.cookie), (0, 7));
        reply.data
    }
}

/// A text behind its length.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}
