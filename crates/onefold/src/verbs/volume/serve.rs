//! `onefold volume serve`: a block device for QEMU and other clients, over NBD.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onefold_export::nbd::{Exports, Limits, Server, tls};
use onefold_export::{Listener, RawDevice};
use onefold_volume::BlockDevice;
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::signal;

/// So often a server looks whether it shall end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Serve a block device over NBD until SIGTERM
///
/// Clients are QEMU (nbd+unix:///NAME?socket=PATH), nbdcopy, nbd-client and others. What was answered before the end is
/// never lost; a flush makes it survive a power cut.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// File or block device to serve as it is
    #[arg(long, value_name = "FILE")]
    pub raw: PathBuf,

    /// Name of the export
    #[arg(long, value_name = "NAME", default_value = "raw")]
    pub name: String,

    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,

    #[command(flatten)]
    pub places: Places,

    /// Certificate chain of this server (PEM). With it, no client is served without TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Certificates (PEM) of which one must have signed each client's
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_ca: Option<PathBuf>,

    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub connections: u32,
}

/// Where clients come.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = true)]
pub struct Places {
    /// Unix socket, for this user alone (mode 0600)
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// TCP address and port; without TLS, one of this host's alone (127.0.0.1:10809)
    #[arg(long, value_name = "ADDRESS")]
    pub tcp: Option<SocketAddr>,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let _listening = signal::listen();
    if let Some(address) = args.places.tcp
        && args.tls_cert.is_none()
        && !address.ip().is_loopback()
    {
        return Err(Error::Usage(format!(
            "{address} can be reached from other hosts: give --tls-cert and --tls-key, or an address of this host alone (127.0.0.1:{})",
            address.port()
        )));
    }
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(tls::load(certificate, key, args.tls_ca.as_deref())?)
        }
        _ => None,
    };
    let device = Arc::new(RawDevice::open(&args.raw, &args.name, !args.read_only)?);
    let limits = Limits {
        connections_max: args.connections as usize,
        ..Limits::default()
    };
    let server = Server::new(Exports::new(vec![device.clone()]), tls, limits);
    let mut listeners = Vec::new();
    if let Some(path) = &args.places.unix {
        listeners.push(Arc::new(Listener::unix(path)?));
    }
    if let Some(address) = args.places.tcp {
        listeners.push(Arc::new(Listener::tcp(address)?));
    }
    for listener in &listeners {
        server.listen(listener)?;
    }
    tell(args, &*device, &listeners, out)?;
    while !signal::raised() {
        std::thread::sleep(LOOK_AGAIN);
    }
    listeners.iter().for_each(|listener| listener.close());
    server.stop();
    flush(&*device)?;
    out.say("all clients have left, and everything is on the disk")?;
    Ok(Exit::Ok)
}

/// Says where clients find it.
fn tell(
    args: &Args,
    device: &dyn BlockDevice,
    listeners: &[Arc<Listener>],
    out: &Out,
) -> Result<()> {
    let tcp = listeners.iter().find_map(|listener| listener.address());
    let has_tls = args.tls_cert.is_some();
    let scheme = if has_tls { "nbds" } else { "nbd" };
    let unix = args.places.unix.as_ref().map(|path| {
        // A relative path means nothing to a client elsewhere.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        format!("{scheme}+unix:///{}?socket={}", args.name, path.display())
    });
    let tcp = tcp.map(|address| format!("{scheme}://{address}/{}", args.name));
    let uris: Vec<String> = unix.into_iter().chain(tcp).collect();
    if out.json {
        let bytes = device.geometry().bytes;
        return out.json(&json!({"message_type": "serving", "uris": uris, "bytes": bytes}));
    }
    for uri in uris {
        out.say(format_args!("serving {uri}"))?;
    }
    out.flush()
}

fn flush(device: &dyn BlockDevice) -> Result<()> {
    Ok(onefold_export::flush(device)?)
}
