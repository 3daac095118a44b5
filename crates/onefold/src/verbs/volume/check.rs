//! `onefold volume check`: whether a depot is whole, asked of its daemon or looked at.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use onefold_export::control;
use onefold_volume::front::WhenFull;
use serde_json::{Value, json};

use super::ask::ask;
use super::requests;
use super::source::{VolumeSource, open_depot};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;

/// Time between two lines that tell how far a check is.
const TELL_AGAIN: Duration = Duration::from_secs(20);

/// Check that a depot is whole
///
/// Without --read-data only its own structures are looked at. What is damaged is named, volume by volume, and the exit
/// code is 13 then. The depot may be in use meanwhile. With --read-data it takes as long as its disk takes to read what
/// is stored: some 20 minutes a TB at 1 GB/s; without, a hundredth of that.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,

    /// Read every chunk of every volume, too
    #[arg(long)]
    pub read_data: bool,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let found = checked(args, out)?;
    let damaged = found["chunks_damaged"].as_u64().unwrap_or(0);
    let is_clean = found["is_clean"] == true;
    if out.json {
        out.json(&found)?;
    } else {
        tell(&found, out)?;
        let read = human::many(found["chunks_read"].as_u64().unwrap_or(0), "chunk");
        match (is_clean, args.read_data) {
            (true, true) => out.say(format_args!("{read} read, all is whole"))?,
            (true, false) => {
                out.say("the structures are whole; --read-data reads all chunks, too")?
            }
            (false, _) => out.report(format_args!(
                "damaged: {} of {read} read",
                human::many(damaged, "chunk")
            ))?,
        }
    }
    Ok(if is_clean { Exit::Ok } else { Exit::Damaged })
}

/// Has the depot's daemon check it, or does so where none runs.
fn checked(args: &Args, out: &Out) -> Result<Value> {
    let request = json!({"read_data": args.read_data});
    let control = args.depot.join("control");
    if control::ask(&control, "status", json!({}))?.is_some() {
        let progress = || control::ask(&control, "check_progress", json!({})).ok()?;
        return telling(&progress, out, || ask(&args.depot, "check", request));
    }
    let source = VolumeSource::depot(open_depot(&args.depot, None, WhenFull::Fail)?);
    let unknown = || Error::Failed("a depot can be checked".into());
    let handle = |what: &str, request: &Value| requests::handle(&source, what, request);
    let progress = || handle("check_progress", &json!({}))?.ok();
    let found = telling(&progress, out, || {
        handle("check", &request).ok_or_else(unknown)?
    });
    source.close()?;
    found
}

/// Works, and tells now and then how far the work is.
fn telling(
    progress: &(dyn Fn() -> Option<Value> + Sync),
    out: &Out,
    work: impl FnOnce() -> Result<Value>,
) -> Result<Value> {
    let (ends, has_ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            while has_ended.recv_timeout(TELL_AGAIN) == Err(RecvTimeoutError::Timeout) {
                if let Some(progress) = progress().filter(|_| !out.json) {
                    tell_progress(&progress, started.elapsed(), out);
                }
            }
        });
        let done = work();
        drop(ends);
        done
    })
}

fn tell_progress(progress: &Value, elapsed: Duration, out: &Out) {
    let number = |name: &str| progress[name].as_u64().unwrap_or(0);
    let (done, total) = (number("bytes_done"), number("bytes_total"));
    let (done, total) = (done.min(total), total);
    let left = match done {
        0 => String::new(),
        done => {
            let seconds = elapsed.as_secs_f64() * (total - done) as f64 / done as f64;
            let left = human::duration(Duration::from_secs(seconds as u64));
            format!("; about {left} left")
        }
    };
    out.note(format_args!(
        "checked {} of {}{left}",
        human::bytes(done),
        human::bytes(total)
    ));
}

/// Prints a line for each fault that was found.
fn tell(found: &Value, out: &Out) -> Result<()> {
    for finding in found["findings"].as_array().into_iter().flatten() {
        let text = |name: &str| finding[name].as_str().unwrap_or_default();
        out.report(format_args!("{}: {}", text("place"), text("what")))?;
    }
    for stretch in found["damaged"].as_array().into_iter().flatten() {
        let number = |name: &str| stretch[name].as_u64().unwrap_or(0);
        let text = |name: &str| stretch[name].as_str().unwrap_or_default();
        let (first, chunks) = (number("lbn"), number("chunks"));
        let which = match chunks {
            1 => format!("chunk {first}"),
            _ => format!("chunks {first} to {}", first + chunks - 1),
        };
        out.report(format_args!(
            "volume {}, {which} (byte {}): {}",
            text("volume"),
            number("offset"),
            text("what")
        ))?;
    }
    Ok(())
}
