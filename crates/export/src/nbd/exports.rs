//! The devices that a server offers, by name.

use std::ops::Range;
use std::sync::Arc;

use onefold_volume::BlockDevice;
use onefold_volume::depot::Comparison;

use crate::hinted;

/// Knows the devices that there are at a moment: volumes and snapshots come and go while they are served.
pub trait DeviceList: Send + Sync {
    /// The names of all. The first one is also served under the empty name, which clients without a name send.
    fn names(&self) -> Vec<String>;

    /// The device of this name; it is in use as long as somebody has it.
    fn device(&self, name: &str) -> Option<Arc<dyn BlockDevice>>;

    /// How the device of this name differs from another one; `None` where nobody can tell. Both are in use as long as
    /// somebody has the answer.
    fn compare(&self, name: &str, base: &str) -> Option<Arc<dyn Differences>> {
        let _ = (name, base);
        None
    }
}

/// How a device differs from a base: what the metadata context `onefold:changed:BASE` tells.
pub trait Differences: Send + Sync {
    /// Calls `visit` for each stretch of `range` (bytes), in order and without gaps, with whether its bytes may differ,
    /// until it gives `false`.
    ///
    /// # Errors
    /// The metadata cannot be read.
    fn visit(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, bool) -> bool,
    ) -> onefold_volume::Result<()>;
}

impl Differences for Comparison {
    fn visit(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, bool) -> bool,
    ) -> onefold_volume::Result<()> {
        Comparison::visit(self, range, visit)
    }
}

/// Devices by name.
#[derive(Clone)]
pub struct Exports(Arc<dyn DeviceList>);

impl Exports {
    /// `devices`, each under the name in its geometry.
    pub fn new(devices: Vec<Arc<dyn BlockDevice>>) -> Self {
        Self(Arc::new(FixedExports(devices)))
    }

    /// The devices that a catalog has whenever a client asks.
    pub fn of(catalog: Arc<dyn DeviceList>) -> Self {
        Self(catalog)
    }

    /// The device of this name; with hints behind it, `NAME#nodedup`, every request has them.
    pub fn find(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let hinted = || {
            let (name, hints) = hinted::part(name)?;
            Some(hinted::with_hints(self.find_plain(name)?, hints))
        };
        self.find_plain(name).or_else(hinted)
    }

    /// How the export `name` differs from `base`, a device or a snapshot of the same volume: `main@b` and `main@a`, or
    /// `a` for short.
    pub fn compare(&self, name: &str, base: &str) -> Option<Arc<dyn Differences>> {
        let name = hinted::part(name).map_or(name, |(name, _)| name);
        let volume = name.split('@').next().unwrap_or_default();
        let full = format!("{volume}@{base}");
        let found = self.0.compare(name, &full);
        found.or_else(|| self.0.compare(name, base))
    }

    fn find_plain(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        match name {
            "" => self.0.device(self.names().first()?),
            name => self.0.device(name),
        }
    }

    /// The names of all devices.
    pub fn names(&self) -> Vec<String> {
        self.0.names()
    }
}

/// Devices that are always there.
struct FixedExports(Vec<Arc<dyn BlockDevice>>);

impl DeviceList for FixedExports {
    fn names(&self) -> Vec<String> {
        let names = self.0.iter().map(|device| device.geometry().name);
        names.collect()
    }

    fn device(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let is_it = |device: &&Arc<dyn BlockDevice>| device.geometry().name == name;
        self.0.iter().find(is_it).cloned()
    }
}
