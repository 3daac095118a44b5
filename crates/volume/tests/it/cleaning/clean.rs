//! Flushes, checkpoints and cleaning.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::world::{
    Entries, Fault, Kept, LBNS, Lost, Manifest, Moved, PAGES, Position, Target, World, Zone,
    ZoneId, rows_of,
};

/// Where the living pages of a victim go: to which zone, from which page on. `None`: it has none.
type Goal = Option<(ZoneId, usize)>;
/// Pages of each victim that some run names.
type Marks = BTreeMap<ZoneId, BTreeSet<usize>>;

impl World {
    fn sync(&mut self) {
        self.synced.clone_from(&self.device);
    }

    pub fn flush(&mut self) {
        self.sync();
        self.possible = vec![self.model.clone()];
    }

    /// Data synced, memtables made runs, manifest replaced with a new position of the log.
    pub fn checkpoint(&mut self) {
        if !self.has(Fault::NoSyncBeforeACheckpoint) {
            self.sync();
        }
        for head in self.heads.values_mut() {
            if head.memory.iter().any(Option::is_some) {
                let run = std::mem::replace(&mut head.memory, [None; LBNS]);
                head.runs.insert(0, Rc::new(run));
            }
        }
        let position = match self.current {
            Some(id) => Position::Behind(id, self.zone(id).groups.len()),
            None => {
                let (no, id) = self.begin.expect("chosen at recovery");
                Position::Begin(no, id)
            }
        };
        self.manifest = Manifest {
            position,
            sequence: self.sequence,
            ..self.manifest_now()
        };
    }

    /// A manifest with the position of the last checkpoint.
    fn manifest_now(&self) -> Manifest {
        Manifest {
            heads: self.listed_heads(),
            zones: self.live.iter().map(|(id, no)| (*no, *id)).collect(),
            moved: self.moved.clone(),
            position: self.manifest.position,
            sequence: self.manifest.sequence,
            ids_reserved: self.manifest.ids_reserved.max(self.next_id + 500),
            next_head: self.next_head,
        }
    }

    /// Chooses some zones and empties them, with other work between the steps.
    pub fn clean(&mut self) -> Kept<()> {
        if !self.has(Fault::NoCheckpointBeforeTheMark) {
            self.checkpoint();
        }
        let mut sealed: Vec<ZoneId> = self.live.keys().copied().collect();
        sealed.retain(|id| Some(*id) != self.current);
        if sealed.is_empty() {
            return Ok(());
        }
        let count = 1 + self.pick(4);
        let victims: BTreeSet<ZoneId> = (0..count)
            .map(|_| sealed[self.pick(sealed.len())])
            .collect();
        self.condemned = victims.clone();
        if self.chance(70) {
            self.write_some(4);
        }
        if !self.has(Fault::NoCheckpointBeforeTheMark) {
            self.checkpoint();
        }
        let heads = self.heads.values();
        let runs: Vec<Rc<Entries>> = heads.flat_map(|head| head.runs.clone()).collect();
        if self.chance(70) {
            self.write_some(3);
        }
        if self.chance(30) {
            self.merge()?;
        }
        if self.chance(30) {
            self.clone_or_delete();
        }
        let (marks, named) = self.mark(&victims, &runs)?;
        let (goals, copies) = self.copy(&marks)?;
        if !self.has(Fault::NoSyncBeforeACleaning) {
            self.sync();
        }
        if self.chance(10) {
            self.condemned.clear();
            return self.crash();
        }
        for (id, no) in copies {
            self.live.insert(id, no);
        }
        self.commit(&goals, &marks, &named)
    }

    /// Which pages of the victims the runs name, and which zones that are no more.
    fn mark(
        &self,
        victims: &BTreeSet<ZoneId>,
        runs: &[Rc<Entries>],
    ) -> Kept<(Marks, BTreeSet<ZoneId>)> {
        let mut marks: Marks = victims
            .iter()
            .filter(|id| Some(**id) != self.current)
            .map(|id| (*id, BTreeSet::new()))
            .collect();
        let mut named = BTreeSet::new();
        for target in runs.iter().flat_map(|run| run.iter()) {
            let Some(Target::At(address)) = target else {
                continue;
            };
            if !self.live.contains_key(&address.0) {
                named.insert(address.0);
            }
            let (zone, page, _) = self.resolve(*address)?;
            if let Some(pages) = marks.get_mut(&zone) {
                pages.insert(page);
            }
        }
        Ok((marks, named))
    }

