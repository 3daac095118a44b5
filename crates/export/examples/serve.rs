//! A block device of one's own over NBD: here a raw file; anything that implements `BlockDevice` is served so.
//!
//! `cargo run -p onefold-export --example serve -- FILE SOCKET`, then `nbdinfo nbd+unix:///disk?socket=SOCKET`.

use std::path::Path;
use std::sync::Arc;

use onefold_export::nbd::{Exports, Server, ServerLimits};
use onefold_export::{Listener, RawDevice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, socket] = &args[..] else {
        return Err("give a file and the path of a socket".into());
    };
    let device = RawDevice::open(Path::new(file), "disk", true)?;
    let server = Server::new(
        Exports::new(vec![Arc::new(device)]),
        None,
        ServerLimits::default(),
    );
    server.listen(&Arc::new(Listener::unix(Path::new(socket))?))?;
    loop {
        std::thread::park();
    }
}
