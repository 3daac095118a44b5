//! The devices that a server offers, by name.

use std::sync::Arc;

use onefold_volume::BlockDevice;

use crate::hinted;

/// Knows the devices that there are at a moment: volumes and snapshots come and go while they are served.
pub trait DeviceList: Send + Sync {
    /// The names of all. The first one is also served under the empty name, which clients without a name send.
    fn names(&self) -> Vec<String>;

    /// The device of this name; it is in use as long as somebody has it.
    fn device(&self, name: &str) -> Option<Arc<dyn BlockDevice>>;
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
