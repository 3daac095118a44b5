//! What there is, for people who look: containers with their sizes, and who is at work.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::ErrorKind;

use crate::opened::Opened;
use crate::pin::{self, PinInfo};
use crate::repository::Repository;
use crate::{Error, Result, container};

impl Repository {
    /// All containers with their bytes as stored, sorted.
    pub fn containers(&self) -> Result<Vec<(ContainerId, u64)>> {
        let listed = self.shared.objects.list("containers")?;
        let mut all: Vec<_> = listed
            .iter()
            .filter_map(|(name, len)| Some((container::id_of_object(name)?, *len)))
            .collect();
        all.sort_unstable();
        Ok(all)
    }

    /// The chunks of a container with their lengths in bytes, as they stand in it.
    pub fn chunks_of(&self, container: ContainerId) -> Result<Vec<(Fingerprint, u32)>> {
        Ok(Opened::read(&self.shared, container)?.table.chunks)
    }

    /// The sessions that run now; none is known of where the repository may not be written.
    pub fn sessions(&self) -> Result<Vec<PinInfo>> {
        match pin::living(&*self.shared.root) {
            Err(Error::Io(error)) if error.kind == ErrorKind::Denied => Ok(Vec::new()),
            living => Ok(living?.into_iter().map(|(_, info)| info).collect()),
        }
    }
}