    /// Copies what lives into free zones, as far as there are some.
    #[allow(clippy::type_complexity)]
    fn copy(&mut self, marks: &Marks) -> Kept<(BTreeMap<ZoneId, Goal>, Vec<(ZoneId, usize)>)> {
        let mut free = self.free();
        let mut copies: Vec<(ZoneId, usize)> = Vec::new();
        let mut goals = BTreeMap::new();
        for (victim, pages) in marks {
            if pages.is_empty() {
                goals.insert(*victim, None);
                continue;
            }
            let fits = copies.last().is_some_and(|(_, no)| {
                let copied = self.device[*no].as_ref();
                copied.is_some_and(|copied| copied.pages.len() + pages.len() <= PAGES)
            });
            if !fits {
                if free.is_empty() {
                    break;
                }
                let no = free.swap_remove(self.pick(free.len()));
                let id = self.new_id();
                self.device[no] = Some(Zone {
                    id,
                    previous: None,
                    next: no,
                    groups: Vec::new(),
                    pages: Vec::new(),
                });
                self.rows.insert(id, BTreeMap::new());
                copies.push((id, no));
            }
            let (id, no) = *copies.last().expect("made above");
            let moved: Vec<_> = pages
                .iter()
                .map(|page| self.zone(*victim).pages.get(*page).copied().flatten())
                .collect();
            let copied = self.device[no].as_mut().expect("made above");
            let first = copied.pages.len();
            for chunks in moved {
                let Some(chunks) = chunks else {
                    return Err(Lost(format!("a marked page of zone {victim} is not whole")));
                };
                let rows = self.rows.get_mut(&id).expect("made above");
                rows.extend(rows_of(copied.pages.len(), &chunks));
                copied.pages.push(Some(chunks));
            }
            goals.insert(*victim, Some((id, first)));
        }
        Ok((goals, copies))
    }

    /// Replaces the manifest by one in which the victims are moved, and tells the index.
    fn commit(
        &mut self,
        goals: &BTreeMap<ZoneId, Goal>,
        marks: &Marks,
        named: &BTreeSet<ZoneId>,
    ) -> Kept<()> {
        for (victim, goal) in goals {
            let living = &marks[victim];
            if !self.has(Fault::ChainedRelocations) {
                self.compose(*victim, *goal, living);
            }
            if let Some((to, first)) = goal {
                let moved = Moved {
                    to: *to,
                    first: *first,
                    pages: living.clone(),
                };
                self.moved.insert(*victim, moved);
                self.counts.moved += 1;
            }
            self.live.remove(victim);
            self.rows.remove(victim);
            self.counts.freed += 1;
        }
        self.moved
            .retain(|from, _| named.contains(from) || goals.contains_key(from));
        if self.chance(50) {
            self.checkpoint()
        } else {
            self.manifest = self.manifest_now()
        }
        for (to, _) in goals.values().flatten() {
            if self.chance(80) {
                for content in self.rows[to].values() {
                    self.said.entry(*content).or_default().push(*to);
                }
            }
        }
        self.condemned.clear();
        Ok(())
    }

    /// Relocations that lead to a victim lead to where its pages go now.
    fn compose(&mut self, victim: ZoneId, goal: Goal, living: &BTreeSet<usize>) {
        let leading: Vec<ZoneId> = self
            .moved
            .iter()
            .filter(|(_, moved)| moved.to == victim)
            .map(|(from, _)| *from)
            .collect();
        for from in leading {
            self.counts.composed += 1;
            let old = self.moved.remove(&from).expect("listed above");
            let now = old.pages.iter().zip(old.first..);
            let kept: Vec<(usize, usize)> = now
                .filter(|(_, page)| living.contains(page))
                .map(|(page, now)| (*page, now))
                .collect();
            if let (Some((to, first)), Some((_, lowest))) = (goal, kept.first()) {
                let moved = Moved {
                    to,
                    first: first + living.range(..lowest).count(),
                    pages: kept.iter().map(|(page, _)| *page).collect(),
                };
                self.moved.insert(from, moved);
            }
        }
    }
}
