//! Volumes and snapshots. Each has a list of runs of its own; runs are never changed, so a copy of a list is a
//! snapshot.
//!
//! Invariant: every head that the manifest names has a map, and no other has one; a number is given once. So a write
//! that was under way when its volume was deleted finds no map, and is dropped.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::layout::Layout;
use super::manifest::Manifest;
use super::map::run_id::RunId;
use super::shared::HeadMap;
use super::writer::LogEngine;
use crate::heads::{HEADS_MAX, check_full_name};
use crate::{Error, HeadChange, HeadId, HeadInfo, Result};

/// The heads of a depot, without their maps.
#[derive(Clone)]
pub(super) struct Heads {
    by_id: BTreeMap<HeadId, HeadInfo>,
    /// The number of the next one.
    pub next: u32,
}

impl Heads {
    /// A depot's first volume alone.
    pub fn first(volume: HeadInfo) -> Self {
        Self {
            next: volume.id.0 + 1,
            by_id: BTreeMap::from([(volume.id, volume)]),
        }
    }

    /// The heads of a manifest. One that knows no names has the first volume alone.
    pub fn listed(manifest: &Manifest, first: HeadInfo) -> Self {
        match manifest.next_head {
            0 => Self::first(first),
            next => Self {
                by_id: (manifest.heads.iter())
                    .map(|head| (head.info.id, head.info.clone()))
                    .collect(),
                next,
            },
        }
    }

    /// Every head, by number.
    pub fn iter(&self) -> impl Iterator<Item = &HeadInfo> {
        self.by_id.values()
    }

    /// The head, if it is there.
    pub fn get(&self, head: HeadId) -> Option<&HeadInfo> {
        self.by_id.get(&head)
    }

    /// The heads after a change, and the number of the one that it is about.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Exists`]: there is no such head, or its name is taken.
    fn changed(&self, change: &HeadChange) -> Result<(Self, HeadId)> {
        let mut heads = self.clone();
        let head = match change {
            HeadChange::Create {
                name,
                lbns,
                created,
            } => heads.add(name, *lbns, true, *created)?,
            HeadChange::Copy {
                from,
                name,
                is_writable,
                created,
            } => heads.add(name, self.known(*from)?.lbns, *is_writable, *created)?,
            HeadChange::Delete { head } => {
                self.known(*head)?;
                heads.by_id.remove(head);
                *head
            }
            HeadChange::Grow { head, lbns } => {
                let known = self.known(*head)?;
                if !known.is_writable || *lbns < known.lbns {
                    return Err(Error::Invalid {
                        what: format!(
                            "{} has {} chunks and cannot have {lbns}: volumes grow, and never shrink",
                            known.name, known.lbns
                        ),
                    });
                }
                heads.by_id.entry(*head).and_modify(|it| it.lbns = *lbns);
                *head
            }
        };
        Ok((heads, head))
    }

    fn known(&self, head: HeadId) -> Result<&HeadInfo> {
        self.get(head).ok_or_else(|| Error::Invalid {
            what: format!("there is no volume or snapshot {}", head.0),
        })
    }

    fn add(&mut self, name: &str, lbns: u64, is_writable: bool, created: u64) -> Result<HeadId> {
        check_full_name(name, is_writable)?;
        if self.iter().any(|known| known.name == name) {
            return Err(Error::Exists {
                place: name.to_owned(),
                what: "a volume or snapshot has this name".into(),
            });
        }
        if self.by_id.len() >= HEADS_MAX {
            return Err(Error::Invalid {
                what: format!("a depot has {HEADS_MAX} volumes and snapshots at most"),
            });
        }
        let id = HeadId(self.next);
        self.next += 1;
        let info = HeadInfo {
            id,
            name: name.to_owned(),
            lbns,
            is_writable,
            created,
        };
        self.by_id.insert(id, info);
        Ok(id)
    }
}

impl LogEngine {
    /// Whether writes to a head are carried out. `false`: it was deleted, and what was under way is dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a snapshot.
    pub(super) fn takes_writes(&self, head: HeadId) -> Result<bool> {
        match self.heads.get(head) {
            Some(info) if !info.is_writable => Err(Error::Invalid {
                what: format!("a write to the snapshot {}", info.name),
            }),
            found => Ok(found.is_some()),
        }
    }

