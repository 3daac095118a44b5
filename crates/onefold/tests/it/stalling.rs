//! A proxy before a server that stands still when it is told to: connections stay, and no byte moves.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A running proxy; its threads end with the process.
pub struct Proxy {
    pub endpoint: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_closed = self.is_closed.lock().expect("no panic");
        let open = self.changed.wait_while(is_closed, |is_closed| *is_closed);
        drop(open.expect("no panic"));
    }
}

impl Proxy {
    /// A proxy before the server at `endpoint` (`http://host:port`).
    pub fn before(endpoint: &str) -> Self {
        let server = endpoint.strip_prefix("http://").expect("plain").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        let own = listener.local_addr().expect("it has one");
        let gate = Arc::<Gate>::default();
        let proxy = Self {
            endpoint: format!("http://{own}"),
            gate: Arc::clone(&gate),
        };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                let both = [client.try_clone(), server.try_clone()].map(|it| it.expect("a clone"));
                let [back_to, back_from] = both;
                copy(client, server, Arc::clone(&gate));
                copy(back_from, back_to, Arc::clone(&gate));
            }
        });
        proxy
    }

    /// From now on no byte moves.
    pub fn stall(&self) {
        *self.gate.is_closed.lock().expect("no panic") = true;
    }

    /// Bytes move again.
    pub fn go_on(&self) {
        *self.gate.is_closed.lock().expect("no panic") = false;
        self.gate.changed.notify_all();
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, gate: Arc<Gate>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(some @ 1..) = from.read(&mut bytes) {
            gate.pass();
            if to.write_all(&bytes[..some]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
