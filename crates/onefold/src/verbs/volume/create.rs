//! `onefold volume create`: a new depot with one volume, or one more volume in a depot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_export::attach;
use onefold_io::{Dir, FileDir};
use onefold_store::{Encryption, Entropy, Error as StoreError, KdfCost};
use onefold_volume::depot::config::{Backend, Config, EngineKind};
use onefold_volume::depot::{CreateOptions, NewPassword, backends};
use onefold_volume::hints::HintKind;
use onefold_volume::{Compression, Depot, Error as VolumeError};
use serde_json::json;

use super::ask::ask;
use super::default_hints;
use super::head_name::{HeadName, is_depot};
use super::heads::now;
use super::hinter::HintName;
use super::lasting_name;
use super::own_path::naming;
use super::source::open_folder;
use super::unlocking;
use crate::cli::names;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human;
use crate::machine;
use crate::out::Out;

/// A smaller volume is one whose unit was forgotten.
const SIZE_MIN: u64 = 1 << 20;
/// Bytes of chunks that can be packed.
const PACKED_CHUNK: u64 = 4096;

/// Make a depot, a folder in which volumes share every chunk, or one more volume in it
///
/// DEPOT:NAME makes one more volume where the depot is there already.
#[derive(clap::Args, Debug)]
#[command(after_long_help = names::backend_knobs_help())]
pub struct Args {
    /// Folder of the depot, made where it is missing, and the volume's name
    #[arg(value_name = "DEPOT[:VOLUME]")]
    pub name: HeadName,

    /// Size of the volume, such as 40G; 1M at least
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub size: u64,

    /// Name of the volume (default: main)
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,

    /// Block device or file for the chunks, which must be there and as large as they may become (`truncate` makes a
    /// file; default: a file in the folder)
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Bytes of chunks that are stored at most (default: all that a device has; of a file, for log the size, a seventh
    /// of it and 8 MiB, for the others the size and 6 %). With log, 1 % of it is for headers of zones
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub capacity: Option<u64>,

    /// Block device or file for the metadata of dtb and cbt, which must be there and as large as it may become (default:
    /// a file in the folder)
    #[arg(long, value_name = "PATH")]
    pub metadata: Option<PathBuf>,

    /// Use a data or metadata device though it holds something
    #[arg(long)]
    pub overwrite: bool,

    /// Engine that keeps the data and its metadata; dtb and cbt have parameters, as in cbt:cache=64M,transaction=1000
    #[arg(long, value_name = "NAME", default_value = "log", value_parser = names::backends())]
    pub backend: String,

    /// Pack chunks that compress, several to a page: none, lz4, or auto, which hardly tries a volume whose chunks do
    /// not shrink (default: auto with log and chunks of 4K, else none)
    #[arg(long, value_name = "HOW", value_parser = names::packings())]
    pub packing: Option<String>,

    /// RAM that `attach` will be given: a depot that needs more is not made
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub ram: Option<u64>,

    /// Hint for all that is written to or read from the volume
    #[arg(long = "hint", value_name = "HINT")]
    pub hints: Vec<HintName>,

    /// Size of a chunk: a power of two up to 64K, from 4K with log and from 512 with the other backends
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "4K")]
    pub chunk_size: u64,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let depot_path = &args.name.depot;
    let volume = volume_name(args)?;
    if args.size < SIZE_MIN {
        return Err(Error::Usage(format!(
            "a volume of {} would hold nothing: give at least 1M, and mind the unit, as in --size 40G",
            human::bytes(args.size)
        )));
    }
    if args.name.volume.is_some() && is_depot(depot_path) {
        confirm_no_depot_options(args)?;
        unlocking::agree(depot_path, &open_folder(depot_path)?)?;
        return one_more(args, volume, out);
    }
    if args.overwrite && args.data.is_none() && args.metadata.is_none() {
        return Err(Error::Usage(
            "--overwrite is for a device: give --data or --metadata".into(),
        ));
    }
    for device in [&args.data, &args.metadata].into_iter().flatten() {
        attach::confirm_unused(device, "create the depot")?;
    }
    let entropy = Entropy::system();
    let depot = entropy.try_bytes().map_err(StoreError::from)?;
    let hash_key = entropy.try_bytes().map_err(StoreError::from)?;
    let (engine, parameters) = backends::parse(&args.backend)?;
    let compression = match &args.packing {
        Some(name) => Compression::by_name(name)?,
        None if engine == EngineKind::Log && args.chunk_size == PACKED_CHUNK => Compression::Auto,
        None => Compression::None,
    };
    let encryption = new_password(depot_path, engine, global)?;
    let options = CreateOptions {
        encryption,
        engine,
        parameters,
        compression,
        chunk_bytes: u32::try_from(args.chunk_size).unwrap_or(u32::MAX),
        volume: volume.to_owned(),
        capacity_bytes: args.capacity,
        data_path: args.data.as_deref().map(|path| lasting(path, out)),
        metadata_path: args.metadata.as_deref().map(|path| lasting(path, out)),
        overwrite: args.overwrite,
        ram_bytes: args.ram,
        ..CreateOptions::new(args.size, depot, hash_key)
    };
    let config = create(depot_path, &options)?;
    default_hints::set(depot_path, volume, &kinds(args))?;
    tell(depot_path, &config, out)?;
    Ok(Exit::Ok)
}

/// Fails where options are given that hold for all of a depot, which is there already.
fn confirm_no_depot_options(args: &Args) -> Result<()> {
    let given = [
        ("--data", args.data.is_some()),
        ("--metadata", args.metadata.is_some()),
        ("--overwrite", args.overwrite),
        ("--capacity", args.capacity.is_some()),
        ("--packing", args.packing.is_some()),
        ("--backend", args.backend != "log"),
        ("--chunk-size", args.chunk_size != PACKED_CHUNK),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Usage(format!(
            "{option} is for a new depot, and {} is there already: leave it out",
            args.name.depot.display()
        ))),
    }
}

