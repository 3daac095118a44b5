//! Summary at the end of a backup: files that were looked at, new data, its compression, and commands to run next.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use onefold_backup::backup::Outcome;
use onefold_backup::snapshot::Summary;
use serde_json::json;

use crate::error::Result;
use crate::global::Global;
use crate::human::{self, bytes, count, many};
use crate::json::SnapshotSummary;
use crate::out::Out;
use crate::progress::Meter;
use crate::select::short;

pub fn print(
    outcome: &Outcome,
    meter: &Meter,
    dry_run: bool,
    global: &Global,
    out: &Out,
) -> Result<()> {
    if out.json {
        as_json(outcome, meter.elapsed(), dry_run, out)
    } else {
        as_text(outcome, meter, dry_run, global, out)
    }
}

fn as_json(outcome: &Outcome, elapsed: Duration, dry_run: bool, out: &Out) -> Result<()> {
    let summary = &outcome.snapshot.summary;
    let mut value = json!(SnapshotSummary::from(summary));
    value["message_type"] = json!("summary");
    if dry_run {
        value["dry_run"] = json!(true);
        value["approximate"] = json!(is_approximate(summary));
    }
    value["total_duration"] = json!(elapsed.as_secs_f64());
    value["bytes_read"] = json!(summary.bytes_read);
    value["error_count"] = json!(summary.errors);
    if let Some(id) = &outcome.id {
        value["snapshot_id"] = json!(id.to_string());
    }
    out.json(&value)
}

fn as_text(
    outcome: &Outcome,
    meter: &Meter,
    dry_run: bool,
    global: &Global,
    out: &Out,
) -> Result<()> {
    let s = &outcome.snapshot.summary;
    let elapsed = meter.elapsed();
    let secs = elapsed.as_secs_f64().max(1e-9);
    let rate = bytes((s.bytes_read as f64 / secs) as u64);
    out.say(format_args!(
        "scanned    {}, {} in {} (read {}, {rate}/s)",
        many(s.total_files_processed, "file"),
        bytes(s.total_bytes_processed),
        human::duration(elapsed),
        bytes(s.bytes_read)
    ))?;
    out.say(format_args!(
        "files      {} new, {} changed, {} unchanged",
        count(s.files_new),
        count(s.files_changed),
        count(s.files_unmodified)
    ))?;
    out.say(format_args!(
        "folders    {} new, {} changed, {} unchanged",
        count(s.dirs_new),
        count(s.dirs_changed),
        count(s.dirs_unmodified)
    ))?;
    out.say(format_args!(
        "new        {}{} in {}, {} {}{}",
        if dry_run && is_approximate(s) {
            "about "
        } else {
            ""
        },
        bytes(s.data_added),
        many(s.data_chunks + s.tree_chunks, "chunk"),
        if dry_run {
            "would be stored as"
        } else {
            "stored as"
        },
        bytes(s.data_added_packed),
        compressed(s)
    ))?;
    if let Some(known) = known(s) {
        out.say(format_args!("dedup      {known}"))?;
    }
    lacking(outcome, meter, out);
    match &outcome.id {
        None if dry_run => out.say("dry run: nothing was stored and no snapshot was made"),
        None => out.say("nothing has changed: no snapshot was made"),
        Some(id) => {
            out.say(format_args!("snapshot   {} saved", short(id)))?;
            next(&short(id), outcome.snapshot.parent.is_none(), global, out)
        }
    }
}

/// Returns how much smaller the new data became; empty where seals and descriptors take more than compression gains.
fn compressed(s: &Summary) -> String {
    if s.data_added > s.data_added_packed {
        format!(
            " (compressed {})",
            human::ratio(s.data_added, s.data_added_packed)
        )
    } else {
        String::new()
    }
}

/// Returns how much of the data that was read was stored already, if that is known: names and times are new bytes, too,
/// and more than the contents of a few small files. Only data that was read counts, since holes in the rest are not
/// known.
fn known(s: &Summary) -> Option<String> {
    let known = s.bytes_read.checked_sub(s.data_added)?;
    let ratio = match s.data_added {
        0 => String::new(),
        new => format!(", {}", human::ratio(s.bytes_read, new)),
    };
    (known > 0).then(|| {
        format!(
            "{} of what was read need not be stored again ({:.1} %{ratio})",
            bytes(known),
            human::percent(known, s.bytes_read)
        )
    })
}

/// Reports the paths that could not be backed up. The snapshot has nothing of a source that cannot be backed up, so
/// `ls` cannot show it.
fn lacking(outcome: &Outcome, meter: &Meter, out: &Out) {
    let none = [
        (outcome.missing_sources, "not there or cannot be looked at"),
        (meter.refused.load(Relaxed), "of the repository itself"),
    ];
    let mut rest = outcome.snapshot.summary.errors;
    for (sources, what) in none.into_iter().filter(|(sources, _)| *sources > 0) {
        let (count, verb) = (
            many(sources, "source"),
            if sources == 1 { "is" } else { "are" },
        );
        out.note(format_args!(
            "{count} {verb} {what}, and {verb} not in the snapshot"
        ));
        rest = rest.saturating_sub(sources);
    }
    if rest > 0 {
        out.note(format_args!(
            "{} could not be read, or not whole: what the snapshot lacks of {}, `ls` shows",
            many(rest, "path"),
            if rest == 1 { "it" } else { "them" }
        ));
    }
}

/// Whether a dry run was too large to be counted exactly.
fn is_approximate(summary: &Summary) -> bool {
    summary.data_chunks + summary.tree_chunks > onefold_store::DRY_RUN_EXACT_CHUNKS as u64
}

/// Prints the commands to run next, after a first backup only.
fn next(id: &str, is_first: bool, global: &Global, out: &Out) -> Result<()> {
    if !is_first {
        return Ok(());
    }
    let repo = global.repo.as_ref().map_or(String::new(), |repo| {
        format!(" --repo {}", quoted(&repo.to_string_lossy()))
    });
    // The program is named as it was called: it need not be on the PATH.
    let program = std::env::args_os()
        .next()
        .unwrap_or_else(|| "onefold".into());
    let start = format!("{}{repo}", quoted(&program.to_string_lossy()));
    out.say("next:")?;
    for (what, why) in [
        (format!("ls {id}"), "what is in it"),
        (format!("restore {id} --target FOLDER"), "get it back"),
        (
            "check --read-data".into(),
            "prove that all of it can be read",
        ),
    ] {
        out.say(format_args!("  {start} {what:34}  # {why}"))?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
