//! `onefold volume serve`: a block device for QEMU and other clients, over NBD.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_export::Listener;
use onefold_export::control::ControlServer;
use onefold_export::nbd::{Exports, Server, ServerLimits, tls};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::daemon;
use super::filling::{SpaceWatch, WhenFilling};
use super::source::NamedVolume;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;
use crate::signal;

/// Interval at which a server looks whether it must end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Serve a block device over NBD until SIGTERM
///
/// Clients are QEMU (nbd+unix:///NAME?socket=PATH), nbdcopy, nbd-client and others. What was answered before the end is
/// never lost; a flush makes it survive a power cut.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub named: NamedVolume,

    /// Name of a raw file's export
    #[arg(
        long,
        value_name = "NAME",
        default_value = "raw",
        requires = "raw",
        conflicts_with = "depot"
    )]
    pub name: String,

    /// Refuse writes to a raw file
    #[arg(long, requires = "raw", conflicts_with = "depot")]
    pub read_only: bool,

    /// RAM for the index, the map and caches of a depot; the process takes some 48 MiB besides (default: a byte for
    /// each 4 KiB of the data device, and 64 MiB at least)
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, conflicts_with = "raw")]
    pub ram: Option<u64>,

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

    #[command(flatten)]
    pub when_filling: WhenFilling,

    /// Time that a client may be silent in the middle of a request, or take no replies, before it is cut off: a pause
    /// of the network that is longer is an I/O error of the client
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "2m")]
    pub client_timeout: Duration,

    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub connections: u32,
}

/// Places where clients connect.
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
    if let Some(name) = &args.named.depot
        && name.volume.is_some() | name.snapshot.is_some()
    {
        return Err(Error::Usage(format!(
            "all volumes and snapshots of a depot are served, each under its name: give {}",
            name.depot.display()
        )));
    }
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
    let source = Arc::new(args.named.open(
        &args.name,
        !args.read_only,
        args.ram,
        args.when_filling.when_full.0,
    )?);
    let limits = ServerLimits {
        connections_max: served_at_once(args.connections, out),
        stall_max: args.client_timeout,
        ..ServerLimits::default()
    };
    let server = Server::new(Exports::of(source.clone()), tls, limits);
    let mut listeners = Vec::new();
    if let Some(path) = &args.places.unix {
        listeners.push(Arc::new(Listener::unix(path)?));
    }
    if let Some(address) = args.places.tcp {
        listeners.push(Arc::new(Listener::tcp(address)?));
    }
    let watch = Arc::new(SpaceWatch::new(&args.named, &args.when_filling));
    let control = daemon::listen(&args.named, &source, &watch, None)?;
    for listener in &listeners {
        server.listen(listener)?;
    }
    source.loss().iter().for_each(|loss| out.warn(loss));
    tell(args, &source.volumes(), &listeners, out)?;
    let mut settled = Instant::now();
    while !signal::raised() {
        watch.look(&source, out);
        source.settle_each_minute(&mut settled);
        std::thread::sleep(LOOK_AGAIN);
    }
    listeners.iter().for_each(|listener| listener.close());
    server.stop();
    let closed = source.close();
    control.iter().for_each(ControlServer::end);
    closed?;
    out.say("all clients have left, and everything is on the disk")?;
    Ok(Exit::Ok)
}

/// Files that a server has open besides its clients' sockets: of the depot, 64 of its map among them, and its own.
const OWN_FILES: u64 = 200;

/// The clients that are served at once: as many as may come, or as the system lets this process have files open beside
/// the depot's. A depot that cannot open its files would fail the clients that are there.
fn served_at_once(clients: u32, out: &Out) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let left = |limit: u64| limit.saturating_sub(OWN_FILES).max(limit / 8).max(1);
    let served = limit.map_or(u64::MAX, left);
    if served < u64::from(clients) {
        out.warn(format!(
            "the system lets a process have {} files open: some {served} clients are served at once, not {clients} (raise the hard limit of open files, LimitNOFILE= with systemd)",
            limit.unwrap_or_default()
        ));
    }
    served.min(u64::from(clients)) as usize
}

/// Prints where clients find the server.
fn tell(args: &Args, volumes: &[Value], listeners: &[Arc<Listener>], out: &Out) -> Result<()> {
    let tcp = listeners.iter().find_map(|listener| listener.address());
    let has_tls = args.tls_cert.is_some();
    let scheme = if has_tls { "nbds" } else { "nbd" };
    let mut uris = Vec::new();
    let mut bytes = 0;
    for volume in volumes {
        let name = volume["name"].as_str().unwrap_or_default();
        bytes += volume["bytes"].as_u64().unwrap_or(0);
        if let Some(path) = &args.places.unix {
            // A relative path means nothing to a client elsewhere.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let path = path.display();
            uris.push(format!("{scheme}+unix:///{name}?socket={path}"));
        }
        uris.extend(tcp.map(|address| format!("{scheme}://{address}/{name}")));
    }
    if out.json {
        return out.json(&json!({"message_type": "serving", "uris": uris, "bytes": bytes}));
    }
    for uri in uris {
        out.say(format_args!("serving {uri}"))?;
    }
    out.flush()
}
