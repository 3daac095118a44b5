//! Chunkers of a backup: one for each reader, and for the chunker that learns from the data (`fbc`) the sketch of what
//! earlier backups have learnt.
//!
//! Invariant: a sketch is advice. A sketch that is damaged, is gone or cannot be kept causes a warning and costs
//! deduplication only.

use onefold_chunk::Chunker;
use onefold_chunk::fbc::SharedFbc;
use onefold_chunk::tar::Tar;
use onefold_store::Repository;

use super::Options;
use crate::{Events, Result};

/// The chunkers of one backup.
pub struct Cutting<'a> {
    repository: &'a Repository,
    options: &'a Options,
    /// The table that all readers share, where the repository's chunker learns.
    learning: Option<Learning>,
}

struct Learning {
    table: SharedFbc,
    /// Whether the repository holds the sketch that the table began with.
    is_kept: bool,
}

impl<'a> Cutting<'a> {
    /// Begins with the repository's sketch, which is read outside of the session: a sketch that another backup puts
    /// meanwhile is as good.
    pub fn begin(
        repository: &'a Repository,
        options: &'a Options,
        events: &dyn Events,
    ) -> Result<Self> {
        let config = repository.config();
        let table = match options.chunk_rules {
            None => onefold_chunk::learning(&config.chunker, config.chunk_bytes_mean as usize)
                .map_err(|error| onefold_store::Error::Option(error.to_string()))?,
            Some(_) => None,
        };
        let learning = match table {
            Some(table) => Some(learning(repository, table, events)?),
            None => None,
        };
        Ok(Self {
            repository,
            options,
            learning,
        })
    }

    /// Makes a chunker for one reader.
    pub fn chunker(&self) -> Result<Box<dyn Chunker>> {
        let repository = self.repository;
        let chunker = match (&self.options.chunk_rules, &self.learning) {
            (Some(rules), _) => repository.context_chunker(rules)?,
            (None, Some(learning)) => Box::new(learning.table.clone()),
            (None, None) => repository.chunker()?,
        };
        // The chunker `context` goes by file types, and recognises tars itself.
        let knows_tars = repository.config().chunker == "context";
        Ok(match self.options.tars.filter(|_| !knows_tars) {
            Some(tars) => Box::new(Tar::new(chunker, tars)),
            None => chunker,
        })
    }

    /// Keeps the sketch for the next backup. The session must not have ended.
    pub fn keep(&self, events: &dyn Events) {
        let Some(Learning { table, is_kept }) = &self.learning else {
            return;
        };
        if *is_kept && table.bytes_done() == 0 {
            return;
        }
        if let Err(error) = self.repository.put_sketch(&table.sketch()) {
            let what = format!(
                "the sketch of frequent segments cannot be kept, so the next backup may find fewer duplicates: {error}"
            );
            events.warning(b"", &what);
        }
    }
}

/// Fills the empty `table` from the repository's sketch; where that is not possible, the table stays empty.
fn learning(repository: &Repository, table: SharedFbc, events: &dyn Events) -> Result<Learning> {
    let why = match repository.sketch() {
        Ok(Some(sketch)) => match table.clone().knowing(&sketch) {
            Ok(table) => {
                return Ok(Learning {
                    table,
                    is_kept: true,
                });
            }
            Err(error) => Some(error.to_string()),
        },
        // Before the first backup nothing can have been learnt.
        Ok(None) if repository.roots()?.is_empty() => None,
        Ok(None) => Some("it is not there".into()),
        // A sketch of another version must not be replaced.
        Err(error) if error.is_other_version() => return Err(error.into()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = why {
        let what = format!(
            "the sketch of frequent segments cannot be used, so a new one is begun and fewer duplicates may be found: {why}"
        );
        events.warning(b"", &what);
    }
    Ok(Learning {
        table,
        is_kept: false,
    })
}
