//! Cleaning: zones with much garbage are emptied by copying what lives, and freed.
//!
//! ```text
//! plan  checkpoint: all mappings are in runs, and the log goes on behind the victims
//!       mark from the maps; the zones with the most garbage are condemned: no hit names them any more
//! step  copies of some victims' chunks and their tables written ─▶ data synced ─▶ manifest with relocations in place
//!       of the victims, and the log position of the last checkpoint ─▶ victims freed ─▶ index told
//! ```
//!
//! One checkpoint and one mark serve many steps. What is written between them names no victim: hits in condemned zones
//! are refused, and new chunks lie elsewhere. A victim's chunks can therefore only become fewer, and a step copies some
//! that died at worst. A crash before the manifest leaves copies in zones that no manifest lists: they are free.

use std::collections::{HashSet, VecDeque};

use super::copy::ChunkCopier;
use super::faults::{self, Fault};
use super::layout::{ZoneId, ZoneNo};
use super::living::VictimZone;
use super::map::shared_parts::distinct_parts;
use super::mark::{Marks, tracked_max};
use super::writer::LogEngine;
use crate::{Collected, Effort, Error, Result};

/// Bytes that one step copies at most: its syncs and its manifest then cost less than its copies. Where that frees no
/// zone, as many as it takes.
const STEP_BYTES: u64 = 16 << 20;
/// Part of the free zones that one step fills with copies, likewise.
const STEP_SHARE: u64 = 3;
/// Victims that are read at once, while one is copied: a device has something to do then.
pub(super) const READ_AHEAD: usize = 2;
/// Zones that one step frees at most, likewise.
const STEP_VICTIMS: usize = 256;
/// Zones that one mark condemns at most.
const PLAN_VICTIMS_MAX: usize = 4096;
/// Those that it condemns in any case,
const PLAN_VICTIMS_MIN: usize = 64;
/// or this part of all zones. Zones that are condemned late would have had more garbage when the next mark saw them.
const PLAN_SHARE: usize = 16;
/// A zone is worth copying while it has at least this much garbage, in percent.
const GARBAGE_PERCENT_MIN: u64 = 4;

/// Condemned zones that are not emptied yet.
#[derive(Default)]
pub(super) struct CleaningPlan {
    /// The one with the most garbage last.
    victims: Vec<VictimZone>,
    condemned: HashSet<ZoneId>,
}

impl CleaningPlan {
    /// Whether a hit in the zone is refused.
    pub fn condemns(&self, zone: ZoneId) -> bool {
        self.condemned.contains(&zone)
    }

    fn of(victims: Vec<VictimZone>) -> Self {
        Self {
            condemned: victims.iter().map(|victim| victim.zone).collect(),
            victims,
        }
    }
}

impl LogEngine {
    /// Cleans: one step of bounded work, or all that has garbage worth it.
    pub(super) fn clean(&mut self, effort: Effort) -> Result<Collected> {
        self.check_usable()?;
        let mut collected = Collected::default();
        loop {
            let mut victims = self.next_victims();
            if victims.is_empty() {
                self.make_plan()?;
                victims = self.next_victims();
                self.totals.is_left_worthless = victims.is_empty();
            }
            if victims.is_empty() {
                self.plan = CleaningPlan::default();
                break;
            }
            let (freed, copied) = self.empty(victims)?;
            collected.pages_freed += freed;
            collected.pages_copied += copied;
            if effort == Effort::Step || freed == 0 {
                collected.is_more = freed > 0;
                break;
            }
        }
        while effort == Effort::Whole && self.give_back_room()? {}
        Ok(collected)
    }

