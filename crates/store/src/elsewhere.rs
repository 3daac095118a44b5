//! Where chunks are that their own container and the index do not give.
//!
//! What always holds: all containers are listed and their tables read once a session, whatever the number of chunks that are asked for; what
//! is kept of it is a filter of all chunks, of some KiB a container. A chunk that is nowhere costs a look at the filter; one that is
//! somewhere is most often in the container where the one before it was, and tables are searched for the rest.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_index::Filter;
use onefold_index::filters::BlockedBloom;

use crate::Result;
use crate::reader::Opened;
use crate::repository::Shared;

/// Of the filter for each container: two bytes a chunk where it holds 4,000, and then the filter errs about one in a thousand chunks.
const FILTER_BYTES_A_CONTAINER: usize = 8 << 10;
/// 50 million chunks have ten bits each: it errs about one in a hundred.
const FILTER_BYTES_MAX: usize = 64 << 20;

/// What is known of all containers.
pub struct Elsewhere {
    listed: Vec<ContainerId>,
    chunks: BlockedBloom,
    /// Where a chunk was found last.
    last: Option<ContainerId>,
}

impl Elsewhere {
    /// Lists all containers and reads their tables. Those that cannot be read hold nothing that could be found.
    pub fn survey(shared: &Shared) -> Result<Self> {
        let listed = shared.containers()?;
        let bytes = (listed.len().max(1) * FILTER_BYTES_A_CONTAINER).min(FILTER_BYTES_MAX);
        let mut chunks = BlockedBloom::with_bytes(bytes, bytes as u64 / 2)?;
        let mut readable = Vec::with_capacity(listed.len());
        for id in listed {
            let Ok(opened) = Opened::read(shared, id) else {
                continue;
            };
            let held: Vec<Fingerprint> =
                opened.table.chunks.iter().map(|(held, _)| *held).collect();
            chunks.insert(&held)?;
            readable.push(id);
        }
        Ok(Self {
            listed: readable,
            chunks,
            last: None,
        })
    }

    /// The container of a chunk: the first that `holds` it.
    pub fn find(
        &mut self,
        fingerprint: &Fingerprint,
        mut holds: impl FnMut(ContainerId) -> bool,
    ) -> Result<Option<ContainerId>> {
        let mut maybe = [false];
        self.chunks.may_contain(&[*fingerprint], &mut maybe)?;
        if !maybe[0] {
            return Ok(None);
        }
        if let Some(last) = self.last.filter(|last| holds(*last)) {
            return Ok(Some(last));
        }
        let found = self.listed.iter().copied().find(|id| holds(*id));
        self.last = found.or(self.last);
        Ok(found)
    }
}
