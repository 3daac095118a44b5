//! Registers as objects: a version is an object's entity tag, and a conditional request compares it.
//!
//! Invariant: the bytes and the version that a reading gives belong together. A server that keeps tags apart from
//! bytes (versitygw with `--sidecar`) may answer with the tag of a write that is under way and the bytes before it; a
//! swap on that tag would undo the write. Nearly all stores use the MD5 of the bytes as tag, which shows such an
//! answer.

use bytes::Bytes;
use object_store::{PutMode, UpdateVersion};
use onefold_io::ErrorKind;
use onefold_store::objects::OBJECT_BYTES_MAX;
use onefold_store::registry::registers::{Expect, Register, Registers, Version};
use onefold_store::{Error, Result};

use crate::answer::{self, Failure};
use crate::client::Client;

/// Readings after which a tag that is not the MD5 of its bytes counts as another kind of tag. With the pauses between
/// them this is some seconds, and a write takes milliseconds.
const READINGS_MAX: usize = 6;

fn mode(expect: &Expect) -> PutMode {
    match expect {
        Expect::Absent => PutMode::Create,
        Expect::Version(Version(tag)) => PutMode::Update(UpdateVersion {
            e_tag: Some(tag.clone()),
            version: None,
        }),
    }
}

impl Registers for Client {
    fn read(&self, name: &str) -> Result<Option<Register>> {
        let mut patience = self.patience();
        let mut readings = 1;
        loop {
            let Some(found) = self.read_once(name)? else {
                return Ok(None);
            };
            if self.tags.fit(&found.version.0, &found.bytes) {
                self.tags.note(&found.version.0, &found.bytes);
                return Ok(Some(found));
            }
            if readings == READINGS_MAX || !patience.wait(0) {
                self.tags.note(&found.version.0, &found.bytes);
                return Ok(Some(found));
            }
            readings += 1;
            tracing::info!("read {name}: its version and its bytes do not fit: read again");
        }
    }

    /// No two writes have the same bytes, so what stands there after an answer that was lost tells whether it was done.
    fn write(&self, name: &str, expect: &Expect, bytes: &[u8]) -> Result<Version> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut patience = self.patience();
        loop {
            let (failure, words) = match Client::put(self, name, bytes.clone(), mode(expect)) {
                Ok(tag) => {
                    let tag = tag.ok_or_else(|| without_tag(name))?;
                    self.tags.note(&tag, &bytes);
                    return Ok(Version(tag));
                }
                Err(failed) => failed,
            };
            let asked_s = match failure {
                Failure::NoAnswer(asked_s) => asked_s,
                Failure::Conflict => 0,
                // Some stores say of an object that is gone that it is not there.
                Failure::Missing => {
                    return Err(answer::error("swap", name, Failure::Taken, words));
                }
                _ => return Err(answer::error("swap", name, failure, words)),
            };
            if !patience.wait(asked_s) {
                return Err(answer::error("swap", name, Failure::NoAnswer(0), words));
            }
            match (Registers::read(self, name)?, expect) {
                (Some(found), _) if found.bytes == bytes => return Ok(found.version),
                (Some(found), Expect::Version(version)) if found.version == *version => {}
                (None, Expect::Absent) => {}
                _ => return Err(answer::error("swap", name, Failure::Taken, words)),
            }
            tracing::info!("swap {name}: {words}: tried again");
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let found = Client::list(self, folder)?.into_iter();
        Ok(found.map(|(name, _)| name).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        Client::delete(self, name)
    }
}

impl Client {
    /// The register as one request finds it, whether its version and its bytes fit or not.
    pub(crate) fn read_once(&self, name: &str) -> Result<Option<Register>> {
        let (bytes, about) = match Client::get(self, name, None, OBJECT_BYTES_MAX) {
            Err(error) if error.is_not_found() => return Ok(None),
            got => got?,
        };
        let age_s = self.traffic.age_s(about.last_modified.timestamp());
        let version = Version(about.e_tag.ok_or_else(|| without_tag(name))?);
        Ok(Some(Register {
            bytes,
            version,
            age_s,
        }))
    }
}

fn without_tag(name: &str) -> Error {
    let what = "the store names no version of it: it cannot be shared";
    onefold_io::Error::new("swap", name, ErrorKind::Device, what).into()
}
