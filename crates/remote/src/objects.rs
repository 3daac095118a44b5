//! Objects of a repository in a bucket.
//!
//! A folder that was made is an empty object, `<folder>/.made`. Where a listing of containers or snapshots has neither
//! that nor anything else, the prefix was emptied: that is damage, so nobody takes what was in the folder for deleted.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{GetRange, ObjectMeta, PutMode, PutPayload};
use onefold_io::ErrorKind;
use onefold_store::objects::{OBJECT_BYTES_MAX, ObjectStore};
use onefold_store::slots::SLOT_FOLDER;
use onefold_store::{CONTAINER_FOLDER, Error, ROOT_FOLDER, Result};

use crate::SINGLE_WRITER_OBJECT;
use crate::answer::{self, Failure};
use crate::client::{Client, LOCK_FOLDER};
use crate::doctor::DOCTOR_FOLDER;

/// Object that marks a folder as made.
const MADE: &str = "/.made";
/// Bytes of an object that are compared to know whose it is: a container's header with its random salt, and a small
/// object whole.
const OWN_BYTES: usize = 1024;

/// Bytes that a request sends, and their owner takes back.
struct LentBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Client {
    /// Whether what stands under the name now are these bytes; `None` where nothing does.
    fn holds(&self, name: &str, bytes: &PutPayload) -> Result<Option<bool>> {
        let parts = bytes.iter().flat_map(|part| part.iter());
        let own: Vec<u8> = parts.take(OWN_BYTES).copied().collect();
        let mut found = vec![0; own.len()];
        let len = match self.head(name) {
            Err(error) if error.is_not_found() => return Ok(None),
            about => about?.size,
        };
        if len != bytes.content_length() as u64 {
            return Ok(Some(false));
        }
        if own.is_empty() {
            Ok(Some(true))
        } else {
            match self.get_into(name, 0, &mut found) {
                Err(error) if error.is_not_found() => Ok(None),
                read => read.map(|()| Some(found == own)),
            }
        }
    }

    /// Puts an object under a free name. An attempt without an answer may have been done, or be done later. So what
    /// refuses the next attempt may be this object: then it is read back.
    fn put_once(&self, name: &str, bytes: &PutPayload) -> Result<()> {
        let mut patience = self.patience();
        let mut may_be_there = false;
        loop {
            let (failure, words) = match Client::put(self, name, bytes.clone(), PutMode::Create) {
                Ok(_) => return Ok(()),
                Err(failed) => failed,
            };
            let asked_s = match failure {
                Failure::Taken if may_be_there && self.holds(name, bytes)? == Some(true) => {
                    return Ok(());
                }
                Failure::NoAnswer(asked_s) => asked_s,
                Failure::Conflict => 0,
                _ => return Err(answer::error("write", name, failure, words)),
            };
            may_be_there = true;
            if !patience.wait(asked_s) {
                // A last look: it may be there although no answer came.
                return match self.holds(name, bytes) {
                    Ok(Some(true)) => Ok(()),
                    _ => Err(answer::error("write", name, Failure::NoAnswer(0), words)),
                };
            }
            tracing::info!("write {name}: {words}: tried again");
        }
    }

    /// Lists the objects below `folder`, without the mark that it was made.
    fn list_made(&self, folder: &str) -> Result<Vec<(String, ObjectMeta)>> {
        let mut found = self.list(folder)?;
        let all = found.len();
        found.retain(|(name, _)| !name.ends_with(MADE));
        let was_made = found.len() < all;
        let is_of_init = [CONTAINER_FOLDER, ROOT_FOLDER].contains(&folder);
        let made = format!("{folder}{MADE}");
        if found.is_empty() && !was_made {
            let words = format!("it does not have {made}");
            return Err(answer::error("list", folder, Failure::Missing, words));
        }
        if is_of_init && !was_made {
            self.mend_made(folder, &made)?;
        }
        Ok(found)
    }

