//! The devices that a server offers, by name.

use std::sync::Arc;

use onefold_volume::BlockDevice;

/// Devices by name. The first one is also served under the empty name, which clients without a name send.
#[derive(Clone)]
pub struct Exports(Vec<Arc<dyn BlockDevice>>);

impl Exports {
    /// `devices`, each under the name in its geometry.
    pub fn new(devices: Vec<Arc<dyn BlockDevice>>) -> Self {
        Self(devices)
    }

    /// The device of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn BlockDevice>> {
        match name {
            "" => self.0.first(),
            name => self.0.iter().find(|device| device.geometry().name == name),
        }
    }

    /// All devices.
    pub fn all(&self) -> &[Arc<dyn BlockDevice>] {
        &self.0
    }
}
