//! `onefold cat`: prints small objects as JSON. Scripts ask for the configuration to see whether there is a repository
//! that the password opens.

use std::ffi::OsString;

use clap::Subcommand;
use onefold_backup::snapshots::SnapshotFilter;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::json::SnapshotJson;
use crate::out::Out;
use crate::repository;
use crate::select::{self, Spec};

/// Print the configuration or a snapshot's description as JSON
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub what: PrintedObject,
}

/// Object to print.
#[derive(Subcommand, Debug)]
pub enum PrintedObject {
    /// The repository's settings, which were chosen when it was made
    Config,
    /// The description of a snapshot
    Snapshot {
        /// Beginning of an id, or "latest"
        #[arg(value_name = "SNAPSHOT")]
        id: OsString,
    },
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a look")?;
    let value: Value = match &args.what {
        PrintedObject::Config => {
            let config = repository.config();
            json!({
                "version": onefold_store::config::CONFIG.version,
                "id": config.repository_hex(),
                "encryption": config.encryption.name(),
                "chunker": config.chunker,
                "chunk_bytes_mean": config.chunk_bytes_mean,
                "index": config.index,
            })
        }
        PrintedObject::Snapshot { id } => {
            let spec = Spec::parse(id)?;
            if !spec.path.is_empty() {
                return Err(Error::Usage(
                    "a snapshot's description has no paths: `onefold ls` and `onefold dump` take one".into(),
                ));
            }
            let named = select::one(&repository, &spec.snapshot, &SnapshotFilter::default())?;
            json!(SnapshotJson::from(&named))
        }
    };
    if out.json {
        out.json(&value)?
    } else {
        out.bytes(format!("{value:#}\n").as_bytes())?
    }
    Ok(Exit::Ok)
}
