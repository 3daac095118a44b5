//! References on their way to the containers that they lead to, sorted and looked up in batches.

use std::collections::HashSet;

use onefold_index::ContainerId;

use crate::container::opened::Opened;
use crate::repository::Repository;
use crate::{Error, Result};

/// References on their way to the containers that they lead to, in batches: RAM stays bounded, at the price of opening
/// a container for each batch that refers to it.
pub struct References<'a> {
    repository: &'a Repository,
    /// Containers that are known not to be readable.
    lost: &'a HashSet<ContainerId>,
    /// Container, and the beginning of a fingerprint.
    batch: Vec<(ContainerId, u64)>,
    /// Beginnings of fingerprints that lead nowhere: there are as many as there are lost chunks.
    missing: HashSet<u64>,
    /// Containers that could be read before and cannot any more.
    failed: Vec<(ContainerId, Error)>,
}

/// References of one batch: 32 MiB.
const BATCH_REFERENCES: usize = 2 << 20;

/// Results of [`References::finish`]: beginnings of the fingerprints that lead nowhere, and containers that could not
/// be read.
type Unresolved = (HashSet<u64>, Vec<(ContainerId, Error)>);

impl<'a> References<'a> {
    /// None yet; `lost` are containers that are known not to be readable.
    pub fn new(repository: &'a Repository, lost: &'a HashSet<ContainerId>) -> References<'a> {
        References {
            repository,
            lost,
            batch: Vec::new(),
            missing: HashSet::new(),
            failed: Vec::new(),
        }
    }

    /// Adds one by its container and the beginning of its fingerprint.
    pub fn add(&mut self, container: ContainerId, prefix: u64) -> Result<()> {
        self.batch.push((container, prefix));
        if self.batch.len() == BATCH_REFERENCES {
            self.settle();
            if self.batch.len() > BATCH_REFERENCES / 2 {
                self.verify()?;
            }
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.batch.sort_unstable();
        self.batch.dedup();
    }

    fn verify(&mut self) -> Result<()> {
        for references in self.batch.chunk_by(|a, b| a.0 == b.0) {
            let id = references[0].0;
            let prefixes = references.iter().map(|(_, prefix)| *prefix);
            let has_failed = |(failed, _): &(ContainerId, Error)| *failed == id;
            if self.lost.contains(&id) || self.failed.iter().any(has_failed) {
                self.missing.extend(prefixes);
                continue;
            }
            match Opened::read(&self.repository.shared, id) {
                Ok(opened) => self
                    .missing
                    .extend(prefixes.filter(|prefix| !opened.holds_prefix(*prefix))),
                // Swept since it was listed.
                Err(error) if error.is_not_found() => {}
                Err(error) if error.is_unusable() => {
                    self.missing.extend(prefixes);
                    self.failed.push((id, error));
                }
                Err(error) => return Err(error),
            }
        }
        self.batch.clear();
        Ok(())
    }

    /// Looks for the last of them.
    pub fn finish(mut self) -> Result<Unresolved> {
        self.settle();
        self.verify()?;
        Ok((self.missing, self.failed))
    }
}
