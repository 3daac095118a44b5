//! Search for chunks that neither their own container nor the index leads to.
//!
//! Invariant: all containers are listed and their tables read once a session, whatever the number of chunks that are
//! asked for; a filter of all chunks is kept of it, of some KiB a container. A chunk that is nowhere costs a look at
//! the filter; a chunk that is somewhere is most often in the container where the one before it was, and tables are
//! searched for the rest.
//! A session lists again when a container that it saw is gone: a repair moves what is good of damaged containers,
//! whoever reads them. One without a pin (a repository that it may not write) can be swept by others, too, and looks
//! again after ever more chunks that it did not find. Only containers that are new to it are read. A container that the
//! device does not give is named, tried again as often, and never passed off as one without the chunk.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_index::Filter;
use onefold_index::filters::BlockedBloom;
use onefold_io::ErrorKind;

use crate::container::opened::Opened;
use crate::repository::RepositoryState;
use crate::{Error, Result, container};

/// Bytes of the filter for each container: two bytes a chunk where a container holds 4,000, and then the filter errs
/// about once in a thousand chunks.
const FILTER_BYTES_A_CONTAINER: usize = 8 << 10;
/// 50 million chunks have ten bits each: it errs about one in a hundred.
const FILTER_BYTES_MAX: usize = 64 << 20;
/// Chunks in vain, after which it looks again at the latest.
const PATIENCE_MAX: u32 = 1024;

/// Knowledge of a session's readers about all containers.
pub struct Elsewhere {
    is_pinned: bool,
    survey: Option<Survey>,
}

impl Elsewhere {
    /// Nothing is known yet.
    pub fn new(is_pinned: bool) -> Self {
        Self {
            is_pinned,
            survey: None,
        }
    }

    /// The container of a chunk: the first that `holds` it, which says of one that is gone, damaged or not to be read
    /// why it cannot tell. With the chunk comes whether the table of a container that does not give it lists it: then
    /// it is looked for only where another does, too. `gone` is a container that was found gone.
    ///
    /// # Errors
    /// The error of the device where a container that may hold the chunk cannot be read.
    pub fn find(
        &mut self,
        shared: &RepositoryState,
        chunk: (&Fingerprint, bool),
        gone: Option<ContainerId>,
        holds: &mut dyn FnMut(ContainerId) -> Result<bool>,
    ) -> Result<Option<ContainerId>> {
        let (survey, is_fresh) = match &mut self.survey {
            Some(survey) => (survey, false),
            none => (none.insert(Survey::new(shared)?), true),
        };
        let mut search = survey.search(chunk, holds)?;
        if search.found.is_none() && !is_fresh {
            let is_swept =
                search.is_stale || gone.is_some_and(|id| survey.listed.binary_search(&id).is_ok());
            if survey.is_due(self.is_pinned, is_swept) {
                survey.look_again(shared)?;
                search = survey.search(chunk, holds)?;
            }
        }
        let unread = survey.unread.iter().chain(&survey.partial).next();
        match (search.found, search.failed, unread) {
            (Some(found), ..) => Ok(Some(found)),
            (None, Some(failed), _) => Err(failed),
            (None, None, Some(unread)) => Err(unread.error()),
            (None, None, None) => Ok(None),
        }
    }
}

/// A container that the device did not give, and why.
struct UnreadContainer {
    id: ContainerId,
    kind: ErrorKind,
    why: String,
}

impl UnreadContainer {
    fn new(id: ContainerId, error: &Error) -> Self {
        let kind = match error {
            Error::Io(error) => error.kind,
            _ => ErrorKind::Device,
        };
        let why = error.to_string();
        Self { id, kind, why }
    }

    /// Says that a chunk may be in it.
    fn error(&self) -> Error {
        let what = format!("a missing chunk may be in it: {}", self.why);
        let object = container::object_name(self.id);
        Error::Io(onefold_io::Error::new("read", object, self.kind, what))
    }
}

/// All containers, as they were when they were looked at last.
struct Survey {
    /// Containers whose tables were read, sorted.
    listed: Vec<ContainerId>,
    /// Containers whose tables are damaged: nothing can be found in them. Sorted.
    damaged: Vec<ContainerId>,
    /// Containers that the device did not give.
    unread: Vec<UnreadContainer>,
    /// Containers of `listed` that the device did not give whole.
    partial: Vec<UnreadContainer>,
    chunks: BlockedBloom,
    /// Chunks of more than one container: few, as a rule.
    repeated: BlockedBloom,
    /// Number of containers that the filter has room for.
    room: usize,
    /// Where a chunk was found last.
    last: Option<ContainerId>,
    /// Chunks that were not found since the last look, and how many make another.
    misses: u32,
    patience: u32,
}

/// Result of a search.
#[derive(Default)]
struct SearchOutcome {
    found: Option<ContainerId>,
    /// A container is gone that was there.
    is_stale: bool,
    failed: Option<Error>,
}

