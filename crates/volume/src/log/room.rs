//! Room on the host. A data file is sparse, and its file system may be full before it is. So a zone is filled only after
//! the file system was made to keep room for all of it, some zones ahead of the log: a full host is told before a write
//! is acknowledged. And zones that were freed go back to the host, but for those that are about to be filled again.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::Dir;

use super::ballast::Ballast;
use super::figures::{ZONES_FOR_CLEANING, ZONES_FOR_JOURNAL};
use super::layout::{Layout, ZoneNo};
use super::shared::Shared;
use super::writer::LogEngine;
use super::zones::Room;
use crate::{Error, Result};

/// Room is kept ahead of the log for an eighth of the zones, and at most for this many bytes: three times what a front
/// stages.
const AHEAD_BYTES_MAX: u64 = 48 << 20;
/// Room is kept for this many zones at least, or all of a small device: 16 MiB of the smallest zones.
const AHEAD_ZONES_MIN: u64 = 64;
/// Room is kept for this much of the reserve of file systems' metadata.
const RESERVE_BYTES: u64 = 32 << 20;
/// Bytes that are allocated by one call at most.
const ALLOCATED_AT_ONCE: u64 = 64 << 20;
/// Stretches that one call of [`LogEngine::give_back_room`] gives back at most: writes wait meanwhile.
const GIVEN_BACK_AT_ONCE: usize = 64;
/// Zones that were filled since room was given back last are kept this many times.
const KEPT_TURNS: u64 = 4;

/// What is known of the host.
pub(super) struct HostRoom {
    pub ballast: Ballast,
    /// The file system had no room for another zone when it was asked last.
    pub is_full: bool,
    /// Zones that had been opened when room was given back last.
    opened_before: u64,
    pub zones_given_back: u64,
}

impl HostRoom {
    /// Keeps ballast, and room for zones; at least for those without which no depot can be opened.
    ///
    /// # Errors
    /// A device failed. A full host is no error.
    pub fn open(dir: &Arc<dyn Dir>, ballast_bytes: u64, shared: &Shared) -> Result<Self> {
        let mut host = Self {
            ballast: Ballast::open(Arc::clone(dir), ballast_bytes)?,
            is_full: false,
            opened_before: 0,
            zones_given_back: 0,
        };
        host.keep(shared, host.wanted(&shared.layout))?;
        let least = ZONES_FOR_CLEANING + ZONES_FOR_JOURNAL;
        if shared.zones.read().ready() < least && host.ballast.release() {
            host.keep(shared, least)?;
            host.ballast.hold()?;
        }
        // A zone that was filled once has room though nobody says so. Were it wrong, a write would fail.
        let mut zones = shared.zones.write();
        while zones.ready() < least
            && let Some(no) = { zones.without_room().next() }
        {
            zones.set_room(no, Room::Kept);
        }
        drop(zones);
        Ok(host)
    }

    /// Whether new data may be taken: the folder has its ballast.
    pub fn takes_data(&self) -> bool {
        self.ballast.is_held()
    }

    /// Zones that are to be ready. Without ballast no data is taken, and the folder needs the room more than it does.
    fn wanted(&self, layout: &Layout) -> u32 {
        match self.takes_data() {
            true => ready_wanted(layout),
            false => ready_least(layout),
        }
    }

    /// Has the host keep room until `wanted` zones are ready, or it is full.
    ///
    /// # Errors
    /// The data device failed.
    pub fn keep(&mut self, shared: &Shared, wanted: u32) -> Result<()> {
        let places: Vec<ZoneNo> = {
            let zones = shared.zones.read();
            // A full host is asked for one more: there is no other way to learn that it has room by now.
            let more = u32::from(self.is_full);
            let lacking = wanted.max(zones.ready() + more) - zones.ready();
            zones.without_room().take(lacking as usize).collect()
        };
        self.is_full &= !places.is_empty();
        let at_once = (ALLOCATED_AT_ONCE / shared.layout.zone_bytes()).max(1);
        for stretch in stretches(&places, at_once) {
            self.is_full = !keep_stretch(shared, stretch.clone())?;
            if self.is_full {
                // The last zones that have room are worth it.
                for no in stretch {
                    if !keep_stretch(shared, no..no + 1)? {
                        break;
                    }
                }
                break;
            }
        }
        Ok(())
    }
}

