//! Output of the figures: a table for people, JSON and CSV for programs.

use std::sync::atomic::Ordering::Relaxed;

use onefold_lab::{ChunkerChoice, Estimate};
use serde_json::{Value, json};

use crate::error::Result;
use crate::human::{self, bytes, count};
use crate::out::Out;
use crate::progress::Meter;

/// Prints the figures to standard output. Without a `meter` nothing was read now: the number of files is not known.
pub fn print(
    estimates: &[(ChunkerChoice, Estimate)],
    meter: Option<&Meter>,
    out: &Out,
) -> Result<()> {
    let files = meter.map(|meter| meter.progress.files_done.load(Relaxed));
    if out.json {
        let all: Vec<Value> = estimates.iter().map(value).collect();
        return out.json(&json!({
            "message_type": "summary",
            "files": files,
            "error_count": meter.map_or(0, |meter| meter.progress.errors.load(Relaxed)),
            "total_duration": meter.map_or(0.0, |meter| meter.elapsed().as_secs_f64()),
            "estimates": all,
        }));
    }
    let mut rows = vec![
        [
            "chunker",
            "size",
            "mean",
            "chunks",
            "different",
            "stored",
            "ratio",
            "with metadata",
            "gain",
            "counted",
        ]
        .map(String::from)
        .to_vec(),
    ];
    rows.extend(estimates.iter().map(row));
    out.line(human::table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8]).trim_end())?;
    let read = match (files, meter) {
        (Some(files), Some(meter)) => {
            let elapsed = human::duration(meter.elapsed());
            format!(" in {} and {elapsed}", human::many(files, "file"))
        }
        _ => String::new(),
    };
    let all = bytes(estimates.first().map_or(0, |(_, first)| first.bytes));
    out.say(format_args!("\n{all}{read}; ratios before compression"))
}

fn row((choice, estimate): &(ChunkerChoice, Estimate)) -> Vec<String> {
    let ratio = if estimate.is_exact {
        format!("{:.3}", estimate.ratio())
    } else {
        format!("{:.3} ±{:.3}", estimate.ratio(), estimate.ratio_error())
    };
    let gain = estimate.gain_bytes();
    let sign = if gain < 0.0 { "-" } else { "" };
    vec![
        choice.chunker.clone(),
        bytes(choice.mean.into()),
        bytes(estimate.chunk_bytes_mean() as u64),
        count(estimate.chunks),
        count(estimate.unique_chunks as u64),
        bytes(estimate.unique_bytes as u64),
        ratio,
        format!("{:.3}", estimate.ratio_meta()),
        format!("{sign}{}", bytes(gain.abs() as u64)),
        if estimate.is_exact {
            "one by one"
        } else {
            "by sketch"
        }
        .into(),
    ]
}

fn value((choice, estimate): &(ChunkerChoice, Estimate)) -> Value {
    json!({
        "chunker": choice.chunker,
        "size": choice.mean,
        "bytes": estimate.bytes,
        "chunks": estimate.chunks,
        "chunk_bytes_mean": estimate.chunk_bytes_mean(),
        "unique_chunks": estimate.unique_chunks as u64,
        "unique_bytes": estimate.unique_bytes as u64,
        "unique_bytes_error": estimate.unique_bytes_error as u64,
        "ratio": estimate.ratio(),
        "ratio_error": estimate.ratio_error(),
        "ratio_meta": estimate.ratio_meta(),
        "metadata_bytes": estimate.metadata_bytes() as u64,
        "gain_bytes": estimate.gain_bytes() as i64,
        "exact": estimate.is_exact,
    })
}

/// Returns the fields of the JSON as CSV, a line for each choice.
pub fn csv(estimates: &[(ChunkerChoice, Estimate)]) -> String {
    const FIELDS: [&str; 14] = [
        "chunker",
        "size",
        "bytes",
        "chunks",
        "chunk_bytes_mean",
        "unique_chunks",
        "unique_bytes",
        "unique_bytes_error",
        "ratio",
        "ratio_error",
        "ratio_meta",
        "metadata_bytes",
        "gain_bytes",
        "exact",
    ];
    let mut out = FIELDS.join(",") + "\n";
    for value in estimates.iter().map(value) {
        let cells = FIELDS.map(|field| match &value[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        out += &(cells.join(",") + "\n");
    }
    out
}