    /// Changes the heads: a checkpoint, and a manifest with the new ones.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Exists`], [`Error::NoSpace`]: nothing was changed. The folder failed.
    pub(super) fn change_heads(&mut self, change: &HeadChange) -> Result<HeadId> {
        self.check_usable()?;
        let (heads, head) = self.heads.changed(change)?;
        self.checkpoint_if_changed()?;
        let before = std::mem::replace(&mut self.heads, heads);
        let map = self.change_maps(change, head);
        let reached = self.reached;
        match self.in_folder(|engine| engine.replace_manifest(&reached, &HashSet::new())) {
            Err(error) if error.is_shortage() => {
                self.heads = before;
                self.undo_maps(change, head, map);
                Err(error)
            }
            done => done.map(|()| head),
        }
    }

    /// Uses more of the data device: as many zones as `bytes` have room for. Returns the bytes that are used then.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it would become smaller, or larger than a depot may be. [`Error::NoSpace`]: the folder has
    /// no room, and nothing was changed. The folder failed.
    pub(super) fn grow_device(&mut self, bytes: u64) -> Result<u64> {
        self.check_usable()?;
        let before = self.shared.layout_now();
        let zones = u32::try_from(bytes / before.zone_bytes()).unwrap_or(u32::MAX);
        let layout = Layout { zones, ..before };
        if zones < before.zones || !layout.is_sound() {
            return Err(Error::Invalid {
                what: format!(
                    "the depot has room for {} bytes of chunks, and cannot have {bytes}",
                    u64::from(before.zones) * before.zone_bytes()
                ),
            });
        }
        self.checkpoint_if_changed()?;
        self.shared.zones.write().grow(zones);
        let reached = self.reached;
        match self.in_folder(|engine| engine.replace_manifest(&reached, &HashSet::new())) {
            Err(error) if error.is_shortage() => {
                self.shared.zones.write().shrink(before.zones);
                Err(error)
            }
            done => {
                done?;
                self.keep_room()?;
                Ok(u64::from(zones) * before.zone_bytes())
            }
        }
    }

    /// Changes the maps as a change of the heads wants it. Returns the map that goes.
    fn change_maps(&mut self, change: &HeadChange, head: HeadId) -> Option<HeadMap> {
        let mut maps = self.shared.maps.write();
        match change {
            HeadChange::Create { .. } => {
                maps.insert(head, HeadMap::new(self.shared.layout.chunk_pages));
                None
            }
            HeadChange::Copy { from, .. } => {
                let levels = maps.get(from).map(|map| Arc::clone(&map.levels));
                let mut map = HeadMap::new(self.shared.layout.chunk_pages);
                map.levels = levels.unwrap_or_default();
                maps.insert(head, map);
                None
            }
            HeadChange::Delete { .. } => {
                let gone = maps.remove(&head);
                // Any of its chunks may be garbage now.
                self.totals.changed_since_mark +=
                    gone.as_ref().map_or(0, |map| map.levels.mapped());
                gone
            }
            HeadChange::Grow { .. } => None,
        }
    }

    fn undo_maps(&mut self, change: &HeadChange, head: HeadId, map: Option<HeadMap>) {
        let mut maps = self.shared.maps.write();
        match (change, map) {
            (HeadChange::Create { .. } | HeadChange::Copy { .. }, _) => _ = maps.remove(&head),
            (_, Some(map)) => _ = maps.insert(head, map),
            _ => {}
        }
    }

    /// Keeps pages of recent runs in RAM as far as the budget goes: those of volumes, the newest first. Snapshots are
    /// read through the cache.
    pub(super) fn limit_pinned(&self) {
        let maps = self.shared.maps.read();
        let volumes = maps
            .iter()
            .filter(|(head, _)| (self.heads.get(**head)).is_some_and(|info| info.is_writable));
        let mut recent: Vec<_> = volumes
            .flat_map(|(_, map)| map.levels.recent.iter().flatten())
            .collect();
        recent.sort_unstable_by_key(|run| std::cmp::Reverse(run.listed.id));
        recent.dedup_by_key(|run| run.listed.id);
        let mut left = self.sizes.pinned_bytes_max();
        let kept: HashSet<RunId> = recent
            .into_iter()
            .take_while(|run| {
                left = left.saturating_sub(run.listed.bytes());
                left > 0
            })
            .map(|run| run.listed.id)
            .collect();
        let all = maps.values().flat_map(|map| map.levels.runs());
        all.filter(|run| !kept.contains(&run.listed.id))
            .for_each(|run| run.unpin());
    }
}