/// Zones of the reserve of file systems' metadata for which room is kept.
pub(super) fn reserve_ready(layout: &Layout, reserve: u32) -> u32 {
    let most = (RESERVE_BYTES / layout.zone_bytes()).max(2);
    reserve.min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Zones that are to be ready.
fn ready_wanted(layout: &Layout) -> u32 {
    let ahead = u64::from(layout.zones / 8).min(AHEAD_BYTES_MAX / layout.zone_bytes());
    ready_least(layout) + u32::try_from(ahead.max(AHEAD_ZONES_MIN)).unwrap_or(u32::MAX)
}

/// Zones that are to be ready in any case: for cleaning, the journal, and metadata of file systems.
fn ready_least(layout: &Layout) -> u32 {
    let others = ZONES_FOR_CLEANING + ZONES_FOR_JOURNAL;
    others + reserve_ready(layout, LogEngine::zones_kept(layout) - others)
}

/// Places that follow each other, by their numbers; `most` together.
fn stretches(places: &[ZoneNo], most: u64) -> Vec<Range<u32>> {
    let mut all: Vec<Range<u32>> = Vec::new();
    for no in places {
        match all.last_mut() {
            Some(last) if last.end == no.0 && u64::from(last.end - last.start) < most => {
                last.end += 1
            }
            _ => all.push(no.0..no.0 + 1),
        }
    }
    all
}

/// Has the host keep room for neighbouring places. `false`: it has not enough, and keeps none.
fn keep_stretch(shared: &Shared, stretch: Range<u32>) -> Result<bool> {
    let (offset, bytes) = bytes_of(&shared.layout, &stretch);
    match shared.data.allocate(offset, bytes).map_err(Error::from) {
        Ok(()) => {
            let mut zones = shared.zones.write();
            stretch.for_each(|no| zones.set_room(ZoneNo(no), Room::Kept));
            Ok(true)
        }
        Err(Error::NoSpace { .. }) => {
            // What was found of it would lack elsewhere.
            shared.data.discard(offset, bytes)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn bytes_of(layout: &Layout, stretch: &Range<u32>) -> (u64, u64) {
    let zones = u64::from(stretch.end - stretch.start);
    (
        layout.zone_offset(ZoneNo(stretch.start)),
        zones * layout.zone_bytes(),
    )
}

impl LogEngine {
    /// Has the host keep room ahead of the log. A full host is noted, and no error.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn keep_room(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let wanted = self.host.wanted(&shared.layout);
        let kept = self.host.keep(&shared, wanted);
        self.fail(kept)
    }

    /// Asks a host that was full whether it has room by now.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn ask_for_room(&mut self) -> Result<()> {
        if !self.host.takes_data() {
            self.host.ballast.hold()?;
        }
        match self.host.is_full {
            true => self.keep_room(),
            false => Ok(()),
        }
    }

    /// Gives zones that are free back to the host, but for those that the log will fill soon: room that is kept in any
    /// case, and a multiple of what was filled since the last call. Stretches beyond a bound are left for the next call.
    /// Returns whether there are some.
    ///
    /// # Errors
    /// The data device failed.
    pub(super) fn give_back_room(&mut self) -> Result<bool> {
        self.check_usable()?;
        let filled = self.totals.zones_opened - self.host.opened_before;
        self.host.opened_before = self.totals.zones_opened;
        let kept = u64::from(ready_wanted(&self.shared.layout)) + KEPT_TURNS * filled;
        self.give_back_room_but(u32::try_from(kept).unwrap_or(u32::MAX))
    }

    /// Gives all room of free zones back that nobody needs at once, so that maps and the manifest find some.
    ///
    /// # Errors
    /// The data device failed.
    pub(super) fn give_back_all_room(&mut self) -> Result<()> {
        while self.give_back_room_but(ready_least(&self.shared.layout))? {}
        Ok(())
    }

    fn give_back_room_but(&mut self, kept: u32) -> Result<bool> {
        let layout = self.shared.layout;
        let mut places: Vec<ZoneNo> = {
            let zones = self.shared.zones.read();
            zones.with_needless_room(kept).collect()
        };
        places.sort_unstable();
        let all = stretches(&places, u64::MAX);
        for stretch in all.iter().take(GIVEN_BACK_AT_ONCE) {
            {
                let mut zones = self.shared.zones.write();
                (stretch.clone()).for_each(|no| zones.set_room(ZoneNo(no), Room::GivenBack));
            }
            let (offset, bytes) = bytes_of(&layout, stretch);
            let discarded = self.shared.data.discard(offset, bytes).map_err(Error::from);
            self.fail(discarded)?;
            self.host.zones_given_back += u64::from(stretch.end - stretch.start);
        }
        Ok(all.len() > GIVEN_BACK_AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_go_together_up_to_a_bound() {
        let places: Vec<ZoneNo> = [1, 2, 3, 4, 7, 8, 3].map(ZoneNo).to_vec();
        assert_eq!(stretches(&places, 3), [1..4, 4..5, 7..9, 3..4]);
    }
}