/// The path under which the depot looks for a device from now on.
fn lasting(path: &Path, out: &Out) -> String {
    let lasting = lasting_name::of(path);
    if lasting.starts_with("/dev/disk") && lasting != path {
        out.note(format_args!(
            "{} is remembered as {}, which stays when disks are found in another order",
            path.display(),
            lasting.display()
        ));
    }
    lasting.display().to_string()
}

/// Tells what was created, and what its backend does not keep.
fn tell(depot_path: &Path, config: &Config, out: &Out) -> Result<()> {
    if out.json {
        out.json(&json!({
            "message_type": "created",
            "depot": depot_path,
            "volume": config.volume,
            "bytes": config.volume_bytes,
            "capacity_bytes": config.capacity_bytes,
            "backend": config.engine.name(),
            "packing": config.compression.name(),
            "encryption": encryption_of(config.is_encrypted()).name(),
        }))?;
        return Ok(());
    }
    out.say(format_args!(
        "created {}{} with volume {} of {}; it stores up to {}",
        if config.is_encrypted() {
            "encrypted "
        } else {
            ""
        },
        depot_path.display(),
        config.volume,
        human::bytes(config.volume_bytes),
        human::bytes(config.capacity_bytes)
    ))?;
    match config.engine {
        EngineKind::Dmdedup(Backend::InRam) => out.warn(
            "inram keeps its metadata in RAM: after a power cut or a kill, the volume is as it was at the last save or detach",
        ),
        EngineKind::Dmdedup(Backend::Dtb) => out.warn(
            "dtb keeps nothing that survives a crash: after a power cut or a kill while the volume is written to, all data in it is lost",
        ),
        _ => {}
    }
    Ok(())
}

/// The password of the new depot, where it is to be encrypted.
fn new_password(folder: &Path, engine: EngineKind, global: &Global) -> Result<Option<NewPassword>> {
    let asked = global.encryption.as_deref().map(Encryption::by_name);
    if asked.transpose()?.unwrap_or(Encryption::None) == Encryption::None {
        // A variable may be meant for repositories.
        return match global
            .password
            .given_by()?
            .filter(|by| by.starts_with("--"))
        {
            Some(by) if global.encryption.is_none() => Err(Error::Usage(format!(
                "{by} gives a password, and a depot is encrypted only if that is asked for: add --encryption aes256gcm, or leave the password out"
            ))),
            _ => Ok(None),
        };
    }
    if engine != EngineKind::Log {
        return Err(Error::Usage(format!(
            "the backend {} cannot be encrypted: use log, or say --encryption none",
            engine.name()
        )));
    }
    Ok(Some(NewPassword {
        password: unlocking::new_password(folder)?,
        cost: KdfCost::default(),
        label: format!("{}@{}", machine::user(), machine::host()),
        created_unix_s: now(),
    }))
}

fn encryption_of(is_encrypted: bool) -> Encryption {
    if is_encrypted {
        Encryption::Aes256Gcm
    } else {
        Encryption::None
    }
}

fn kinds(args: &Args) -> Vec<HintKind> {
    args.hints.iter().copied().map(HintKind::from).collect()
}

/// Makes the depot, or leaves nothing of it.
fn create(path: &Path, options: &CreateOptions) -> Result<Config> {
    let was_there = path.exists();
    confirm_begun_or_empty(path)?;
    let folder: Arc<dyn Dir> = Arc::new(FileDir::create(path).map_err(VolumeError::from)?);
    Depot::confirm_no_others(&*folder).map_err(|error| naming(error, path))?;
    Depot::create(&folder, options).map_err(|error| {
        // The error says why there is no depot, which matters more than what could not be taken away.
        let _ = Depot::clear_failed(&*folder);
        if !was_there {
            let _ = std::fs::remove_dir(path);
        }
        Error::Device(naming(error, path))
    })
}

/// Fails where the folder holds something and no lock, which a creation makes first: names like a depot's are others'
/// then.
fn confirm_begun_or_empty(path: &Path) -> Result<()> {
    if path.join("lock").exists() {
        return Ok(());
    }
    let names = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.find(|name| name != "lost+found") {
        None => Ok(()),
        Some(name) => Err(Error::Device(VolumeError::Exists {
            place: path.display().to_string(),
            what: format!("it holds {name} and is no depot: name a folder that is new or empty"),
        })),
    }
}

fn volume_name(args: &Args) -> Result<&str> {
    match (&args.name.volume, &args.volume, &args.name.snapshot) {
        (Some(_), Some(_), _) | (_, _, Some(_)) => Err(Error::Usage(format!(
            "{} is no name for a new volume: give DEPOT:NAME, or DEPOT and --volume NAME",
            args.name.shown()
        ))),
        (Some(name), None, None) | (None, Some(name), None) => Ok(name),
        (None, None, None) => Ok("main"),
    }
}

/// Makes a volume in a depot that is there.
fn one_more(args: &Args, volume: &str, out: &Out) -> Result<Exit> {
    let request = json!({"name": volume, "bytes": args.size});
    let made = ask(&args.name.depot, "create", request)?;
    default_hints::set(&args.name.depot, volume, &kinds(args))?;
    if out.json {
        out.json(&made)?
    } else {
        out.say(format_args!(
            "created volume {volume} of {}",
            human::bytes(made["bytes"].as_u64().unwrap_or(0))
        ))?
    }
    Ok(Exit::Ok)
}
