//! `onefold version`: prints the version of the program.

use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::machine;
use crate::out::Out;

/// Print the version
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(out: &Out) -> Result<Exit> {
    if out.json {
        out.json(&json!({
            "message_type": "version",
            "version": env!("CARGO_PKG_VERSION"),
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
        }))?;
    } else {
        out.line(machine::program())?;
    }
    Ok(Exit::Ok)
}
