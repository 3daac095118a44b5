//! The process of an attached device: serves it to the kernel, and listens at its control socket. The process of
//! `volume serve` listens there, too.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use onefold_export::attach::{AttachFolder, AttachedDevice, Transport, Via};
use onefold_export::control::{self, Answer, ControlServer, Handler, Refusal};
use onefold_export::nbd::DeviceList;
use onefold_export::{Listener, process};
use onefold_volume::BlockDevice;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::attach::Args;
use super::changes;
use super::filling::SpaceWatch;
use super::requests;
use super::source::{NamedVolume, VolumeSource};
use super::unlocking;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::signal;

/// Time for another verb to be done with the depot.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the process looks whether it must end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    if args.daemon {
        // The terminal that started the process may close.
        let _ = rustix::process::setsid();
    }
    if args.password_on_stdin {
        unlocking::take_handed_over()?;
    }
    let _listening = signal::listen();
    let via = Via::from(args.via);
    via.check()?;
    let place = AttachFolder::take(&args.named.place()?)?;
    let mut warnings = process::protect();
    let source = Arc::new(open_patiently(args)?);
    warnings.extend(source.loss());
    let device = chosen(&source, args)?;
    let attached = place.attach(&device, via, &args.named.control()?)?;
    let (path, transport, why) = (
        attached.device.clone(),
        attached.transport,
        attached.why.clone(),
    );
    let attached = Arc::new(HostDevice {
        device: path.clone(),
        volume: device.geometry().name,
        transport,
        served: device.clone(),
        attached: Mutex::new(Some(attached)),
        source: source.clone(),
        has_gone: AtomicBool::new(false),
    });
    let watch = Arc::new(SpaceWatch::new(&args.named, &args.when_filling));
    let control = listen(&args.named, &source, &watch, Some(attached.clone()))?;
    let announced = json!({
        "message_type": "attached",
        "device": path,
        "process": std::process::id(),
        "bytes": device.geometry().bytes,
        "via": transport.name(),
        "why": why,
        "warnings": warnings,
    });
    if args.daemon || out.json {
        out.json(&announced)?
    } else {
        out.line(path.display())?;
        out.flush()?;
        warnings.iter().for_each(|warning| out.warn(warning));
    }
    tell_systemd();
    wait(&attached, &watch, out);
    let closed = source.close();
    control.iter().for_each(ControlServer::end);
    closed.map(|()| Exit::Ok)
}

/// Opens the depot or file. A verb that only looks at the depot, or changes something, is waited for.
fn open_patiently(args: &Args) -> Result<VolumeSource> {
    let started = Instant::now();
    let control = args.named.control()?;
    loop {
        let when_full = args.when_filling.when_full.0;
        let opened = args.named.open("raw", !args.read_only, args.ram, when_full);
        let is_held = matches!(&opened, Err(error) if error.exit() == Exit::Locked);
        // A process that listens has it for long.
        if !is_held
            || started.elapsed() > PATIENCE
            || signal::raised()
            || control::ask(&control, "status", json!({}))?.is_some()
        {
            return opened;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The device that is to be attached: a volume or snapshot by name, or the first one.
fn chosen(source: &VolumeSource, args: &Args) -> Result<Arc<dyn BlockDevice>> {
    let names = source.names();
    let first = || names.first().cloned().unwrap_or_default();
    let named = match (&args.named.depot, &args.volume) {
        (Some(name), None) => name.head(|| Ok(first()))?,
        (_, volume) => volume.clone(),
    };
    let name = named.unwrap_or_else(first);
    source.device(&name).ok_or_else(|| {
        Error::Usage(format!(
            "there is no volume or snapshot {name}; there are {}",
            names.join(", ")
        ))
    })
}

/// Listens at the control socket. A raw file that is served has none.
///
/// # Errors
/// Another process listens there.
pub fn listen(
    named: &NamedVolume,
    source: &Arc<VolumeSource>,
    watch: &Arc<SpaceWatch>,
    attached: Option<Arc<HostDevice>>,
) -> Result<Option<ControlServer>> {
    if named.depot.is_none() && attached.is_none() {
        return Ok(None);
    }
    let listener = Arc::new(Listener::unix(&named.control()?)?);
    let daemon = Daemon {
        listener: listener.clone(),
        source: source.clone(),
        watch: watch.clone(),
        shown: named.absolute(),
        attached,
    };
    Ok(Some(control::serve(&listener, Arc::new(daemon))?))
}

/// Says that the device is there, where systemd started this process and waits for that (sd_notify(3)). Nobody has to
/// listen.
fn tell_systemd() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Ok(own) = std::os::unix::net::UnixDatagram::unbound()
    {
        let path = socket.to_string_lossy();
        let _ = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)
                .and_then(|address| own.send_to_addr(b"READY=1", &address)),
            None => own.send_to(b"READY=1", &*path),
        };
    }
}

