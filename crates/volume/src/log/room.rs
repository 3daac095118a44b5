//! Room on the host. A data file is sparse, and its file system may be full before it is. So a zone is filled only after
//! the file system was made to keep room for all of it, some zones ahead of the log: a full host is told before a write
//! is acknowledged. And zones that were freed go back to the host, but for those that are about to be filled again.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::Dir;

use super::Clock;
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
/// A host that was full is asked again after this long. Each question that it refuses may cost it several commits of its
/// own journal (ext4 frees what it can and tries three times).
const ASKED_AGAIN_NANOSECONDS: u64 = 1_000_000_000;

/// Knowledge about the host's room.
pub(super) struct HostRoom {
    pub ballast: Ballast,
    /// The file system had no room for another zone when it was asked last.
    pub is_full: bool,
    /// When it refused room last, for zones or for ballast, where there is a clock.
    refused_at: Option<u64>,
    clock: Option<Clock>,
    /// Zones that had been opened when room was given back last.
    opened_before: u64,
    pub zones_given_back: u64,
}

impl HostRoom {
    /// Keeps ballast, and room for zones; at least for those without which no depot can be opened.
    ///
    /// # Errors
    /// A device failed. A full host is no error.
    pub fn open(
        dir: &Arc<dyn Dir>,
        ballast_bytes: u64,
        shared: &Shared,
        clock: Option<Clock>,
    ) -> Result<Self> {
        let mut host = Self {
            ballast: Ballast::open(Arc::clone(dir), ballast_bytes)?,
            is_full: false,
            refused_at: None,
            clock,
            opened_before: 0,
            zones_given_back: 0,
        };
        host.keep(shared, host.wanted(&shared.layout_now()))?;
        let least = ZONES_FOR_CLEANING + ZONES_FOR_JOURNAL;
        while shared.zones.read().ready() < least && host.ballast.release() {
            host.keep(shared, least)?;
        }
        host.ballast.hold()?;
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

    /// Whether new data may be taken: the folder has enough ballast.
    pub fn takes_data(&self) -> bool {
        self.ballast.is_enough()
    }

    /// Zones that are to be ready. Without ballast no data is taken, and the folder needs the room more than it does.
    fn wanted(&self, layout: &Layout) -> u32 {
        if self.takes_data() {
            ready_wanted(layout)
        } else {
            ready_least(layout)
        }
    }

    /// Whether the host is worth a question: it refused none for a while. Without a clock it always is.
    pub fn may_be_asked(&self) -> bool {
        let now = self.clock.as_ref().map(|clock| clock());
        match self.refused_at.zip(now) {
            Some((refused, now)) => now.saturating_sub(refused) >= ASKED_AGAIN_NANOSECONDS,
            None => true,
        }
    }

    /// Notes that the host refused room just now.
    fn note_refusal(&mut self) {
        self.refused_at = self.clock.as_ref().map(|clock| clock());
    }

    /// Takes ballast again that was given up, where the host may have room for it.
    ///
    /// # Errors
    /// The folder failed. A full file system is no error.
    pub fn hold_ballast(&mut self) -> Result<()> {
        if self.ballast.is_held() || !self.may_be_asked() {
            return Ok(());
        }
        self.ballast.hold()?;
        if !self.ballast.is_held() {
            self.note_refusal();
        }
        Ok(())
    }

    /// Has the host keep room until `wanted` zones are ready, or it is full. One that refused room a moment ago is not
    /// asked.
    ///
    /// # Errors
    /// The data device failed.
    pub fn keep(&mut self, shared: &Shared, wanted: u32) -> Result<()> {
        if self.is_full && !self.may_be_asked() {
            return Ok(());
        }
        let places: Vec<ZoneNo> = {
            let zones = shared.zones.read();
            // A full host is asked for one more: there is no other way to learn that it has room by now.
            let more = u32::from(self.is_full);
            let lacking = wanted.max(zones.ready() + more) - zones.ready();
            zones.without_room().take(lacking as usize).collect()
        };
        // A full host is asked for one alone first: most of the time it refuses, and that is the cheapest refusal.
        let (first, rest) = places.split_at(usize::from(self.is_full).min(places.len()));
        let at_once = (ALLOCATED_AT_ONCE / shared.layout.zone_bytes()).max(1);
        let all = stretches(first, 1)
            .into_iter()
            .chain(stretches(rest, at_once));
        self.is_full = false;
        for stretch in all {
            if !keep_stretch(shared, stretch.clone())? {
                self.is_full = true;
                keep_one_by_one(shared, stretch)?;
                self.note_refusal();
                break;
            }
        }
        Ok(())
    }
}

/// Keeps the last zones that a host has room for, which refused all of the stretch.
fn keep_one_by_one(shared: &Shared, stretch: Range<u32>) -> Result<()> {
    if stretch.len() > 1 {
        for no in stretch {
            if !keep_stretch(shared, no..no + 1)? {
                break;
            }
        }
    }
    Ok(())
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
            // The part that the host found would be missing elsewhere: give it back.
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
        let wanted = self.host.wanted(&shared.layout_now());
        let kept = self.host.keep(&shared, wanted);
        self.fail(kept)
    }

    /// Asks a host that was full whether it has room by now.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn ask_for_room(&mut self) -> Result<()> {
        self.host.hold_ballast()?;
        if self.host.is_full {
            self.keep_room()?;
        }
        Ok(())
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
        let kept = u64::from(ready_wanted(&self.shared.layout_now())) + KEPT_TURNS * filled;
        self.give_back_room_but(u32::try_from(kept).unwrap_or(u32::MAX))
    }

    /// Gives all room of free zones back that nobody needs at once, so that maps and the manifest find some.
    ///
    /// # Errors
    /// The data device failed.
    pub(super) fn give_back_all_room(&mut self) -> Result<()> {
        while self.give_back_room_but(ready_least(&self.shared.layout_now()))? {}
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
