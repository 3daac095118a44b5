//! Registers: small objects that are only changed by compare-and-swap. What object storage coordinates by.

use crate::Result;

/// Registers under slash-separated names. Each one is linearizable: a write or a reading takes effect at one moment
/// between its call and its return, and all of them in one order.
pub trait Registers: Send + Sync {
    /// Returns the register; `None` where there is none.
    ///
    /// # Errors
    /// Kind `Unavailable` where the store does not answer; failures of the device.
    fn read(&self, name: &str) -> Result<Option<Register>>;

    /// Writes the register, if it is as `expect` says. Returns its new version.
    ///
    /// # Errors
    /// Kind `Exists` where the register is not as expected: a write of the caller's own, whose answer was lost, may be
    /// the reason. Kind `Unavailable`: the register may have been written, or be written later, or never.
    fn write(&self, name: &str, expect: &Expect, bytes: &[u8]) -> Result<Version>;

    /// Names below `folder`, in order of name: all that were written before this was called and not removed.
    ///
    /// # Errors
    /// Kind `Unavailable`; failures of the device.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes a register, whatever it holds; one that is not there is no error.
    ///
    /// # Errors
    /// Kind `Unavailable`: the register may go later, or never.
    fn remove(&self, name: &str) -> Result<()>;
}

/// State of a register when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The version that these bytes have.
    pub version: Version,
    /// How long they have been there by the store's own clock, in seconds, where it has one.
    pub age_s: Option<u64>,
}

/// A version of a register, as its store names it: no two writes of one register have the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Version(pub String);

/// State that a register must have for a write to take effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expect {
    /// There is none.
    Absent,
    /// The register has this version.
    Version(Version),
}
