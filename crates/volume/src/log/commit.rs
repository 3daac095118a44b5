//! Zones of the journal, flushes and checkpoints: what is durable when.
//!
//! A flush closes the group and syncs the data device once. A checkpoint goes: group closed → data synced → index
//! durable → manifest replaced. Recovery then begins at the manifest's position.

use std::collections::HashMap;

use super::manifest::{Manifest, Position};
use super::writer::{LogEngine, Need, OpenZone};
use super::zone::{Stream, ZoneHeader, ZoneTable};
use crate::{Error, Result};

impl LogEngine {
    /// Everything written so far survives any crash.
    pub(super) fn sync_log(&mut self) -> Result<()> {
        self.close_group()?;
        if self.durable < self.sequence - 1 {
            let synced = self.shared.data.sync().map_err(Error::from);
            self.fail(synced)?;
            self.totals.syncs += 1;
            self.durable = self.sequence - 1;
        }
        Ok(())
    }

    /// Makes the maps durable, so that recovery need not read the journal written so far.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.close_group()?;
        let synced = self.shared.data.sync().map_err(Error::from);
        self.fail(synced)?;
        self.durable = self.sequence - 1;
        if self.index.checkpoint().is_err() {
            self.totals.index_failures += 1;
        }
        let manifest = self.manifest();
        let written = manifest.write(&*self.dir);
        self.fail(written)?;
        self.generation = manifest.generation;
        self.log_bytes = 0;
        self.totals.checkpoints += 1;
        Ok(())
    }

    /// The state as a manifest. No group is pending.
    fn manifest(&mut self) -> Manifest {
        let mut zones = self.shared.zones.write();
        let position = match &self.zone {
            Some(zone) => Position {
                no: zone.no,
                zone: zone.id,
                page: zone.page,
            },
            None => {
                // The log begins anew in the next zone: its id is fixed now, and its header need not name the one before.
                self.last_zone = None;
                Position {
                    no: zones
                        .next_journal()
                        .expect("the place of the next zone is chosen ahead"),
                    zone: *self.begin.get_or_insert_with(|| zones.new_id()),
                    page: 0,
                }
            }
        };
        let mut heads: Vec<_> = (self.shared.maps.read().iter())
            .map(|(head, map)| (*head, map.clone()))
            .collect();
        heads.sort_by_key(|(head, _)| *head);
        Manifest {
            layout: self.shared.layout,
            generation: self.generation + 1,
            sequence: self.sequence - 1,
            ids_reserved: zones.ids_reserved(),
            position,
            zones: zones
                .listed()
                .into_iter()
                .filter(|zone| !self.condemned.contains(&zone.id))
                .collect(),
            heads,
        }
    }

    /// Writes the table of the open zone, which takes no more groups.
    pub(super) fn seal_zone(&mut self) -> Result<()> {
        let Some(zone) = self.zone.take() else {
            return Ok(());
        };
        let layout = self.shared.layout;
        let mut checks = self
            .shared
            .open_checks
            .read()
            .get(&zone.id)
            .cloned()
            .unwrap_or_default();
        checks.resize(layout.zone_pages as usize, 0);
        let table = ZoneTable {
            zone: zone.id,
            rows: zone.rows,
            checks,
            pages_used: zone.page,
            sequence: self.sequence - 1,
        };
        let written = self.shared.tables.write(table, zone.no);
        self.fail(written)?;
        self.shared.zones.write().seal(zone.id, zone.page);
        self.shared.open_checks.write().remove(&zone.id);
        self.last_zone = Some(zone.id);
        Ok(())
    }

    /// Opens the place that the last zone's header, or the manifest, named.
    pub(super) fn open_zone(&mut self, need: Need) -> Result<()> {
        self.find_space(self.kept_for_others(need) + 1)?;
        if self.shared.zones.write().reserve_ids() {
            self.checkpoint()?;
        }
        let (header, no) = {
            let mut zones = self.shared.zones.write();
            let no = zones
                .next_journal()
                .expect("the place of the next zone is chosen ahead");
            let id = self.begin.take().unwrap_or_else(|| zones.new_id());
            zones.insert(id, no, Stream::Journal, 0);
            let next = zones
                .choose_next_journal()
                .expect("zones are kept free for cleaning");
            let header = ZoneHeader {
                depot: self.depot,
                zone: id,
                stream: Stream::Journal,
                previous: self.last_zone.take(),
                next,
                sequence: self.sequence,
            };
            (header, no)
        };
        let written = self
            .shared
            .data
            .write_at(&header.encode(), self.shared.layout.zone_offset(no));
        self.fail(written.map_err(Error::from))?;
        self.totals.zones_opened += 1;
        self.zone = Some(OpenZone {
            no,
            id: header.zone,
            page: 1,
            rows: Vec::new(),
            by_hash: HashMap::new(),
        });
        Ok(())
    }
}
