//! Whether what is written is what is read and listed, at once and over another connection.

use onefold_io::ReadAt;
use onefold_store::Result;
use onefold_store::objects::ObjectStore;

use super::{RunningTrials, TrialOutcome};
use crate::client::Client;

/// Times that each reading is tried.
const TIMES: usize = 8;
/// More than one page of a list has.
const MANY: usize = 1_001;
/// Objects that are put at once.
const AT_ONCE: usize = 16;

const WEAK: &str = "a store whose readings and lists are late cannot be shared: use another store. NetApp StorageGRID is such a one unless its buckets are set to \
     strong consistency";

/// Reading after each kind of change.
pub(super) fn objects(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "reading after a change";
    let name = trials.name("object");
    let [one, other] = trials.connections;
    for time in 0..TIMES {
        let (first, second) = (format!("first {time}"), format!("second {time}, longer"));
        ObjectStore::put(one, &name, &[first.as_bytes()])?;
        let is_first =
            matches!(ObjectStore::get(other, &name), Ok(found) if found == first.as_bytes());
        ObjectStore::put(one, &name, &[second.as_bytes()])?;
        let is_second =
            matches!(ObjectStore::get(other, &name), Ok(found) if found == second.as_bytes());
        ObjectStore::delete(one, &name)?;
        let is_gone = matches!(other.len(&name), Err(error) if error.is_not_found());
        let wrong = match (is_first, is_second, is_gone) {
            (false, ..) => "an object that was put is not read",
            (_, false, _) => "an object that was replaced is read as it was before",
            (.., false) => "an object that was removed is there",
            _ => continue,
        };
        trials.tell_with(TRIAL, TrialOutcome::Unshared, wrong, Some(WEAK));
        return Ok(());
    }
    trials.tell(
        TRIAL,
        TrialOutcome::Good,
        format!("{TIMES} times as it must be"),
    );
    Ok(())
}

/// Parts of objects.
pub(super) fn ranges(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "parts of an object";
    let name = trials.name("parts");
    let [one, other] = trials.connections;
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    ObjectStore::put(one, &name, &[&bytes])?;
    let (mut first, mut middle) = (vec![0; 10], vec![0; 5_000]);
    let mut parts = [
        ReadAt {
            offset: 0,
            buf: &mut first,
        },
        ReadAt {
            offset: 50_000,
            buf: &mut middle,
        },
    ];
    let read = other.get_ranges(&name, &mut parts);
    let tail = other.get_tail(&name, 1_000);
    let is_right = first == bytes[..10] && middle == bytes[50_000..55_000];
    match (read, tail) {
        (Ok(()), Ok((tail, 100_000))) if is_right && tail == bytes[99_000..] => {
            trials.tell(
                TRIAL,
                TrialOutcome::Good,
                "ranges and ends are what was asked for",
            );
        }
        (Err(error), _) | (_, Err(error)) if error.is_unavailable() => return Err(error),
        (Err(error), _) | (_, Err(error)) => {
            trials.tell(TRIAL, TrialOutcome::Bad, error.to_string())
        }
        _ => trials.tell(
            TRIAL,
            TrialOutcome::Bad,
            "other bytes than those that were asked for",
        ),
    }
    Ok(())
}

/// Lists after each kind of change.
pub(super) fn lists(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "lists after a change";
    let folder = trials.name("list");
    let [one, other] = trials.connections;
    let name = |time: usize| format!("{folder}/{time:03}");
    for time in 0..TIMES {
        ObjectStore::put(one, &name(time), &[b"x"])?;
        let listed = Client::list(other, &folder)?;
        if listed.len() != time + 1 {
            let what = "an object that was put is not listed";
            trials.tell_with(TRIAL, TrialOutcome::Unshared, what, Some(WEAK));
            return Ok(());
        }
    }
    for time in 0..TIMES {
        ObjectStore::delete(one, &name(time))?;
        if Client::list(other, &folder)?.len() != TIMES - time - 1 {
            let what = "an object that was removed is listed";
            trials.tell_with(TRIAL, TrialOutcome::Unshared, what, Some(WEAK));
            return Ok(());
        }
    }
    trials.tell(
        TRIAL,
        TrialOutcome::Good,
        format!("{} times as it must be", 2 * TIMES),
    );
    Ok(())
}

/// A list of more than one page.
pub(super) fn pages(trials: &mut RunningTrials<'_>) -> Result<()> {
    const TRIAL: &str = "a long list";
    let folder = trials.name("pages");
    let [one, other] = trials.connections;
    let names: Vec<_> = (0..MANY).map(|n| format!("{folder}/{n:04}")).collect();
    std::thread::scope(|scope| {
        let puts: Vec<_> = names
            .chunks(MANY.div_ceil(AT_ONCE))
            .map(|some| {
                scope.spawn(move || {
                    some.iter()
                        .try_for_each(|name| ObjectStore::put(one, name, &[]))
                })
            })
            .collect();
        let mut joined = puts.into_iter().map(|put| put.join());
        joined.try_for_each(|put| put.expect("who puts does not panic"))
    })?;
    let listed = Client::list(other, &folder)?
        .into_iter()
        .map(|(name, _)| name);
    if listed.eq(names.iter().cloned()) {
        trials.tell(
            TRIAL,
            TrialOutcome::Good,
            format!("{MANY} names, each once"),
        )
    } else {
        trials.tell(
            TRIAL,
            TrialOutcome::Bad,
            format!("not the {MANY} names that were put"),
        )
    }
    one.delete_all(&names)?;
    if Client::list(other, &folder)?.is_empty() {
        Ok(())
    } else {
        let what = "objects that were removed together are listed";
        trials.tell(TRIAL, TrialOutcome::Bad, what);
        Ok(())
    }
}
