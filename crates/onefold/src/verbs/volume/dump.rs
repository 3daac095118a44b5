//! `onefold volume dump`: what the structures of a depot say, as text or JSON.

use std::path::PathBuf;

use clap::ValueEnum;
use onefold_io::FileDir;
use onefold_volume::depot::{Structure, system_devices};
use onefold_volume::dump::Dump;
use onefold_volume::{Depot, Error as VolumeError};
use serde_json::{Map, Value};

use super::own_path::naming;
use super::source::open_folder;
use super::unlocking;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;

/// Show what a structure of a depot says
///
/// The structure is read as it lies on the disk, whoever has the depot open. Damage is explained.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,

    /// The structure (default: manifest, or metadata with another backend than log)
    #[arg(value_name = "WHAT")]
    pub what: Option<DumpedStructure>,

    /// Which zone, by its place on the data device, from 0 on: of zone
    #[arg(value_name = "PLACE", required_if_eq("what", "zone"))]
    pub place: Option<u32>,
}

/// A structure.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpedStructure {
    /// The settings, which never change
    Config,
    /// The beginning of a recovery
    Manifest,
    /// All zones that hold something
    Zones,
    /// One zone: header, table, groups
    Zone,
    /// Header or superblocks of another backend than log, with the sizes of its tables or trees
    Metadata,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    if args.place.is_some() && args.what != Some(DumpedStructure::Zone) {
        return Err(Error::Usage("a place is that of a zone".into()));
    }
    let folder = open_folder(&args.depot)?;
    let named = |error| naming(error, &args.depot);
    let structure = structure(args, &folder).map_err(named)?;
    let password = match structure {
        Structure::Config => None,
        _ => unlocking::password_of(&args.depot, &folder)?,
    };
    let devices = system_devices();
    let dump = Depot::dump(&folder, &devices, structure, password.as_ref()).map_err(named)?;
    if out.json {
        out.json(&json(&dump))?
    } else {
        text(&dump, 0, out)?
    }
    out.flush()?;
    Ok(Exit::Ok)
}

fn structure(args: &Args, folder: &FileDir) -> Result<Structure, VolumeError> {
    Ok(match args.what {
        None => Structure::first(folder)?,
        Some(DumpedStructure::Config) => Structure::Config,
        Some(DumpedStructure::Manifest) => Structure::Manifest,
        Some(DumpedStructure::Zones) => Structure::Zones,
        // The parser sees to it that a place is there.
        Some(DumpedStructure::Zone) => Structure::Zone(args.place.unwrap_or_default()),
        Some(DumpedStructure::Metadata) => Structure::Metadata,
    })
}

fn json(dump: &Dump) -> Value {
    match dump {
        Dump::Number(number) => (*number).into(),
        Dump::Text(text) => text.as_str().into(),
        Dump::None => Value::Null,
        Dump::List(values) => values.iter().map(json).collect(),
        Dump::Fields(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// A field a line; what has fields itself is set in below its name, unless it has only plain ones: then on the line.
fn text(dump: &Dump, depth: usize, out: &Out) -> Result<()> {
    let space = "  ".repeat(depth);
    match dump {
        Dump::Fields(fields) => {
            for (name, value) in fields {
                match plain(value) {
                    Some(plain) => out.line(format_args!("{space}{name}: {plain}"))?,
                    None => {
                        out.line(format_args!("{space}{name}:"))?;
                        text(value, depth + 1, out)?;
                    }
                }
            }
        }
        Dump::List(values) => {
            for value in values {
                match plain_fields(value) {
                    Some(line) => out.line(format_args!("{space}{line}"))?,
                    None => {
                        text(value, depth, out)?;
                        out.line("")?;
                    }
                }
            }
        }
        other => out.line(format_args!("{space}{}", plain(other).unwrap_or_default()))?,
    }
    Ok(())
}

fn plain(dump: &Dump) -> Option<String> {
    match dump {
        Dump::Number(number) => Some(number.to_string()),
        Dump::Text(text) => Some(text.clone()),
        Dump::None => Some("–".into()),
        Dump::List(values) if values.is_empty() => Some("none".into()),
        Dump::List(_) | Dump::Fields(_) => None,
    }
}

/// All fields on one line, where none has fields itself.
fn plain_fields(dump: &Dump) -> Option<String> {
    let Dump::Fields(fields) = dump else {
        return None;
    };
    let fields = fields
        .iter()
        .map(|(name, value)| Some(format!("{name} {}", plain(value)?)));
    let fields: Option<Vec<_>> = fields.collect();
    Some(fields?.join("  "))
}
