//! A device whose requests all have certain hints: an export that is asked for as `NAME#nodedup`.

use std::ops::Range;
use std::sync::Arc;

use onefold_volume::hints::HintKind;
use onefold_volume::{BlockDevice, Geometry, Hints, Request, Result, Visit};

/// Parts the name of an export from the hints behind it.
const HINTS_BEGIN: char = '#';

/// A device, and hints for all that it is asked for.
struct HintedDevice {
    device: Arc<dyn BlockDevice>,
    hints: Hints,
}

/// Parts `NAME#nodedup,incompressible` into the device's name and hints; `None` where the name has no hints, or others
/// than there are.
pub(crate) fn part(name: &str) -> Option<(&str, Hints)> {
    let (name, hints) = name.split_once(HINTS_BEGIN)?;
    let mut kinds = hints.split(',').map(|hint| HintKind::by_name(hint).ok());
    let hints = kinds.try_fold(Hints::default(), |hints, kind| Some(hints.with(kind?)))?;
    Some((name, hints))
}

/// Returns `device` with hints that every request has besides its own.
pub fn with_hints(device: Arc<dyn BlockDevice>, hints: Hints) -> Arc<dyn BlockDevice> {
    Arc::new(HintedDevice { device, hints })
}

impl BlockDevice for HintedDevice {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, requests: &mut Vec<Request>) {
        for request in requests.iter_mut() {
            request.hints = request.hints.or(self.hints);
        }
        self.device.submit(requests);
    }

    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        self.device.extents(range, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parted_where_all_hints_are_known() {
        let nodedup = Hints::default().with(HintKind::Nodedup);
        let both = nodedup.with(HintKind::Prefetch);
        for (name, expected) in [
            ("main", None),
            ("main#", None),
            ("main#fast", None),
            ("main#nodedup,fast", None),
            ("main#nodedup", Some(("main", nodedup))),
            ("#nodedup", Some(("", nodedup))),
            ("main@monday#prefetch,nodedup", Some(("main@monday", both))),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }
}