/// Until somebody has the device detached, or a signal comes and nobody uses the device.
fn wait(shared: &HostDevice, watch: &SpaceWatch, out: &Out) {
    let (mut told, mut settled) = (false, Instant::now());
    while !shared.has_gone.load(SeqCst) {
        watch.look(&shared.source, out);
        if signal::raised() {
            match shared.detach() {
                Ok(_) => return,
                Err(why) if !told => {
                    let why = why.what;
                    watch.tell(
                        &format!("asked to end, and it does once its device is free: {why}"),
                        out,
                    );
                }
                Err(_) => {}
            }
            told = true;
        }
        shared.source.settle_each_minute(&mut settled);
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A device of this host, and whether it has gone.
pub struct HostDevice {
    device: PathBuf,
    /// Name of the volume or snapshot that is the device.
    volume: String,
    transport: Transport,
    served: Arc<dyn BlockDevice>,
    /// The attached device; `None` once it is detached.
    attached: Mutex<Option<AttachedDevice>>,
    source: Arc<VolumeSource>,
    has_gone: AtomicBool,
}

impl HostDevice {
    /// Tells the kernel the size of the attached device.
    fn grown(&self) -> Result<(), String> {
        let bytes = self.served.geometry().bytes;
        match &mut *self.attached.lock() {
            Some(device) => device.grown(bytes).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Detaches the device and closes what is behind it, so that the receiver of the answer can attach it again.
    fn detach(&self) -> Answer {
        let mut attached = self.attached.lock();
        if let Some(device) = &mut *attached {
            device
                .detach()
                .map_err(|error| refusal(Error::Export(error)))?;
            let closed = self.source.close();
            *attached = None;
            self.has_gone.store(true, SeqCst);
            closed.map_err(refusal)?;
        }
        Ok(json!({"device": self.device}))
    }
}

/// The answer for an error: a client ends as the same verb without a daemon would.
fn refusal(error: Error) -> Refusal {
    Refusal {
        what: error.chain(),
        exit: error.exit().code(),
    }
}

struct Daemon {
    listener: Arc<Listener>,
    source: Arc<VolumeSource>,
    watch: Arc<SpaceWatch>,
    shown: String,
    attached: Option<Arc<HostDevice>>,
}

impl Daemon {
    fn status(&self) -> Value {
        let device = self.attached.as_ref().map(|shared| &shared.device);
        let served = self.attached.as_ref().map(|shared| &shared.served);
        let transport = self.attached.as_ref().map(|shared| shared.transport);
        let via = transport.map_or("nbd", Transport::name);
        json!({
            "device": device,
            "process": std::process::id(),
            "source": self.shown,
            "volume": self.attached.as_ref().map(|shared| &shared.volume),
            "bytes": served.map(|served| served.geometry().bytes),
            "volumes": self.source.volumes(),
            "via": via,
        })
    }
}

impl Handler for Daemon {
    fn follow(&self, what: &str, request: &Value, out: &mut dyn Write) {
        if what == "changes" {
            // The client sees that the stream ends early.
            let _ = changes::send(&self.source, request, out);
        }
    }

    fn handle(&self, what: &str, request: &Value) -> Answer {
        match (what, &self.attached) {
            ("status", _) => Ok(self.status()),
            ("detach", Some(shared)) => {
                let detached = shared.detach()?;
                // The next daemon listens at the same path.
                self.listener.close();
                Ok(detached)
            }
            ("detach", None) => Err(format!(
                "it is not attached: process {0} serves it over NBD; `kill -TERM {0}` ends that",
                std::process::id()
            )
            .into()),
            _ => match requests::handle(&self.source, what, request) {
                Some(Ok(mut stats)) if what == "stats" => {
                    self.watch.add_to(&mut stats, &self.source);
                    Ok(stats)
                }
                Some(Ok(done)) if what == "grow" => {
                    if let Some(shared) = &self.attached {
                        shared.grown()?;
                    }
                    Ok(done)
                }
                Some(done) => done.map_err(refusal),
                None => Err(format!("this daemon does not know \"{what}\"").into()),
            },
        }
    }
}
