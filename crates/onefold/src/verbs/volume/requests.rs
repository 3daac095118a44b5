//! Requests to a daemon's control socket that need a depot only, and their answers.

use onefold_volume::Effort;
use onefold_volume::depot::DepotStats;
use serde_json::{Map, Value, json};

use super::source::Source;
use crate::error::Result;

/// Carries out a request; returns `None` where there is no such request.
pub fn handle(source: &Source, what: &str) -> Option<Result<Value>> {
    Some(match what {
        "stats" => source.with_depot(|depot| Ok(stats(&depot.stats()?))),
        "collect" => source.with_depot(|depot| {
            let done = depot.collect(Effort::Whole)?;
            Ok(json!({"pages_freed": done.pages_freed, "pages_copied": done.pages_copied}))
        }),
        "save" => source.with_depot(|depot| depot.save().map(|()| json!({}))),
        _ => return None,
    })
}

/// Returns statistics as JSON: the report's names (§3.5), then the engine's own.
fn stats(all: &DepotStats) -> Value {
    let (front, engine, space) = (&all.front, &all.engine, &all.space);
    let chunk = u64::from(all.chunk_bytes);
    let named = |pairs: &[(&'static str, u64)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let written = engine.unique_writes + engine.duplicate_writes;
    json!({
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
            "reclaimable_bytes": space.reclaimable * chunk,
            "reserved_bytes": space.reserved * chunk,
        },
        "ram_bytes": named(&engine.ram_bytes),
        "counters": named(&engine.counters),
    })
}

fn ratio(all: u64, different: u64) -> Value {
    match different {
        0 => Value::Null,
        different => json!(all as f64 / different as f64),
    }
}
