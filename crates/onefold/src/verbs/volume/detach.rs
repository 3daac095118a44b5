//! `onefold volume detach`: takes a block device away, and cleans up after a process that was killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_export::process::RunningProcess;
use onefold_export::{attach, control};
use serde_json::json;

use super::source::NamedVolume;
use super::{device_places, places};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;

/// Time for the device's process to end once its device is gone.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Take an attached block device away
///
/// Unmount its file system first. When this returns, everything that was written is on the disk, and
/// the depot is free for others. The device itself may be named, as in /dev/loop0, in place of the depot.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub named: NamedVolume,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let (place, control) = place_and_control(&args.named)?;
    attach::confirm_unused_in(&place)?;
    let process = process_behind(&control)?;
    // The process is held before it is asked: a later process may have its number.
    let running = (process.as_ref()).and_then(|process| RunningProcess::find(process.number));
    if let Some(served) = &process
        && !served.is_attached
    {
        return Err(Error::Export(onefold_export::Error::Busy {
            what: format!(
                "{} is not attached: process {1} serves it, and `kill -TERM {1}` ends that",
                args.named.shown(),
                served.number
            ),
        }));
    }
    if let Some(attached) = process.as_ref().and_then(|process| process.volume.as_ref())
        && let Some(named) = args.named.depot.as_ref()
        && let Some(wanted) =
            named.head(|| Ok(attached.split('@').next().unwrap_or_default().to_owned()))?
        && wanted != *attached
    {
        return Err(Error::Failed(format!(
            "{wanted} of {} is not attached: {attached} is",
            args.named.shown()
        )));
    }
    if let Some(detached) = control::ask(&control, "detach", json!({}))? {
        if running.is_some_and(|process| !process.has_ended_within(END_WITHIN)) {
            out.warn("the device is gone, but its process has not ended yet: until then the depot is in use");
        }
        let device = detached["device"].as_str().unwrap_or_default();
        return told(device, "detached", out);
    }
    match attach::clean_up(&place)? {
        Some(device) => {
            out.warn("the device's process was killed: what was not flushed before is lost (inram: what was not saved; dtb: all data)");
            told(&device.display().to_string(), "cleaned_up", out)
        }
        None => Err(Error::Failed(format!(
            "{} is not attached",
            args.named.shown()
        ))),
    }
}

/// The private folder and the control socket of the process that has attached what is named.
fn place_and_control(named: &NamedVolume) -> Result<(PathBuf, PathBuf)> {
    let folder = named.folder().and_then(|folder| folder.canonicalize().ok());
    let Some(device) = folder.filter(|path| device_places::number(path).is_some()) else {
        return Ok((named.place()?, named.control()?));
    };
    let mut places = places::there().into_iter();
    let place = places.find(|place| attach::device_in(place).as_ref() == Some(&device));
    place
        .and_then(|place| Some((place.clone(), attach::control_in(&place)?)))
        .ok_or_else(|| Error::Failed(format!("{} is not attached by onefold", named.shown())))
}

/// The process that listens at a control socket; `None` where nobody does.
fn process_behind(control: &Path) -> Result<Option<ListeningProcess>> {
    let status = control::ask(control, "status", json!({}))?;
    Ok(status.and_then(|status| {
        Some(ListeningProcess {
            number: status["process"].as_u64()?,
            is_attached: status["device"].is_string(),
            volume: status["volume"].as_str().map(str::to_owned),
        })
    }))
}

/// A process that listens.
struct ListeningProcess {
    number: u64,
    /// Whether it has a device: it serves over NBD otherwise.
    is_attached: bool,
    /// The volume or snapshot that is the device.
    volume: Option<String>,
}

fn told(device: &str, how: &str, out: &Out) -> Result<Exit> {
    if out.json {
        out.json(&json!({"message_type": how, "device": device}))?
    } else {
        out.say(format_args!("{device} is detached"))?
    }
    Ok(Exit::Ok)
}
