//! Requests to a daemon's control socket that need a depot only, and their answers.

use onefold_volume::Effort;
use onefold_volume::depot::{CheckReport, DepotStats};
use onefold_volume::front::Histogram;
use serde_json::{Map, Value, json};

use super::heads;
use super::hint_requests;
use super::source::VolumeSource;
use crate::error::Result;

/// Carries one out; `None`: there is no such request.
pub fn handle(source: &VolumeSource, what: &str, request: &Value) -> Option<Result<Value>> {
    Some(match what {
        "stats" => source.with_depot(|depot, _| Ok(stats(&depot.stats()?))),
        "collect" => source.with_depot(|depot, _| {
            let done = depot.collect(Effort::Whole)?;
            Ok(json!({"pages_freed": done.pages_freed, "pages_copied": done.pages_copied}))
        }),
        "check" => source.with_depot(|depot, progress| {
            let report = depot.check_with(request["read_data"] == true, progress)?;
            Ok(check(&report, u64::from(depot.config().chunk_bytes)))
        }),
        "check_progress" => source.with_depot(|_, progress| {
            let (done, total) = progress.bytes();
            Ok(json!({"bytes_done": done, "bytes_total": total}))
        }),
        "hint" => source.with_depot(|depot, _| hint_requests::hint(depot, request)),
        "unhint" => source.with_depot(|depot, _| hint_requests::unhint(depot, request)),
        "save" => source.with_depot(|depot, _| depot.save().map(|()| json!({}))),
        _ => {
            let done =
                source.with_depot(|depot, _| heads::handle(depot, what, request).transpose());
            return done.transpose();
        }
    })
}

/// Returns statistics as JSON: the report's names (§3.5), then the engine's own.
fn stats(all: &DepotStats) -> Value {
    let (front, engine, space) = (&all.front, &all.engine, &all.space);
    let chunk = u64::from(all.chunk_bytes);
    let named = |pairs: &[(&'static str, u64)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.replace(' ', "_"), (*value).into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let written = engine.unique_writes + engine.duplicate_writes;
    json!({
        "message_type": "volume_stats",
        "chunk_bytes": chunk,
        "reads": front.reads,
        "read_bytes": front.read_bytes,
        "writes": front.writes,
        "write_bytes": front.write_bytes,
        "reads_on_writes": front.reads_on_writes,
        "flushes": front.flushes,
        "commits": front.commits,
        "discards": front.discards,
        "write_zeroes": front.zeroings,
        "batches": front.batches,
        "batch_chunks": front.batch_chunks,
        "nodedup_writes": {
            "by_request": front.nodedup.by_request,
            "by_range": front.nodedup.by_range,
            "metadata": front.nodedup.as_metadata,
        },
        "prefetch_reads": front.prefetch_reads,
        "hinted_ranges": front.hinted_ranges,
        "staged_bytes": front.staged_bytes,
        "queued": front.queued,
        "failure": front.failure,
        "unique_writes": engine.unique_writes,
        "duplicate_writes": engine.duplicate_writes,
        "new_writes": engine.new_writes,
        "overwrites": engine.overwrites,
        "zero_writes": engine.zero_writes,
        "mapped_bytes": engine.mapped_lbns * chunk,
        "stored_bytes": engine.stored_chunks * chunk,
        "hash_entries": engine.hash_entries,
        "storage_ratio": ratio(engine.mapped_lbns, engine.stored_chunks),
        "io_ratio": ratio(written, engine.unique_writes),
        "space": {
            "total_bytes": space.total * chunk,
            "free_bytes": space.free * chunk,
            "reclaimable_bytes": space.known_garbage().map(|chunks| chunks * chunk),
            "reserved_bytes": space.reserved * chunk,
            "missing_on_host_bytes": space.missing * chunk,
            "full_percent": space.known_garbage().map(|_| space.full_percent()),
            "full_percent_max": space.full_percent_max(engine.mapped_lbns),
        },
        "latency_us": {
            "read": latency(&front.latencies.read),
            "write": latency(&front.latencies.write),
            "discard": latency(&front.latencies.discard),
            "flush": latency(&front.latencies.flush),
        },
        "ram_bytes": named(&engine.ram_bytes),
        "counters": named(&engine.counters),
    })
}

/// Stretches and findings that an answer lists: it is one line.
const LISTED_MAX: usize = 200;

fn check(report: &CheckReport, chunk_bytes: u64) -> Value {
    let findings = report.findings.iter().take(LISTED_MAX);
    let damaged = report.damaged.iter().take(LISTED_MAX);
    json!({
        "is_clean": report.is_clean(),
        "chunks_read": report.chunks_read,
        "chunks_damaged": report.chunks_damaged,
        "findings": findings.map(|finding| json!({
            "place": finding.place,
            "what": finding.what,
        })).collect::<Vec<_>>(),
        "damaged": damaged.map(|stretch| json!({
            "volume": stretch.volume,
            "lbn": stretch.lbns.start,
            "chunks": stretch.lbns.end - stretch.lbns.start,
            "offset": stretch.lbns.start * chunk_bytes,
            "bytes": (stretch.lbns.end - stretch.lbns.start) * chunk_bytes,
            "what": stretch.what,
        })).collect::<Vec<_>>(),
    })
}

/// Returns the latency from request to answer: half of all requests, and 99 in 100, take no longer, within a factor of
/// two.
fn latency(histogram: &Histogram) -> Value {
    let micros = |share| histogram.quantile(share) / 1000;
    json!({"count": histogram.count(), "p50": micros(0.5), "p99": micros(0.99), "max": micros(1.0)})
}

fn ratio(all: u64, different: u64) -> Value {
    match different {
        0 => Value::Null,
        different => json!(all as f64 / different as f64),
    }
}
