//! The process of an attached device: serves it to the kernel, and listens at its control socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use onefold_export::attach::{Attached, Place, Via};
use onefold_export::control::{self, Answer, Control, Handler};
use onefold_export::{Listener, RawDevice, process};
use onefold_volume::BlockDevice;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::attach::Args;
use super::places;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::signal;

/// So often the process looks whether it shall end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    if args.daemon {
        // The terminal that started it may close.
        let _ = rustix::process::setsid();
    }
    let _listening = signal::listen();
    let why = Via::from(args.via).choose()?;
    let place = Place::take(&places::of_raw(&args.raw)?)?;
    let warnings = process::protect();
    let device = Arc::new(RawDevice::open(&args.raw, &args.name, !args.read_only)?);
    let listener = Arc::new(Listener::unix(&place.control())?);
    let attached = place.attach(device.clone())?;
    let path = attached.device.clone();
    let state = Arc::new(State {
        attached: Mutex::new(attached),
        device: device.clone(),
        source: args.raw.display().to_string(),
        has_gone: AtomicBool::new(false),
    });
    let control = control::serve(&listener, state.clone())?;
    let announced = json!({
        "message_type": "attached",
        "device": path,
        "process": std::process::id(),
        "bytes": device.geometry().bytes,
        "via": "fuse",
        "why": why,
        "warnings": warnings,
    });
    match args.daemon || out.json {
        true => out.json(&announced)?,
        false => {
            out.line(path.display())?;
            out.flush()?;
            warnings.iter().for_each(|warning| out.warn(warning));
        }
    }
    wait(&state, out);
    end(&control, &*device)
}

/// Until somebody has the device detached, or a signal comes and nobody uses the device.
fn wait(state: &State, out: &Out) {
    let mut told = false;
    while !state.has_gone.load(SeqCst) {
        if signal::raised() {
            match state.detach() {
                Ok(_) => return,
                Err(why) if !told => out.note(format_args!("waiting to end: {why}")),
                Err(_) => {}
            }
            told = true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn end(control: &Control, device: &dyn BlockDevice) -> Result<Exit> {
    let flushed = onefold_export::flush(device);
    control.end();
    match flushed {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => Err(Error::Device(error)),
    }
}

struct State {
    attached: Mutex<Attached>,
    device: Arc<dyn BlockDevice>,
    source: String,
    has_gone: AtomicBool,
}

impl State {
    fn detach(&self) -> Answer {
        let mut attached = self.attached.lock();
        let device = attached.device.clone();
        if !self.has_gone.load(SeqCst) {
            attached.detach().map_err(|error| error.to_string())?;
            onefold_export::flush(&*self.device).map_err(|error| error.to_string())?;
            self.has_gone.store(true, SeqCst);
        }
        Ok(json!({"device": device}))
    }

    fn status(&self) -> Value {
        let geometry = self.device.geometry();
        json!({
            "device": self.attached.lock().device,
            "process": std::process::id(),
            "source": self.source,
            "name": geometry.name,
            "bytes": geometry.bytes,
            "writable": geometry.is_writable,
            "via": "fuse",
        })
    }
}

impl Handler for State {
    fn handle(&self, what: &str, _request: &Value) -> Answer {
        match what {
            "status" => Ok(self.status()),
            "detach" => self.detach(),
            _ => Err(format!("this daemon does not know \"{what}\"")),
        }
    }
}
