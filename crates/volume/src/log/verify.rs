//! Checking zones: whether each one's header and table are what was written. Runs beside the writer: a zone that goes
//! meanwhile is none that is damaged.

use std::collections::HashSet;

use onefold_io::PageBuffer;

use super::layout::{PAGE_BYTES, on_device};
use super::shared::Shared;
use super::zone::ZoneHeader;
use super::zone_list::ListedZone;
use crate::{Error, FINDINGS_MAX, Finding, Result};

impl Shared {
    /// Returns the faults of the zones that are full: [`FINDINGS_MAX`] findings at most.
    ///
    /// # Errors
    /// The device failed; those of `goes_on`.
    pub fn check_zones(&self, goes_on: &dyn Fn() -> Result<()>) -> Result<Vec<Finding>> {
        let listed = self.zones.read().listed(&HashSet::new());
        let mut findings = Vec::new();
        for zone in listed.into_iter().filter(|zone| zone.pages_used > 0) {
            goes_on()?;
            if findings.len() == FINDINGS_MAX {
                break;
            }
            match self.check_zone(&zone) {
                Err(Error::Damaged { place, what }) => {
                    let is_there = self.zones.read().at(zone.no) == Some(zone.id);
                    findings.extend(is_there.then_some(Finding {
                        place,
                        what,
                        chunks: Vec::new(),
                    }));
                }
                done => done?,
            }
        }
        Ok(findings)
    }

    fn check_zone(&self, zone: &ListedZone) -> Result<()> {
        let offset = self.layout.zone_offset(zone.no);
        let mut page = PageBuffer::zeroed(PAGE_BYTES);
        self.data.read_at(&mut page, offset)?;
        let header = ZoneHeader::decode(&page, &self.seals, "data", on_device(offset))?;
        if header.zone != zone.id {
            return Err(Error::Damaged {
                place: format!("data at offset {}", on_device(offset)),
                what: format!(
                    "the header of zone {}, expected {}",
                    header.zone.0, zone.id.0
                ),
            });
        }
        self.tables.read(zone.id, zone.no).map(drop)
    }
}
