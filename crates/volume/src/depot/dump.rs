//! Looking at a depot's structures without opening it: they are read as they are, whoever has the depot open.

use onefold_io::Dir;
use onefold_keys::{Entropy, Secret};

use super::backends::{self, knobs_of};
use super::config::{Config, EngineKind};
use super::unlock::unlock;
use super::{Depot, OpenDevice, data, log, read_config};
use crate::dump::{Dump, hex};
use crate::log::Seals;
use crate::{Error, Result};

/// A structure to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// The properties that never change.
    Config,
    /// The manifest, with which recovery begins (engine `log`).
    Manifest,
    /// The zones that hold something (engine `log`).
    Zones,
    /// The zone at a place of the data device (engine `log`).
    Zone(u32),
    /// The beginning of the metadata: superblocks, header, sizes (all backends but `log`).
    Metadata,
}

impl Structure {
    /// The structure with which the depot in `folder` is opened.
    ///
    /// # Errors
    /// As [`Depot::dump`].
    pub fn first(folder: &dyn Dir) -> Result<Self> {
        Ok(match read_config(folder)?.engine {
            EngineKind::Log => Self::Manifest,
            EngineKind::Dmdedup(_) => Self::Metadata,
        })
    }
}

impl Depot {
    /// Tells what a structure of the depot in `folder` says. In an encrypted depot all but the configuration needs the
    /// password.
    ///
    /// # Errors
    /// [`Error::NoDepot`]; [`Error::NoPassword`]; [`Error::WrongPassword`]; [`Error::Damaged`]; [`Error::Invalid`]
    /// where the depot has no such structure.
    pub fn dump(
        folder: &dyn Dir,
        devices: &OpenDevice,
        structure: Structure,
        password: Option<&Secret>,
    ) -> Result<Dump> {
        let config = read_config(folder)?;
        let no_such = |name: &str, there: &str| {
            let engine = config.engine.name();
            let what = format!("a depot with backend {engine} has no {name}: it has {there}");
            Err(Error::Invalid { what })
        };
        match (structure, config.engine) {
            (Structure::Config, _) => Ok(config_fields(&config)),
            (Structure::Manifest, EngineKind::Log) => {
                crate::log::dump::manifest(folder, &seals_of(&config, password)?)
            }
            (Structure::Zones, EngineKind::Log) => {
                crate::log::dump::zones(folder, &seals_of(&config, password)?)
            }
            (Structure::Zone(place), EngineKind::Log) => {
                let seals = seals_of(&config, password)?;
                let disk = data::look(folder, devices, &config)?;
                crate::log::dump::zone(folder, &*log::zones(&config, disk), &seals, place)
            }
            (Structure::Metadata, EngineKind::Log) => {
                no_such("metadata of its own", "config, manifest, zones")
            }
            (Structure::Metadata, EngineKind::Dmdedup(backend)) => {
                backends::dump(folder, devices, &config, backend)
            }
            (Structure::Manifest, _) => no_such("manifest", "config and metadata"),
            (Structure::Zones | Structure::Zone(_), _) => no_such("zones", "config and metadata"),
        }
    }
}

/// Keys to look with.
fn seals_of(config: &Config, password: Option<&Secret>) -> Result<Seals> {
    let (_, seals) = unlock(config.clone(), password, &Entropy::system())?;
    Ok(seals)
}

/// The key of the hashes is secret, and left out.
fn config_fields(config: &Config) -> Dump {
    let data = if config.data_path.is_empty() {
        "the file data in the folder"
    } else {
        &config.data_path
    };
    let encryption = if config.is_encrypted() {
        "aes256gcm"
    } else {
        "none"
    };
    let mut fields = vec![
        ("depot", hex(&config.depot).into()),
        ("backend", config.engine.name().into()),
        ("chunk_bytes", config.chunk_bytes.into()),
        ("volume", config.volume.as_str().into()),
        ("volume_bytes", config.volume_bytes.into()),
        ("capacity_bytes", config.capacity_bytes.into()),
        ("zone_bytes", config.zone_bytes.into()),
        ("encryption", encryption.into()),
        ("data", data.into()),
    ];
    if !config.metadata_path.is_empty() {
        fields.push(("metadata", config.metadata_path.as_str().into()));
    }
    for knob in knobs_of(config.engine.name()) {
        let parameters = config.parameters;
        fields.push(match knob.key {
            "transaction" => ("transaction_writes", parameters.transaction_writes.into()),
            _ => ("cache_bytes", parameters.cache_bytes.into()),
        });
    }
    Dump::Fields(fields)
}
