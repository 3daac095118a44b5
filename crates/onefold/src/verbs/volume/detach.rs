//! `onefold volume detach`: takes a block device away, and cleans up after a process that was killed.

use onefold_export::{attach, control};
use serde_json::json;

use super::source::NamedVolume;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;

/// Take an attached block device away
///
/// Unmount its file system first. When this returns, everything that was written is on the disk.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub named: NamedVolume,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let place = args.named.place()?;
    attach::confirm_unused_in(&place)?;
    if let Some(detached) = control::ask(&args.named.control()?, "detach", json!({}))? {
        let device = detached["device"].as_str().unwrap_or_default();
        return told(device, "detached", out);
    }
    match attach::clean_up(&place)? {
        Some(device) => {
            out.warn("the device's process was killed: what was not flushed before is lost");
            told(&device.display().to_string(), "cleaned_up", out)
        }
        None => Err(Error::Failed(format!(
            "{} is not attached",
            args.named.shown()
        ))),
    }
}

fn told(device: &str, how: &str, out: &Out) -> Result<Exit> {
    match out.json {
        true => out.json(&json!({"message_type": how, "device": device}))?,
        false => out.say(format_args!("{device} is detached"))?,
    }
    Ok(Exit::Ok)
}
