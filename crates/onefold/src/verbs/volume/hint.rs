//! `onefold volume hint` and `unhint`: advice for a volume that is attached or served.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use onefold_volume::hints::HintKind;
use serde_json::Value;

use super::head_name::HeadName;
use super::hinter::{HintName, Hinter};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::{self, Out};

/// Tell a depot what is known of data: that it is unique, or will be copied
///
/// For a file, a range, or all of the volume, until `unhint`, the time given with --for, or the end of the process that
/// has the depot open. Hints are advice: a wrong one costs space or time, never data. A file has to be written or
/// allocated already; `onefold volume dd` and `cp` hint what they are going to write.
#[derive(clap::Args, Debug)]
pub struct HintArgs {
    /// Depot, and the volume (default: the attached one, or else the first)
    #[arg(value_name = "DEPOT[:VOLUME]")]
    pub name: HeadName,

    /// Advice on the data
    #[arg(value_name = "HINT", required = true)]
    pub hints: Vec<HintName>,

    #[command(flatten)]
    pub place: HintPlace,

    /// End the hints by themselves after this time
    #[arg(long = "for", value_name = "TIME", value_parser = human::parse_duration)]
    pub lasts: Option<Duration>,
}

/// End hints of a depot before their time
///
/// For a file, a range, or all of the volume.
#[derive(clap::Args, Debug)]
pub struct UnhintArgs {
    /// Depot, and the volume (default: the attached one, or else the first)
    #[arg(value_name = "DEPOT[:VOLUME]")]
    pub name: HeadName,

    /// Hints to be ended (default: all)
    #[arg(value_name = "HINT")]
    pub hints: Vec<HintName>,

    #[command(flatten)]
    pub place: HintPlace,
}

/// Part of a volume.
#[derive(clap::Args, Debug)]
pub struct HintPlace {
    /// The places in which this file lies on the volume
    #[arg(long, value_name = "PATH", conflicts_with = "range")]
    pub file: Option<PathBuf>,

    /// Bytes of the volume, as in 0..1G; without an end, up to the volume's
    #[arg(long, value_name = "OFFSET..END", value_parser = parse_range)]
    pub range: Option<Range<u64>>,

    /// Block device of the volume, where another program made it (nbd-client)
    #[arg(long, value_name = "PATH", requires = "file")]
    pub device: Option<PathBuf>,
}

/// Runs `volume hint`.
pub fn hint(args: &HintArgs, out: &Out) -> Result<Exit> {
    let (hinter, ranges) = args.place.find(&args.name)?;
    let kinds = kinds(&args.hints);
    let answer = hinter.hint(ranges.as_deref(), &kinds, args.lasts)?;
    tell(&answer, ranges.as_deref(), "hinted", out)
}

/// Runs `volume unhint`.
pub fn unhint(args: &UnhintArgs, out: &Out) -> Result<Exit> {
    let (hinter, ranges) = args.place.find(&args.name)?;
    let answer = hinter.unhint(ranges.as_deref(), &kinds(&args.hints))?;
    tell(&answer, ranges.as_deref(), "no longer hinted", out)
}

fn kinds(hints: &[HintName]) -> Vec<HintKind> {
    hints.iter().copied().map(HintKind::from).collect()
}

impl HintPlace {
    /// The process to be asked, and the ranges; `None`: all of the volume.
    fn find(&self, name: &HeadName) -> Result<(Hinter, Option<Vec<Range<u64>>>)> {
        if name.snapshot.is_some() {
            return Err(Error::Usage(
                "a snapshot takes no hints: give DEPOT:VOLUME".into(),
            ));
        }
        let hinter = Hinter::of_depot(&name.depot, name.volume.clone())?;
        let hinter = hinter.on_device(self.device.clone());
        let ranges = match (&self.file, &self.range) {
            (Some(path), _) => {
                let file = File::open(path)
                    .map_err(|error| Error::io(format!("open {}", path.display()), error))?;
                let ranges = hinter.ranges_of(&file, path, 0..u64::MAX)?;
                if ranges.is_empty() {
                    return Err(Error::Usage(format!(
                        "{} has no place on the volume: it is empty, or was not allocated",
                        path.display()
                    )));
                }
                Some(ranges)
            }
            (None, Some(range)) => {
                let mut range = range.clone();
                if range.end == u64::MAX {
                    range.end = hinter.volume_bytes()?;
                }
                Some(vec![range])
            }
            (None, None) => None,
        };
        Ok((hinter, ranges))
    }
}

fn tell(answer: &Value, ranges: Option<&[Range<u64>]>, how: &str, out: &Out) -> Result<Exit> {
    if out.json {
        out.json(answer)?;
        return Ok(Exit::Ok);
    }
    let volume = out::safe(answer["volume"].as_str().unwrap_or_default());
    match ranges {
        None => out.say(format_args!("all of volume {volume} is {how}"))?,
        Some(ranges) => {
            let bytes = ranges.iter().map(|range| range.end - range.start).sum();
            out.say(format_args!(
                "{} in {} of volume {volume} are {how}",
                human::bytes(bytes),
                human::many(ranges.len() as u64, "piece")
            ))?;
        }
    }
    Ok(Exit::Ok)
}

/// Parses `OFFSET..END`, each as a size; an end that is missing is the highest number.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is no range: write it like 0..1G or 4M..");
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let start = human::parse_bytes(start)?;
    let end = match end {
        "" => u64::MAX,
        end => human::parse_bytes(end)?,
    };
    if start < end {
        Ok(start..end)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_sizes() {
        assert_eq!(parse_range("0..1G"), Ok(0..1 << 30));
        assert_eq!(parse_range("4096..8K"), Ok(4096..8192));
        assert_eq!(parse_range("4M.."), Ok(4 << 20..u64::MAX));
        for wrong in ["", "5", "..", "..5", "5..5", "8K..4K", "a..b"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