impl Survey {
    /// Lists all containers and reads their tables.
    fn new(shared: &RepositoryState) -> Result<Self> {
        let listed = shared.containers()?;
        let room = listed.len().max(1);
        let bytes = (room * FILTER_BYTES_A_CONTAINER).min(FILTER_BYTES_MAX);
        let mut survey = Self {
            listed: Vec::with_capacity(listed.len()),
            damaged: Vec::new(),
            unread: Vec::new(),
            partial: Vec::new(),
            chunks: BlockedBloom::with_bytes(bytes, bytes as u64 / 2)?,
            repeated: BlockedBloom::with_bytes(bytes / 8, bytes as u64 / 128)?,
            room,
            last: None,
            misses: 0,
            patience: 1,
        };
        survey.read(shared, &listed)?;
        Ok(survey)
    }

    /// Takes `ids`, which are sorted, in.
    fn read(&mut self, shared: &RepositoryState, ids: &[ContainerId]) -> Result<()> {
        for id in ids {
            let opened = match Opened::read(shared, *id) {
                Ok(opened) => opened,
                // Deleted since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) if error.is_loss() => {
                    match shared.recover(*id, &error, true) {
                        Ok(Some(left)) => {
                            self.take(*id, &left)?;
                            if error.is_unreadable() && left.loss().is_some() {
                                self.partial.push(UnreadContainer::new(*id, &error));
                            }
                        }
                        Ok(None) if error.is_damage() => self.damaged.push(*id),
                        Ok(None) => self.pass_over(*id, &error),
                        Err(error) => self.pass_over(*id, &error),
                    }
                    continue;
                }
                Err(error) => {
                    self.pass_over(*id, &error);
                    continue;
                }
            };
            self.take(*id, &opened)?;
        }
        self.listed.sort_unstable();
        self.damaged.sort_unstable();
        Ok(())
    }

    fn take(&mut self, id: ContainerId, opened: &Opened) -> Result<()> {
        let mut held: Vec<Fingerprint> =
            opened.table.chunks.iter().map(|(held, _)| *held).collect();
        let mut is_known = vec![false; held.len()];
        self.chunks.may_contain(&held, &mut is_known)?;
        self.chunks.insert(&held)?;
        let mut known = is_known.into_iter();
        held.retain(|_| known.next() == Some(true));
        self.repeated.insert(&held)?;
        self.listed.push(id);
        Ok(())
    }

    fn pass_over(&mut self, id: ContainerId, error: &Error) {
        tracing::warn!("{error}: chunks of this container are not found for now");
        self.unread.push(UnreadContainer::new(id, error));
    }

    /// Whether a chunk that was not found is reason to look again.
    fn is_due(&mut self, is_pinned: bool, is_swept: bool) -> bool {
        self.misses += 1;
        let is_tried = !is_pinned || !self.unread.is_empty();
        is_swept || is_tried && self.misses >= self.patience
    }

    /// Lists again; reads what is new, and what could not be read.
    fn look_again(&mut self, shared: &RepositoryState) -> Result<()> {
        let there = shared.containers()?;
        if there.len() > 2 * self.room {
            *self = Self::new(shared)?;
            return Ok(());
        }
        let before = self.listed.len();
        let is_there = |id: &ContainerId| there.binary_search(id).is_ok();
        self.listed.retain(is_there);
        self.damaged.retain(is_there);
        self.partial.retain(|unread| is_there(&unread.id));
        let known = |id: &ContainerId| {
            self.listed.binary_search(id).is_ok() || self.damaged.binary_search(id).is_ok()
        };
        let new: Vec<_> = there.iter().copied().filter(|id| !known(id)).collect();
        let is_changed = self.listed.len() < before || new.len() > self.unread.len();
        self.unread.clear();
        self.read(shared, &new)?;
        self.misses = 0;
        self.patience = if is_changed {
            1
        } else {
            (self.patience * 2).min(PATIENCE_MAX)
        };
        Ok(())
    }

    fn search(
        &mut self,
        (fingerprint, is_listed): (&Fingerprint, bool),
        holds: &mut dyn FnMut(ContainerId) -> Result<bool>,
    ) -> Result<SearchOutcome> {
        let mut search = SearchOutcome::default();
        let mut maybe = [false];
        let filter = if is_listed {
            &mut self.repeated
        } else {
            &mut self.chunks
        };
        filter.may_contain(&[*fingerprint], &mut maybe)?;
        if !maybe[0] {
            return Ok(search);
        }
        let mut is_in = |id: &ContainerId| match holds(*id) {
            Ok(holds) => holds,
            Err(error) if error.is_not_found() => {
                search.is_stale = true;
                false
            }
            Err(error) if error.is_damage() => false,
            Err(error) => {
                search.failed = Some(error);
                false
            }
        };
        let found = match self.last.filter(&mut is_in) {
            Some(last) => Some(last),
            None => self.listed.iter().copied().find(&mut is_in),
        };
        self.last = found.or(self.last);
        search.found = found;
        Ok(search)
    }
}