    /// Takes the next victims of the plan: as many as free zones have room for their living chunks.
    fn next_victims(&mut self) -> Vec<VictimZone> {
        let layout = self.shared.layout;
        let zone_pages = if self.packer.is_on() {
            // Rows of packed pages take room, too.
            u64::from(layout.packed_pages_min())
        } else {
            u64::from(layout.groups_end() - 1)
        };
        let ready = self.shared.zones.read().ready();
        let copies_max = u64::from(ready.saturating_sub(1));
        let copies_wanted = (STEP_BYTES / layout.zone_bytes()).min(u64::from(ready) / STEP_SHARE);
        let chunk_pages = u64::from(layout.chunk_pages);
        let copies_of = |pages: u64| pages.div_ceil(zone_pages / chunk_pages * chunk_pages);
        // Copies of less than a zone need a zone: one victim alone frees nothing unless it is empty.
        let (mut copied, mut count, mut gains) = (0, 0, false);
        for victim in self.plan.victims.iter().rev() {
            let live = victim.live_pages(&layout);
            let copies = copies_of(copied + live);
            let is_enough = gains && (count >= STEP_VICTIMS || copies > copies_wanted.max(2));
            if is_enough || copies > copies_max {
                break;
            }
            copied += live;
            count += 1;
            gains = count as u64 > copies;
        }
        if !gains {
            return Vec::new();
        }
        self.plan.victims.split_off(self.plan.victims.len() - count)
    }

    /// Looks for garbage, and condemns the zones that have the most.
    fn make_plan(&mut self) -> Result<()> {
        self.plan = CleaningPlan::default();
        // A merge may have named zones that were freed since: the mark must see its result.
        if !faults::is_on(Fault::MarkBeforeMergeIsInstalled) {
            let installed = self.install_merged(true);
            self.fail(installed)?;
        }
        let relocations = self.shared.zones.read().relocations.len();
        if relocations >= self.sizes.relocations_max {
            match self.rewrite_maps() {
                // The steps of this plan need more of them: it is made when there is room.
                Err(error) if error.is_shortage() => return Err(error),
                rewritten => self.fail(rewritten)?,
            }
        }
        if !faults::is_on(Fault::NoCheckpointBeforeMark) {
            self.checkpoint()?;
        }
        self.plan = CleaningPlan::of(self.find_victims()?);
        Ok(())
    }

    /// Marks zones, some at a time, until there are victims or all were marked.
    fn find_victims(&mut self) -> Result<Vec<VictimZone>> {
        let mut marked = HashSet::new();
        self.totals.changed_since_mark = 0;
        self.totals.journal_since_mark = 0;
        loop {
            let tracked = self.choose_tracked(&marked);
            if tracked.is_empty() {
                return Ok(Vec::new());
            }
            marked.extend(&tracked);
            let marks = self.mark(tracked)?;
            let victims = self.choose(&marks);
            if !victims.is_empty() {
                return Ok(victims);
            }
        }
    }

