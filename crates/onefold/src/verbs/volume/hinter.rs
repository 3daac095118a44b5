//! Hints for a depot that a process has open: as ranges, or for the ranges in which a file lies.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use onefold_export::control;
use onefold_io::os::file_extents;
use onefold_volume::hints::{HintKind, RANGES_MAX};
use serde_json::{Value, json};

use super::device_places::{self, DevicePlace};
use super::hint_requests::RANGES_A_REQUEST;
use super::list::attached;
use crate::error::{Error, Result};

/// A hint, as users name it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintName {
    /// Written data is not worth deduplicating
    Nodedup,
    /// Data that is read is written elsewhere soon
    Prefetch,
    /// Written data does not compress
    Incompressible,
}

impl From<HintName> for HintKind {
    fn from(hint: HintName) -> Self {
        match hint {
            HintName::Nodedup => Self::Nodedup,
            HintName::Prefetch => Self::Prefetch,
            HintName::Incompressible => Self::Incompressible,
        }
    }
}

/// A process that has a depot open, and one of its volumes.
pub struct Hinter {
    control: PathBuf,
    /// Name of the volume; `None`: the first one.
    volume: Option<String>,
    /// The kernel's device of the volume; `None` where no process of this program has attached it.
    device: Option<PathBuf>,
}

impl Hinter {
    /// The process that has the depot in `folder` open, and the volume of this name, or else the attached one.
    ///
    /// # Errors
    /// No process has it open; another volume than the named one is attached, and a device is needed.
    pub fn of_depot(folder: &Path, volume: Option<String>) -> Result<Self> {
        let control = folder.join("control");
        let Some(status) = control::ask(&control, "status", json!({}))? else {
            return Err(Error::Failed(format!(
                "no process has {} open: hints last no longer than one has, so attach or serve it first",
                folder.display()
            )));
        };
        let attached = status["volume"].as_str().map(str::to_owned);
        let is_other = volume.is_some() && attached.is_some() && attached != volume;
        let device = status["device"].as_str().filter(|_| !is_other);
        Ok(Self {
            control,
            device: device.map(PathBuf::from),
            volume: volume.or(attached),
        })
    }

    /// The process that has attached the device below `file`.
    ///
    /// # Errors
    /// There is none.
    pub fn below(file: &File, path: &Path) -> Result<Self> {
        let places = places_below(file, path)?;
        for (control, status) in attached() {
            let device = status["device"].as_str().map(PathBuf::from);
            let number = device.as_deref().and_then(device_places::number);
            if number.is_some_and(|number| places.iter().any(|place| place.number == number)) {
                return Ok(Self {
                    control,
                    volume: status["volume"].as_str().map(str::to_owned),
                    device,
                });
            }
        }
        let names: Vec<_> = places
            .iter()
            .map(|place| device_places::name(place.number))
            .collect();
        Err(Error::Usage(format!(
            "{} lies on {}, which no process of onefold has attached: `onefold volume list` shows those that are",
            path.display(),
            names.join(", on ")
        )))
    }

    /// The same, of a volume whose device the kernel has from another program.
    #[must_use]
    pub fn on_device(self, device: Option<PathBuf>) -> Self {
        Self {
            device: device.or(self.device),
            ..self
        }
    }

    /// Gives hints for ranges of the volume, or for all of it. Returns the volume's name and how many hinted ranges
    /// there are.
    ///
    /// # Errors
    /// The process refuses, or has ended.
    pub fn hint(
        &self,
        ranges: Option<&[Range<u64>]>,
        kinds: &[HintKind],
        lasts: Option<Duration>,
    ) -> Result<Value> {
        let seconds = lasts.map(|lasts| lasts.as_secs());
        self.send("hint", ranges, kinds, &json!({"for_seconds": seconds}))
    }

    /// Ends hints.
    ///
    /// # Errors
    /// The process refuses, or has ended.
    pub fn unhint(&self, ranges: Option<&[Range<u64>]>, kinds: &[HintKind]) -> Result<Value> {
        self.send("unhint", ranges, kinds, &json!({}))
    }

    /// Size of the volume, in bytes.
    ///
    /// # Errors
    /// There is no such volume, or the process has ended.
    pub fn volume_bytes(&self) -> Result<u64> {
        let found = control::ask(&self.control, "find", json!({"volume": self.volume}))?;
        let bytes = found.and_then(|found| found["bytes"].as_u64());
        bytes.ok_or_else(process_ended)
    }

    fn send(
        &self,
        what: &str,
        ranges: Option<&[Range<u64>]>,
        kinds: &[HintKind],
        more: &Value,
    ) -> Result<Value> {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let ask = |ranges: Option<&[Range<u64>]>| {
            let pairs = |ranges: &[Range<u64>]| -> Vec<_> {
                ranges
                    .iter()
                    .map(|range| [range.start, range.end])
                    .collect()
            };
            let mut request = more.clone();
            request["volume"] = json!(self.volume);
            request["hints"] = json!(names);
            request["ranges"] = json!(ranges.map(pairs));
            control::ask(&self.control, what, request)?.ok_or_else(process_ended)
        };
        match ranges {
            None | Some([]) => ask(ranges),
            Some(ranges) => {
                let mut answer = Value::Null;
                for some in ranges.chunks(RANGES_A_REQUEST) {
                    answer = ask(Some(some))?;
                }
                Ok(answer)
            }
        }
    }

    /// The volume's ranges in which some bytes of a file lie.
    ///
    /// # Errors
    /// The file lies elsewhere, or its file system does not tell where.
    pub fn ranges_of(
        &self,
        file: &File,
        path: &Path,
        bytes: Range<u64>,
    ) -> Result<Vec<Range<u64>>> {
        let Some(device) = &self.device else {
            return Err(Error::Usage(format!(
                "the volume is not attached by onefold: give --device, the block device under which {} is mounted, or --range",
                path.display()
            )));
        };
        let number = device_places::number(device)
            .ok_or_else(|| Error::Usage(format!("{} is no block device", device.display())))?;
        let places = places_below(file, path)?;
        let place = places.iter().find(|place| place.number == number);
        let Some(place) = place else {
            return Err(Error::Usage(format!(
                "{} lies on {}, not on {}, the device of the volume",
                path.display(),
                device_places::name(places[0].number),
                device.display()
            )));
        };
        let extents = file_extents(file.as_fd(), bytes.clone(), RANGES_MAX)
            .map_err(|error| Error::io(format!("find where {} lies", path.display()), error))?;
        let range = |extent: &onefold_io::os::FileExtent| {
            let ahead = bytes.start.saturating_sub(extent.logical);
            let behind = (extent.logical + extent.bytes).saturating_sub(bytes.end);
            let start = place.offset + extent.physical;
            start + ahead..start + extent.bytes.saturating_sub(behind)
        };
        Ok(extents
            .iter()
            .map(range)
            .filter(|range| !range.is_empty())
            .collect())
    }
}

fn process_ended() -> Error {
    Error::Failed("the depot's process has ended, and its hints with it".into())
}

/// The devices below a file, at least one.
///
/// # Errors
/// Its file system lies on none that the kernel tells of.
fn places_below(file: &File, path: &Path) -> Result<Vec<DevicePlace>> {
    let found = file
        .metadata()
        .map_err(|error| Error::io(format!("look at {}", path.display()), error))?;
    match device_places::below(&found) {
        places if places.is_empty() => Err(Error::Usage(format!(
            "the file system of {} does not tell on which block device it lies (as btrfs, overlayfs and network file systems do not): give --range, or serve the volume with a hint in the export's name",
            path.display()
        ))),
        places => Ok(places),
    }
}
