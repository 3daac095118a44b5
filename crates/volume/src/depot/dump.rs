//! Looking at a depot's structures without opening it: they are read as they are, whoever has the depot open.

use onefold_io::Dir;

use super::backends::knobs_of;
use super::config::{Config, EngineKind};
use super::{Depot, OpenDevice, data, log, read_config};
use crate::dump::{Dump, hex};
use crate::{Error, Result};

/// A structure to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// What never changes.
    Config,
    /// What recovery begins with (engine `log`).
    Manifest,
    /// The zones that hold something (engine `log`).
    Zones,
    /// The zone at a place of the data device (engine `log`).
    Zone(u32),
}

impl Depot {
    /// What a structure of the depot in `folder` says.
    ///
    /// # Errors
    /// [`Error::NoDepot`]; [`Error::Damaged`]; [`Error::Invalid`] where the depot has no such structure.
    pub fn dump(folder: &dyn Dir, devices: &OpenDevice, structure: Structure) -> Result<Dump> {
        let config = read_config(folder)?;
        let has_zones = config.engine == EngineKind::Log;
        if !has_zones && structure != Structure::Config {
            return Err(Error::Invalid {
                what: format!(
                    "a depot with backend {} has a config, and no manifest and zones",
                    config.engine.name()
                ),
            });
        }
        match structure {
            Structure::Config => Ok(config_fields(&config)),
            Structure::Manifest => crate::log::dump::manifest(folder),
            Structure::Zones => crate::log::dump::zones(folder),
            Structure::Zone(place) => {
                let disk = data::open(folder, devices, &config)?;
                crate::log::dump::zone(folder, &*log::zones(&config, disk), place)
            }
        }
    }
}

/// The key of the hashes is secret, and left out.
fn config_fields(config: &Config) -> Dump {
    let data = match config.data_path.is_empty() {
        true => "the file data in the folder",
        false => &config.data_path,
    };
    let mut fields = vec![
        ("depot", hex(&config.depot).into()),
        ("backend", config.engine.name().into()),
        ("chunk_bytes", config.chunk_bytes.into()),
        ("volume", config.volume.as_str().into()),
        ("volume_bytes", config.volume_bytes.into()),
        ("capacity_bytes", config.capacity_bytes.into()),
        ("zone_bytes", config.zone_bytes.into()),
        ("data", data.into()),
    ];
    for knob in knobs_of(config.engine.name()) {
        let parameters = config.parameters;
        fields.push(match knob.key {
            "transaction" => ("transaction_writes", parameters.transaction_writes.into()),
            _ => ("cache_bytes", parameters.cache_bytes.into()),
        });
    }
    Dump::Fields(fields)
}
