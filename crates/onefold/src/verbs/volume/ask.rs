//! `onefold volume stats`, `collect` and `save`: asked of the depot's daemon, or, where none runs, of the depot itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_export::control;
use onefold_volume::front::WhenFull;
use serde_json::{Value, json};

use super::requests;
use super::source::{VolumeSource, open_depot};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;
use crate::signal;

/// Show what a depot did and holds
///
/// Writes and reads count since the depot was opened; a depot that nobody has open has no such counts. Garbage is –
/// until it was looked for after that. Latencies are the median, and what 99 % of requests stay within.
#[derive(clap::Args, Debug)]
pub struct StatsArgs {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,

    /// Go on, once a second
    #[arg(long)]
    pub watch: bool,
}

/// Options of a verb on one depot.
#[derive(clap::Args, Debug)]
pub struct DepotArgs {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,
}

/// Runs `volume stats`.
pub fn stats(args: &StatsArgs, out: &Out) -> Result<Exit> {
    let _listening = args.watch.then(signal::listen);
    loop {
        let stats = ask(&args.depot, "stats", json!({}))?;
        if out.json {
            out.json(&stats)?
        } else {
            table(&stats, out)?
        }
        if !args.watch || signal::raised() {
            return Ok(Exit::Ok);
        }
        for _ in 0..20 {
            if signal::raised() {
                return Ok(Exit::Ok);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Runs `volume collect`.
pub fn collect(args: &DepotArgs, out: &Out) -> Result<Exit> {
    let done = ask(&args.depot, "collect", json!({}))?;
    if out.json {
        out.json(&done)?;
    } else {
        let pages = done["pages_freed"].as_u64().unwrap_or(0);
        out.say(format_args!("freed {}", human::many(pages, "chunk")))?;
    }
    Ok(Exit::Ok)
}

/// Runs `volume save`.
pub fn save(args: &DepotArgs, out: &Out) -> Result<Exit> {
    ask(&args.depot, "save", json!({}))?;
    if out.json {
        out.json(&json!({"message_type": "saved"}))?
    } else {
        out.say("saved")?
    }
    Ok(Exit::Ok)
}

/// Has a depot's daemon do something, or does it with the depot itself where none runs.
///
/// # Errors
/// There is no depot, it is held by somebody who does not listen, or what the request gives.
pub fn ask(folder: &Path, what: &str, request: Value) -> Result<Value> {
    if let Some(answer) = control::ask(&folder.join("control"), what, request.clone())? {
        return Ok(answer);
    }
    let source = VolumeSource::depot(open_depot(folder, None, WhenFull::Fail)?);
    let unknown = || Err(Error::Failed(format!("there is no \"{what}\"")));
    let answer = requests::handle(&source, what, &request).unwrap_or_else(unknown);
    source.close()?;
    answer
}

/// A latency, within a factor of two, with the unit that suits it.
fn took(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{micros} µs"),
        _ => format!("{} ms", micros / 1000),
    }
}

fn table(stats: &Value, out: &Out) -> Result<()> {
    let number = |name: &str| stats.pointer(name).and_then(Value::as_u64).unwrap_or(0);
    let known = |name: &str| stats.pointer(name).and_then(Value::as_u64);
    let garbage = known("/space/reclaimable_bytes").map_or("–".into(), human::bytes);
    let full = match known("/space/full_percent") {
        Some(percent) => format!("{percent} %"),
        // Nobody has looked for garbage since the depot was opened.
        None => format!("at most {} %", number("/space/full_percent_max")),
    };
    let bytes = |name: &str| human::bytes(number(name));
    let ratio = |name: &str| match stats.pointer(name).and_then(Value::as_f64) {
        Some(ratio) => format!("{ratio:.2}"),
        None => "–".into(),
    };
    let sources = ["by_request", "by_range", "metadata"];
    let nodedup = (sources.iter())
        .map(|source| number(&format!("/nodedup_writes/{source}")))
        .sum();
    let hits = number("/counters/prefetch_hits");
    // Chunks that were overwritten or discarded count until merges of the map of backend log have met them.
    let bound = match known("/counters/map_runs") {
        Some(_) => "at most ",
        None => "",
    };
    let rows = [
        ("mapped", format!("{bound}{}", bytes("/mapped_bytes"))),
        ("stored", bytes("/stored_bytes")),
        (
            "storage ratio",
            format!("{bound}{}", ratio("/storage_ratio")),
        ),
        ("free", bytes("/space/free_bytes")),
        ("garbage", garbage),
        ("full", full),
        ("capacity", bytes("/space/total_bytes")),
        ("since it was opened:", String::new()),
        ("written", bytes("/write_bytes")),
        ("  unique chunks", human::count(number("/unique_writes"))),
        (
            "  duplicate chunks",
            human::count(number("/duplicate_writes")),
        ),
        ("  zero chunks", human::count(number("/zero_writes"))),
        ("  overwrites", human::count(number("/overwrites"))),
        ("  nodedup chunks", human::count(nodedup)),
        ("reads on writes", human::count(number("/reads_on_writes"))),
        ("I/O ratio", ratio("/io_ratio")),
        ("read", bytes("/read_bytes")),
        ("prefetch hits", human::count(hits)),
        ("flushes", human::count(number("/flushes"))),
        ("discards", human::count(number("/discards"))),
    ];
    for (name, value) in rows {
        let row = format!("{name:<18}{value:>20}");
        out.line(row.trim_end())?;
    }
    latencies(stats, out)?;
    troubles(stats, out)?;
    out.flush()
}

fn latencies(stats: &Value, out: &Out) -> Result<()> {
    let number = |name: &str| stats.pointer(name).and_then(Value::as_u64).unwrap_or(0);
    for op in ["read", "write", "discard", "flush"] {
        let micros = |which: &str| number(&format!("/latency_us/{op}/{which}"));
        if number(&format!("/latency_us/{op}/count")) > 0 {
            out.line(format_args!(
                "{:<18}{:>20}",
                format!("{op} takes"),
                format!(
                    "{}, 99 % up to {}",
                    took(micros("p50")),
                    took(micros("p99"))
                )
            ))?;
        }
    }
    Ok(())
}

/// Tells of what somebody should do something about.
fn troubles(stats: &Value, out: &Out) -> Result<()> {
    if let Some(seconds) = stats
        .pointer("/space/seconds_until_full")
        .and_then(Value::as_u64)
    {
        let left = human::duration(Duration::from_secs(seconds));
        out.line(format_args!("full at this rate in {left}"))?;
    }
    let missing = stats.pointer("/space/missing_on_host_bytes");
    let missing = missing.and_then(Value::as_u64).unwrap_or(0);
    if missing > 0 {
        out.line(format_args!(
            "the file system that holds the depot is full: it has no room for {} of the capacity",
            human::bytes(missing)
        ))?;
    }
    if let Some(failure) = stats["failure"].as_str() {
        out.line(format_args!("takes no writes: {failure}"))?;
    }
    Ok(())
}
