//! Lists for people: containers with their sizes, and sessions at work.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::ErrorKind;

use crate::container::StreamKind;
use crate::container::opened::Opened;
use crate::registry::PinInfo;
use crate::repository::{Repository, warn_of_loss};
use crate::{Error, Result};

/// Contents of a container: their kind, and the chunks with their lengths in bytes.
pub type Contents = (StreamKind, Vec<(Fingerprint, u32)>);

impl Repository {
    /// All containers with their bytes as stored, sorted; without those of a folder that the device does not list.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the folder of all is missing; [`Error::Io`] where it cannot be listed.
    pub fn containers(&self) -> Result<Vec<(ContainerId, u64)>> {
        self.shared.container_lengths_past(&mut warn_of_loss)
    }

    /// Returns the kind of a container's content, and its chunks with their lengths in bytes, in the container's order;
    /// `None` where it is gone.
    ///
    /// # Errors
    /// Damage ([`Error::is_damage`]) or another version's container ([`Error::is_other_version`]), when it was read
    /// twice; [`Error::Io`] where the device does not give it.
    pub fn contents_of(&self, container: ContainerId) -> Result<Option<Contents>> {
        match Opened::read(&self.shared, container) {
            Ok(opened) => Ok(Some((opened.header.stream, opened.table.chunks))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The sessions that run now; none is known of where the repository may not be written.
    ///
    /// # Errors
    /// [`Error::Io`]: their folder cannot be listed, or a session's lock not be asked for.
    pub fn sessions(&self) -> Result<Vec<PinInfo>> {
        match self.shared.place.registry.living() {
            Err(Error::Io(error)) if error.kind == ErrorKind::Denied => Ok(Vec::new()),
            living => Ok(living?.into_iter().map(|session| session.info).collect()),
        }
    }
}
