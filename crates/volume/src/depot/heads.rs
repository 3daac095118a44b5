//! Volumes and snapshots of a depot, by their names.

use super::{Depot, Head, data};
use crate::heads::HEADS_MAX;
use crate::{Error, HeadChange, HeadInfo, Result};

impl Depot {
    /// All volumes and snapshots, by age. Waits for nobody.
    pub fn heads(&self) -> Vec<Head> {
        self.heads.read().clone()
    }

    /// The head of this name; without a name, the volume that was made first.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names that there are.
    pub fn head(&self, name: Option<&str>) -> Result<Head> {
        let heads = self.heads.read();
        let is_it = |head: &&Head| match name {
            Some(name) => head.name == name,
            None => head.is_writable,
        };
        heads.iter().find(is_it).cloned().ok_or_else(|| {
            let names: Vec<&str> = heads.iter().take(20).map(|head| &*head.name).collect();
            let wanted = name.unwrap_or("volume");
            Error::Invalid {
                what: format!("the depot has no {wanted}; it has: {}", names.join(", ")),
            }
        })
    }

    /// Keeps what a volume holds now as the snapshot `volume@name`: everything that was answered before.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such volume; [`Error::Exists`]; [`Error::Unsupported`] of a backend that keeps
    /// one volume alone; [`Error::NoSpace`] in the folder; a device failed.
    pub fn snapshot(&self, volume: Option<&str>, name: &str, now: u64) -> Result<Head> {
        let volume = self.head(volume)?;
        if !volume.is_writable {
            return Err(Error::Invalid {
                what: format!("{} is a snapshot: clone it first", volume.name),
            });
        }
        self.change(&HeadChange::Copy {
            from: volume.id,
            name: format!("{}@{name}", volume.name),
            is_writable: false,
            created: now,
        })
    }

    /// Makes a volume that holds what a snapshot or another volume holds now.
    ///
    /// # Errors
    /// As of [`snapshot`](Self::snapshot).
    pub fn clone_head(&self, from: &str, name: &str, now: u64) -> Result<Head> {
        self.change(&HeadChange::Copy {
            from: self.head(Some(from))?.id,
            name: name.to_owned(),
            is_writable: true,
            created: now,
        })
    }

    /// Makes a volume of zeros; its size is rounded up to whole chunks.
    ///
    /// # Errors
    /// As of [`snapshot`](Self::snapshot).
    pub fn create_volume(&self, name: &str, bytes: u64, now: u64) -> Result<Head> {
        self.change(&HeadChange::Create {
            name: name.to_owned(),
            lbns: self.lbns_of(bytes)?,
            created: now,
        })
    }

    /// Deletes a volume or snapshot. What others share with it stays.
    ///
    /// # Errors
    /// [`Error::Held`]: somebody uses it. As of [`snapshot`](Self::snapshot).
    pub fn delete_head(&self, name: &str) -> Result<Head> {
        let head = self.head(Some(name))?;
        let change = HeadChange::Delete { head: head.id };
        match self.change(&change) {
            Err(Error::Held { .. }) => Err(Error::Held {
                place: format!("{name} is attached or served to a client: it"),
            }),
            done => done.map(|_| head),
        }
    }

    /// Makes a volume larger, also while it is in use; the new size is rounded up to whole chunks.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it would become smaller. As of [`snapshot`](Self::snapshot).
    pub fn grow_volume(&self, volume: Option<&str>, bytes: u64) -> Result<Head> {
        let head = self.head(volume)?.id;
        let lbns = self.lbns_of(bytes)?;
        self.change(&HeadChange::Grow { head, lbns })
    }

    /// Stores up to `bytes` of chunks from now on, also while the depot is in use. A data file is made longer; a data
    /// device must be longer already. Returns the new capacity: whole zones.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it would become smaller, or the device is shorter. [`Error::Unsupported`] of other backends
    /// than `log`; [`Error::NoSpace`] in the folder; a device failed.
    pub fn grow_capacity(&self, bytes: u64) -> Result<u64> {
        let capacity = self.front.space().total * u64::from(self.config.chunk_bytes);
        let longest = super::config::BYTES_MAX;
        if self.config.engine == super::EngineKind::Log && (capacity..=longest).contains(&bytes) {
            data::grow(&*self.folder, &self.devices, &self.config, bytes)?;
        }
        self.front.grow_device(bytes)
    }

    fn lbns_of(&self, bytes: u64) -> Result<u64> {
        let lbns = bytes.div_ceil(u64::from(self.config.chunk_bytes));
        if (1..=super::config::BYTES_MAX).contains(&bytes) {
            Ok(lbns)
        } else {
            Err(Error::Invalid {
                what: format!("a volume of {bytes} bytes, where 1 to 2^50 are expected"),
            })
        }
    }

    /// Carries a change out, and returns the head that it is about, which may be gone.
    fn change(&self, change: &HeadChange) -> Result<Head> {
        let id = self.front.change_heads(change)?;
        let before = self.heads();
        let all = known_heads(self.front.heads()?, &self.config);
        let found = all
            .iter()
            .chain(&before)
            .find(|head| head.id == id)
            .cloned();
        *self.heads.write() = all;
        found.ok_or_else(|| Error::Invalid {
            what: format!("head {} is not there any more", id.0),
        })
    }
}

/// The heads of an engine; of one that keeps none by name, the depot's volume.
pub(super) fn known_heads(infos: Vec<HeadInfo>, config: &super::Config) -> Vec<Head> {
    debug_assert!(infos.len() <= HEADS_MAX);
    let infos = match config.engine {
        super::EngineKind::Log => infos,
        super::EngineKind::Dmdedup(_) => vec![HeadInfo::first(&config.volume, config.lbns())],
    };
    let head = |info: HeadInfo| Head {
        id: info.id,
        bytes: info.lbns * u64::from(config.chunk_bytes),
        name: info.name,
        is_writable: info.is_writable,
        created: info.created,
    };
    infos.into_iter().map(head).collect()
}