    /// Zones to track: those with the most garbage as far as is known, and as many in turn.
    fn choose_tracked(&mut self, marked: &HashSet<ZoneId>) -> Vec<ZoneId> {
        let count = tracked_max(&self.shared.layout);
        let open = self.open_zone_id();
        let zones = self.shared.zones.read();
        let mut candidates: Vec<(u32, ZoneNo, ZoneId)> = (zones.iter())
            .filter(|(id, _)| Some(*id) != open && !marked.contains(id))
            .map(|(id, info)| (info.live_pages, info.no, id))
            .collect();
        if candidates.len() > count {
            candidates.sort_unstable();
            let turn = self.mark_turn;
            candidates[count / 2..].sort_unstable_by_key(|(_, no, _)| (no.0 < turn.0, *no));
            candidates.truncate(count);
            self.mark_turn = candidates
                .last()
                .map_or(turn, |(_, no, _)| ZoneNo(no.0 + 1));
        }
        candidates.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Reads all maps once. No group is pending, and memtables are empty.
    fn mark(&mut self, tracked: Vec<ZoneId>) -> Result<Marks> {
        let layout = self.shared.layout;
        let mut marks = Marks::new(&layout, tracked);
        let levels: Vec<_> = (self.shared.maps.read().values())
            .map(|map| map.levels.clone())
            .collect();
        let mapped: u64 = levels.iter().map(|levels| levels.mapped()).sum();
        for part in distinct_parts(&levels) {
            let map = part.levels.merge(part.lbns.clone(), layout.chunk_pages)?;
            marks.add(map, part.heads, &self.shared.zones)?;
        }
        self.totals.hidden = mapped - marks.mapped;
        let mut zones = self.shared.zones.write();
        let before = zones.relocations.len();
        zones.relocations.retain(|zone| marks.named.contains(&zone));
        self.relocations_changed |= zones.relocations.len() < before;
        for (zone, live) in marks.live_pages() {
            zones.set_live(zone, live as u32);
        }
        Ok(marks)
    }

    /// The tracked zones with the most garbage, the one with the most last.
    fn choose(&mut self, marks: &Marks) -> Vec<VictimZone> {
        let layout = self.shared.layout;
        let zones = self.shared.zones.read();
        let zone_pages = u64::from(layout.groups_end() - 1);
        let garbage = |live: u64| zone_pages.saturating_sub(live);
        let open = self.open_zone_id();
        self.totals.garbage_left = (zones.iter())
            .filter(|(id, _)| Some(*id) != open)
            .map(|(_, info)| garbage(u64::from(info.live_pages)))
            .sum();
        let is_worth_it = |live: u64| garbage(live) * 100 >= zone_pages * GARBAGE_PERCENT_MIN;
        let mut candidates: Vec<(u64, ZoneId, ZoneNo)> = (marks.live_pages())
            .filter(|(_, live)| is_worth_it(*live))
            .filter_map(|(id, live)| Some((live, id, zones.get(id)?.no)))
            .collect();
        candidates.sort_unstable();
        let share = zones.count() as usize / PLAN_SHARE;
        candidates.truncate(share.clamp(PLAN_VICTIMS_MIN, PLAN_VICTIMS_MAX));
        let victims = candidates
            .into_iter()
            .rev()
            .map(|(_, zone, no)| VictimZone {
                zone,
                no,
                live: marks.living(zone),
            });
        victims.collect()
    }

    /// Copies what lives, commits, frees. Returns pages freed (net) and copied.
    fn empty(&mut self, victims: Vec<VictimZone>) -> Result<(u64, u64)> {
        let layout = self.shared.layout;
        let mut copier = ChunkCopier::new(self.depot);
        let copied = self.copy_living(&mut copier, victims);
        self.settle_copied(&mut copier)?;
        let emptied = copied?;
        if emptied.is_empty() {
            return Ok((0, 0));
        }
        // Victims are found by their own ids until the manifest is durable.
        let mut zones = self.shared.zones.write();
        (zones.relocations).add(&emptied, &copier.moved, layout.chunk_pages);
        drop(zones);
        self.relocations_changed = true;
        self.commit_without(&emptied)?;
        let mut zones = self.shared.zones.write();
        emptied.iter().for_each(|zone| zones.remove(*zone));
        drop(zones);
        self.shared.damaged.forget(&emptied);
        let told = copier
            .rows
            .iter()
            .try_for_each(|(zone, hashes)| self.index.insert(hashes.iter().copied(), *zone));
        let retired: Vec<ZoneId> = emptied.iter().copied().collect();
        if told.and_then(|()| self.index.retire(&retired)).is_err() {
            self.totals.index_failures += 1;
        }
        let copied = copier.moved.len() as u64 * u64::from(layout.chunk_pages);
        let freed = emptied.len() as u64 * u64::from(layout.groups_end() - 1);
        let garbage = freed.saturating_sub(copied);
        self.totals.garbage_left = self.totals.garbage_left.saturating_sub(garbage);
        let net = emptied.len().saturating_sub(copier.rows.len()) as u64;
        self.totals.pages_copied += copied;
        self.totals.zones_freed += emptied.len() as u64;
        Ok((net * u64::from(layout.groups_end() - 1), copied))
    }

    /// Copies what lives in the victims, and returns those that it was copied from. The last copied zone may be on its
    /// way to the device.
    fn copy_living(
        &mut self,
        copier: &mut ChunkCopier,
        victims: Vec<VictimZone>,
    ) -> Result<HashSet<ZoneId>> {
        let mut emptied = HashSet::new();
        let mut victims = victims.into_iter();
        let first = victims.by_ref().take(READ_AHEAD);
        let mut ahead: VecDeque<_> = first.map(|victim| self.start_reading(victim)).collect();
        while let Some(victim) = ahead.pop_front() {
            let zone = victim.zone;
            let living = victim.wait();
            ahead.extend(victims.next().map(|victim| self.start_reading(victim)));
            match living {
                Ok(chunks) => {
                    for living in chunks.iter() {
                        self.copy(copier, zone, &living)?;
                    }
                    emptied.insert(zone);
                }
                Err(Error::Damaged { .. }) => self.totals.zones_damaged += 1,
                Err(error) => return Err(error),
            }
        }
        self.finish_zone(copier)?;
        Ok(emptied)
    }
}
