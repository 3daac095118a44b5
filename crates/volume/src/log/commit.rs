//! Zones of the journal, and flushes. A flush closes the group and syncs the data device once.

use std::collections::HashMap;
use std::sync::Arc;

use super::checks::Checks;
use super::writer::{LogEngine, Need, OpenZone};
use super::zone::{Stream, ZoneHeader};
use super::zone_table::ZoneTable;
use crate::{Error, Result};

impl LogEngine {
    /// Everything written so far survives any crash.
    pub(super) fn sync_log(&mut self) -> Result<()> {
        self.hold_group()?;
        // The sync writes the group, or waits for one that is being written.
        if self.durable < self.sequence - 1 {
            let synced = self.shared.data.sync().map_err(Error::from);
            self.fail(synced)?;
            self.totals.syncs += 1;
            self.durable = self.sequence - 1;
        }
        Ok(())
    }

    /// Writes the table of the open zone, which takes no more groups.
    pub(super) fn seal_zone(&mut self) -> Result<()> {
        let Some(zone) = self.zone.take() else {
            return Ok(());
        };
        let layout = self.shared.layout;
        let mut checks = {
            let all = self.shared.open_checks.read();
            all.get(&zone.id).map_or_else(
                || Checks::none(layout.check_bytes),
                |open| open.checks.clone(),
            )
        };
        checks.resize(layout.zone_pages as usize);
        self.just_sealed.push((zone.id, zone.by_hash));
        let table = ZoneTable {
            zone: zone.id,
            rows: zone.rows,
            checks,
            pages_used: zone.page,
            sequence: self.sequence - 1,
            salt: zone.salt,
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
        let salt = self.shared.seals.new_salt();
        let salt = self.fail(salt)?;
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
                salt,
            };
            (header, no)
        };
        let shared = Arc::clone(&self.shared);
        let page = header.encode(&shared.seals);
        let written = (shared.data).write_at(&page, shared.layout.zone_offset(no));
        self.fail(written.map_err(Error::from))?;
        self.totals.zones_opened += 1;
        self.zone = Some(OpenZone {
            no,
            id: header.zone,
            page: 1,
            rows: Vec::new(),
            by_hash: HashMap::new(),
            salt,
            sealer: shared.seals.pages(salt),
        });
        self.keep_room()
    }
}
