//! Marks of the chunks that roots refer to, each with the container where it is now.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};

use crate::reader::ChunkReader;
use crate::repository::Repository;
use crate::roots::{RootId, Roots, Seen};
use crate::sweep::marks::MarkOrigin;
use crate::sweep::twins::Twins;
use crate::{ChunkRef, Error, Result};

/// Takes a mark: container, chunk, and how the reference came there.
pub type Taker<'a> = dyn FnMut(ContainerId, &Fingerprint, MarkOrigin) -> Result<()> + 'a;

/// Marks from roots, with the containers that are there and those that may go.
pub struct Marker<'a> {
    repository: &'a Repository,
    listed: &'a [ContainerId],
    leaving: &'a [ContainerId],
    condemned: &'a [ContainerId],
    keeps_both: bool,
    twins: Option<Twins>,
    seen: Seen,
    /// References whose chunk is in none of the listed containers, as far as the index knows.
    pub unresolved: HashMap<Fingerprint, ContainerId>,
    /// Roots that could not be read, and why.
    pub damaged: Vec<(RootId, Error)>,
}

impl<'a> Marker<'a> {
    /// `listed` and `leaving` are sorted. A reference into a container that is `leaving` is followed elsewhere where
    /// that can be.
    pub fn new(
        repository: &'a Repository,
        listed: &'a [ContainerId],
        leaving: &'a [ContainerId],
    ) -> Self {
        Self {
            repository,
            listed,
            leaving,
            condemned: &[],
            keeps_both: false,
            twins: None,
            seen: Seen::default(),
            unresolved: HashMap::new(),
            damaged: Vec::new(),
        }
    }

    /// A reference into a container that is leaving marks it there, too.
    pub fn keeping_both(self) -> Self {
        Self {
            keeps_both: true,
            ..self
        }
    }

    /// A reference is not followed from a container that is not condemned into one that is; these are sorted.
    pub fn preferring_others_than(self, condemned: &'a [ContainerId]) -> Self {
        Self { condemned, ..self }
    }

    /// Looks for containers that could be emptied.
    pub fn looking_for_twins(self) -> Self {
        let twins = Some(Twins::default());
        Self { twins, ..self }
    }

    /// The containers of which such a share could be deleted, sorted.
    pub fn twins(&mut self, share: f64) -> Result<Vec<ContainerId>> {
        self.look_up_twins()?;
        let twins = self.twins.take();
        Ok(twins.map_or(Vec::new(), |twins| twins.containers(share)))
    }

    fn look_up_twins(&mut self) -> Result<()> {
        let Some(twins) = &mut self.twins else {
            return Ok(());
        };
        let waiting = twins.waiting().iter();
        let keys: Vec<_> = waiting.map(|chunk| chunk.fingerprint).collect();
        let found = look_up(self.repository, &keys)?;
        let (listed, leaving) = (self.listed, self.leaving);
        twins.found(&found, |id| {
            listed.binary_search(id).is_ok() && leaving.binary_search(id).is_err()
        });
        Ok(())
    }

    /// Gives `mark` the marks of one root, if it is there: `false` where it was removed. A root that cannot be had is
    /// put down in `damaged`; other failures end it.
    pub fn mark(
        &mut self,
        id: &RootId,
        roots: &dyn Roots,
        reader: &mut ChunkReader,
        mark: &mut Taker<'_>,
    ) -> Result<bool> {
        if roots.is_left_out(id) {
            return Ok(true);
        }
        self.mark_from(id, self.repository.root(id), roots, reader, mark)
    }

    /// Marks from a root that a reader holds and that is forgotten.
    pub fn mark_held(
        &mut self,
        id: &RootId,
        roots: &dyn Roots,
        reader: &mut ChunkReader,
        mark: &mut Taker<'_>,
    ) -> Result<bool> {
        self.mark_from(id, self.repository.held_root(id), roots, reader, mark)
    }

    fn mark_from(
        &mut self,
        id: &RootId,
        root: Result<Vec<u8>>,
        roots: &dyn Roots,
        reader: &mut ChunkReader,
        mark: &mut Taker<'_>,
    ) -> Result<bool> {
        let root = match root {
            Ok(root) => root,
            // Forgotten since it was listed.
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) if error.is_unusable() => {
                self.damaged.push((*id, error));
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let mut seen = std::mem::take(&mut self.seen);
        let mut wandering = Vec::new();
        let outcome = roots.for_each_ref(id, &root, reader, &mut seen, &mut |chunk| {
            if self.stays(&chunk.container) {
                mark(chunk.container, &chunk.fingerprint, MarkOrigin::Direct)?;
                let twins = self.twins.as_mut();
                return if twins.is_some_and(|twins| twins.meet(chunk)) {
                    self.look_up_twins()
                } else {
                    Ok(())
                };
            }
            wandering.push(*chunk);
            if wandering.len() >= 512 {
                self.follow(&mut wandering, mark)
            } else {
                Ok(())
            }
        });
        self.seen = seen;
        self.follow(&mut wandering, mark)?;
        match outcome {
            Err(error) if error.is_unusable() => {
                match self.repository.root(id) {
                    // Forgotten while it was read, and swept where no pin keeps that off.
                    Err(gone) if gone.is_not_found() => return Ok(false),
                    _ => self.damaged.push((*id, error)),
                }
            }
            other => other?,
        }
        Ok(true)
    }

    /// Whether a reference into the container is not followed elsewhere.
    fn stays(&self, id: &ContainerId) -> bool {
        let is_in = |ids: &[ContainerId]| ids.binary_search(id).is_ok();
        is_in(self.listed) && !is_in(self.leaving)
    }

    /// Asks the index where chunks are whose containers are gone or leaving.
    fn follow(&mut self, wandering: &mut Vec<ChunkRef>, mark: &mut Taker<'_>) -> Result<()> {
        let keys: Vec<_> = wandering.iter().map(|chunk| chunk.fingerprint).collect();
        let found = look_up(self.repository, &keys)?;
        for (chunk, found) in wandering.drain(..).zip(found) {
            let there = |id: &ContainerId| self.listed.binary_search(id).is_ok();
            let named = Some(chunk.container).filter(there);
            let found = found.map(|location| location.container).filter(there);
            let is_condemned = |id: &ContainerId| self.condemned.binary_search(id).is_ok();
            let is_better = |id: &ContainerId| {
                named.is_none_or(|named| is_condemned(&named) || !is_condemned(id))
            };
            let elsewhere = found.filter(|id| *id != chunk.container && is_better(id));
            let mut mark = |id, way| mark(id, &chunk.fingerprint, way);
            match (named, elsewhere) {
                (Some(named), None) => mark(named, MarkOrigin::Direct)?,
                (Some(named), Some(elsewhere)) if self.keeps_both => {
                    mark(named, MarkOrigin::Direct)?;
                    mark(elsewhere, MarkOrigin::Direct)?;
                }
                (_, Some(elsewhere)) => mark(elsewhere, MarkOrigin::Followed)?,
                (None, None) => {
                    self.unresolved.insert(chunk.fingerprint, chunk.container);
                }
            }
        }
        Ok(())
    }
}

/// Where the index says that the chunks are.
fn look_up(repository: &Repository, keys: &[Fingerprint]) -> Result<Vec<Option<Location>>> {
    let mut found = vec![None; keys.len()];
    let shared = &repository.shared;
    shared.look_up(keys, &mut found)?;
    Ok(found)
}