    /// Looks why a list that has objects in it lacks `made`, which comes before them: either that was deleted, as tools
    /// do with empty objects, and is put again, or the list is not what is there.
    fn mend_made(&self, folder: &str, made: &str) -> Result<()> {
        match self.head(made) {
            Err(error) if error.is_not_found() => {
                tracing::info!("{made} is missing, and {folder} is not empty: it is put again");
                // A user who may only read does without.
                let _ = ObjectStore::put(self, made, &[]);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => {
                let words = format!("the list lacks {made}, which is there: it is not complete");
                Err(answer::error("list", folder, Failure::NoPlace, words))
            }
        }
    }
}

impl ObjectStore for Client {
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let bytes = PutPayload::from(parts.concat());
        self.ask("write", name, || {
            Client::put(self, name, bytes.clone(), PutMode::Overwrite)
        })?;
        Ok(())
    }

    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.put_once(name, &parts.concat().into())
    }

    fn put_long_if_absent(&self, name: &str, long: Vec<u8>, tail: &[u8]) -> (Vec<u8>, Result<()>) {
        let long = Arc::new(long);
        let shared = Bytes::from_owner(LentBytes(Arc::clone(&long)));
        let parts = [shared, Bytes::copy_from_slice(tail)];
        let done = self.put_once(name, &parts.into_iter().collect());
        // An attempt that was given up may still hold it.
        let long = Arc::try_unwrap(long).unwrap_or_else(|long| long.to_vec());
        (long, done)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        let bytes_max = if name.starts_with(CONTAINER_FOLDER) {
            u64::MAX
        } else {
            OBJECT_BYTES_MAX
        };
        Ok(Client::get(self, name, None, bytes_max)?.0)
    }

    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            self.head(name).map(drop)
        } else {
            self.get_into(name, offset, buf)
        }
    }

    fn get_tail(&self, name: &str, bytes_max: usize) -> Result<(Vec<u8>, u64)> {
        if bytes_max == 0 {
            return Ok((Vec::new(), self.len(name)?));
        }
        let tail = GetRange::Suffix(bytes_max as u64);
        match Client::get(self, name, Some(tail), bytes_max as u64) {
            // An empty object has no tail.
            Err(Error::Io(error)) if error.kind == ErrorKind::Short => {
                Ok((Vec::new(), self.len(name)?))
            }
            other => other.map(|(tail, about)| (tail, about.size)),
        }
    }

    /// Each request reads anew.
    fn forget_cached(&self, _name: &str) {}

    fn len(&self, name: &str) -> Result<u64> {
        Ok(self.head(name)?.size)
    }

    fn list_past(
        &self,
        prefix: &str,
        _failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>> {
        let found = self.list_made(prefix)?.into_iter();
        Ok(found.map(|(name, _)| name).collect())
    }

    fn lengths_past(
        &self,
        prefix: &str,
        _failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>> {
        let found = self.list_made(prefix)?.into_iter();
        Ok(found.map(|(name, about)| (name, about.size)).collect())
    }

    fn ages(&self, prefix: &str) -> Result<Vec<(String, Option<u64>)>> {
        let found = self.list_made(prefix)?.into_iter();
        let age = |about: &ObjectMeta| self.traffic.age_s(about.last_modified.timestamp());
        Ok(found.map(|(name, about)| (name, age(&about))).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        Client::delete(self, name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        Client::delete_all(self, names)
    }

    /// Every object that is there is durable.
    fn keep(&self, _names: &[String]) -> Result<()> {
        Ok(())
    }

    fn has_folder(&self, folder: &str) -> Result<bool> {
        match self.head(&format!("{folder}{MADE}")) {
            Err(error) if error.is_not_found() => Ok(!self.list(folder)?.is_empty()),
            about => about.map(|_| true),
        }
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        ObjectStore::put(self, &format!("{folder}{MADE}"), &[])
    }

    fn left_over(&self) -> Result<Vec<String>> {
        let found = self.list("")?.into_iter().map(|(name, _)| name);
        let is_below = |name: &str, folder: &str| {
            let below = name.strip_prefix(folder);
            below.is_some_and(|below| below.starts_with('/'))
        };
        let mut slots = Vec::new();
        for name in found {
            if is_below(&name, SLOT_FOLDER) {
                slots.push(name);
            } else if !name.ends_with(MADE)
                && name != SINGLE_WRITER_OBJECT
                && !is_below(&name, LOCK_FOLDER)
                && !is_below(&name, DOCTOR_FOLDER)
            {
                return Err(Error::NotEmpty {
                    what: format!("there is \"{name}\""),
                });
            }
        }
        Ok(slots)
    }
}
