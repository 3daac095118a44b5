//! `onefold volume check`: whether a depot is whole, asked of its daemon or looked at.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::ask::ask;
use crate::error::Result;
use crate::exit::Exit;
use crate::human;
use crate::out::Out;

/// Check that a depot is whole
///
/// Without --read-data only its own structures are looked at. What is damaged is named, volume by volume, and the exit
/// code is 13 then. The depot may be in use meanwhile.
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
    let found = ask(&args.depot, "check", json!({"read_data": args.read_data}))?;
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
    Ok(match is_clean {
        true => Exit::Ok,
        false => Exit::Damaged,
    })
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
