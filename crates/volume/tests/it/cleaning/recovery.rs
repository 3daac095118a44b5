//! Crashes, and opening.

use std::collections::BTreeMap;

use super::world::{Contents, Fault, HeadNo, Kept, LBNS, Lost, Page, Position, World, rows_of};

impl World {
    /// Power fails: of what was not synced some is there, torn and in any order. Then the depot is opened.
    pub fn crash(&mut self) -> Kept<()> {
        self.counts.crashes += 1;
        for no in 0..self.device.len() {
            self.tear(no);
        }
        self.synced.clone_from(&self.device);
        self.readers.clear();
        self.open()?;
        let mut found: BTreeMap<HeadNo, Contents> = BTreeMap::new();
        for head in self.heads.keys() {
            let mut contents = [None; LBNS];
            for (lbn, content) in contents.iter_mut().enumerate() {
                *content = self.read(*head, lbn)?;
            }
            found.insert(*head, contents);
        }
        let possible = self.possible.iter().rev();
        let is_found = |version: &&BTreeMap<HeadNo, Contents>| {
            found
                .iter()
                .all(|(head, found)| version.get(head) == Some(found))
        };
        if possible.clone().find(is_found).is_none() {
            return Err(Lost(format!(
                "after a crash there is {found:?}, and none of {} versions since {:?}",
                self.possible.len(),
                self.possible[0]
            )));
        }
        self.model = found;
        self.flush();
        Ok(())
    }

    /// Leaves the part of a place that survives.
    fn tear(&mut self, no: usize) {
        let Some(mut written) = self.device[no].take() else {
            return;
        };
        let synced = self.synced[no].take();
        let is_new = synced.as_ref().is_none_or(|synced| synced.id != written.id);
        if is_new && self.chance(50) {
            self.device[no] = synced;
            return;
        }
        let kept = synced.filter(|_| !is_new);
        let (pages, groups) = kept.map_or((0, 0), |kept| (kept.pages.len(), kept.groups.len()));
        for page in &mut written.pages[pages..] {
            *page = page.filter(|_| self.random.below(100) < 70);
        }
        for group in &mut written.groups[groups..] {
            *group = group.take().filter(|_| self.random.below(100) < 70);
        }
        self.device[no] = Some(written);
    }

    /// The state of the manifest, the groups behind its position, and a new place for the log.
    pub fn open(&mut self) -> Kept<()> {
        let manifest = self.manifest.clone();
        self.next_id = if self.has(Fault::IdsGivenAgain) {
            manifest.zones.iter().map(|(_, id)| *id).max().unwrap_or(0)
        } else {
            manifest.ids_reserved
        };
        self.manifest.ids_reserved = manifest.ids_reserved + 1000;
        self.heads = manifest.heads;
        self.next_head = manifest.next_head;
        self.moved = manifest.moved;
        self.sequence = manifest.sequence;
        self.live = manifest.zones.iter().map(|(no, id)| (*id, *no)).collect();
        self.condemned.clear();
        self.current = None;
        self.begin = None;
        self.rows.clear();
        for (no, id) in &manifest.zones {
            let pages = self.device[*no].iter().flat_map(|zone| zone.pages.iter());
            let rows = pages.enumerate();
            let rows = rows.filter_map(|(page, chunks)| Some((page, (*chunks)?)));
            let rows = rows.flat_map(|(page, chunks)| rows_of(page, &chunks).collect::<Vec<_>>());
            self.rows.insert(*id, rows.collect());
        }
        self.replay(manifest.position);
        let free = self.free();
        if free.is_empty() {
            return Err(Lost("no zone is left for the log to go on in".into()));
        }
        let no = free[self.pick(free.len())];
        self.begin = Some((no, self.new_id()));
        self.checkpoint();
        Ok(())
    }

    fn replay(&mut self, position: Position) {
        let (mut no, mut id, mut done) = match position {
            Position::Begin(no, id) => (no, id, 0),
            Position::Behind(id, groups) => (self.live[&id], id, groups),
        };
        loop {
            let Some(zone) = self.device[no].clone().filter(|zone| zone.id == id) else {
                return;
            };
            self.live.insert(id, no);
            self.rows.entry(id).or_default();
            for group in zone.groups.iter().skip(done) {
                let is_whole = |pages: &[(usize, Page)]| {
                    let mut pages = pages.iter();
                    pages.all(|(page, chunks)| zone.pages.get(*page) == Some(&Some(*chunks)))
                };
                let Some(group) = group
                    .as_ref()
                    .filter(|group| group.sequence == self.sequence + 1 && is_whole(&group.pages))
                else {
                    return;
                };
                self.sequence = group.sequence;
                for (head, lbn, target) in &group.entries {
                    if let Some(head) = self.heads.get_mut(head) {
                        head.memory[*lbn] = Some(*target);
                    }
                }
                let rows = self.rows.get_mut(&id).expect("made above");
                let pages = group.pages.iter();
                rows.extend(pages.flat_map(|(page, chunks)| rows_of(*page, chunks)));
            }
            let next = self.device[zone.next].as_ref();
            let Some(next) = next.filter(|next| next.previous == Some(id)) else {
                return;
            };
            (no, id, done) = (zone.next, next.id, 0);
        }
    }
}
