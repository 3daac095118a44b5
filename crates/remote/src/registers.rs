//! Registers as objects: a version is an object's entity tag, and a conditional request compares it.

use bytes::Bytes;
use object_store::{PutMode, UpdateVersion};
use onefold_io::ErrorKind;
use onefold_store::objects::OBJECT_BYTES_MAX;
use onefold_store::registry::registers::{Expect, Register, Registers, Version};
use onefold_store::{Error, Result};

use crate::answer::{self, Failure};
use crate::client::Client;

/// The folder of locks' registers.
pub(crate) const LOCK_FOLDER: &str = "locks";

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

    /// No two writes have the same bytes, so what stands there after an answer that was lost tells whether it was done.
    fn write(&self, name: &str, expect: &Expect, bytes: &[u8]) -> Result<Version> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut patience = self.patience();
        loop {
            let (failure, words) = match Client::put(self, name, &bytes, mode(expect)) {
                Ok(tag) => return tag.map(Version).ok_or_else(|| without_tag(name)),
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

fn without_tag(name: &str) -> Error {
    let what = "the store names no version of it: it cannot be shared";
    onefold_io::Error::new("swap", name, ErrorKind::Device, what).into()
}
