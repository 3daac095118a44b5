//! Requests that give and end hints (FORMAT.md, "Control socket").

use std::ops::Range;
use std::time::Duration;

use onefold_volume::hints::HintKind;
use onefold_volume::{Depot, Error, Result};
use serde_json::{Value, json};

/// Ranges that a request names at most: it is one line.
pub const RANGES_A_REQUEST: usize = 1000;

/// Gives hints for ranges of a volume.
pub fn hint(depot: &Depot, request: &Value) -> Result<Value> {
    let volume = request["volume"].as_str();
    let ranges = match ranges(request)? {
        Some(ranges) => ranges,
        None => {
            let whole = 0..depot.head(volume)?.bytes;
            vec![whole]
        }
    };
    let seconds = match &request["for_seconds"] {
        Value::Null => None,
        seconds => Some(
            seconds
                .as_u64()
                .ok_or_else(|| wrong("for_seconds", "a number"))?,
        ),
    };
    let lasts = seconds.map(Duration::from_secs);
    let kinds = kinds(request)?;
    if kinds.is_empty() {
        return Err(wrong("hints", "a list of one hint at least"));
    }
    let head = depot.hint(volume, &ranges, &kinds, lasts)?;
    Ok(json!({"volume": head.name, "hinted_ranges": depot.hinted_ranges()}))
}

/// Ends hints: of some ranges or all of a volume, of some kinds or all.
pub fn unhint(depot: &Depot, request: &Value) -> Result<Value> {
    let ranges = ranges(request)?;
    let kinds = match kinds(request)? {
        none if none.is_empty() => HintKind::ALL.to_vec(),
        kinds => kinds,
    };
    let head = depot.unhint(request["volume"].as_str(), ranges.as_deref(), &kinds)?;
    Ok(json!({"volume": head.name, "hinted_ranges": depot.hinted_ranges()}))
}

fn wrong(field: &str, expected: &str) -> Error {
    Error::Invalid {
        what: format!("the request's field \"{field}\" is not {expected}"),
    }
}

/// Ranges of bytes, each a pair of its first byte and the one behind it; `None`: all of the volume.
fn ranges(request: &Value) -> Result<Option<Vec<Range<u64>>>> {
    let wrong = || wrong("ranges", "a list of up to 1000 pairs of numbers");
    let list = match &request["ranges"] {
        Value::Null => return Ok(None),
        list => list.as_array().ok_or_else(wrong)?,
    };
    let range = |pair: &Value| Some(pair[0].as_u64()?..pair[1].as_u64()?);
    let ranges: Option<Vec<_>> = list.iter().map(range).collect();
    match ranges.filter(|ranges| ranges.len() <= RANGES_A_REQUEST) {
        Some(ranges) => Ok(Some(ranges)),
        None => Err(wrong()),
    }
}

fn kinds(request: &Value) -> Result<Vec<HintKind>> {
    let wrong = || wrong("hints", "a list of names");
    let names = match &request["hints"] {
        Value::Null => return Ok(Vec::new()),
        names => names.as_array().ok_or_else(wrong)?,
    };
    let by_name = |name: &Value| HintKind::by_name(name.as_str().ok_or_else(wrong)?);
    names.iter().map(by_name).collect()
}
