//! The map: where chunks of a head are, merges, clones, and readers in flight.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::world::{
    Address, Content, Fault, HEADS_MAX, Head, HeadNo, Kept, LBNS, Lost, Reader, Target, World,
};

impl World {
    pub fn resolve(&self, (zone, page, slot): Address) -> Kept<Address> {
        if self.live.contains_key(&zone) {
            return Ok((zone, page, slot));
        }
        let moved = self.moved.get(&zone);
        let Some(moved) = moved.filter(|moved| moved.pages.contains(&page)) else {
            return Err(Lost(format!(
                "nothing tells where page {page} of zone {zone} is"
            )));
        };
        let rank = moved.pages.range(..page).count();
        let slot = if self.has(Fault::RelocationsForgetSlots) {
            0
        } else {
            slot
        };
        Ok((moved.to, moved.first + rank, slot))
    }

    fn target(&self, head: HeadNo, lbn: usize) -> Option<Address> {
        let head = &self.heads[&head];
        let mut newest = std::iter::once(&head.memory).chain(head.runs.iter().map(|run| &**run));
        match newest.find_map(|entries| entries[lbn])? {
            Target::Hole => None,
            Target::At(address) => Some(address),
        }
    }

    fn place(&self, head: HeadNo, lbn: usize) -> Kept<Option<(Address, usize)>> {
        let Some(address) = self.target(head, lbn) else {
            return Ok(None);
        };
        let address = self.resolve(address)?;
        match self.live.get(&address.0) {
            Some(no) => Ok(Some((address, *no))),
            None => Err(Lost(format!("{address:?} is in no live zone"))),
        }
    }

    pub fn read(&self, head: HeadNo, lbn: usize) -> Kept<Option<Content>> {
        let Some(((zone, page, slot), no)) = self.place(head, lbn)? else {
            return Ok(None);
        };
        let found = self.device[no].as_ref().filter(|found| found.id == zone);
        let chunks = found.and_then(|found| found.pages.get(page).copied().flatten());
        let content = chunks.and_then(|chunks| chunks[slot]);
        match content {
            Some(content) => Ok(Some(content)),
            None => Err(Lost(format!("page {page} of zone {zone} is not whole"))),
        }
    }

    pub fn check(&self) -> Kept<()> {
        for (head, contents) in &self.model {
            for (lbn, expected) in contents.iter().enumerate() {
                let found = self.read(*head, lbn)?;
                if found != *expected {
                    return Err(Lost(format!(
                        "LBN {lbn} of head {head} is {found:?}, expected {expected:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Merges neighbouring runs of a head, with the addresses as they are now.
    pub fn merge(&mut self) -> Kept<()> {
        let many: Vec<HeadNo> = self
            .heads
            .iter()
            .filter(|(_, head)| head.runs.len() > 1)
            .map(|(no, _)| *no)
            .collect();
        if many.is_empty() {
            return Ok(());
        }
        let no = many[self.pick(many.len())];
        let count = self.heads[&no].runs.len();
        let first = self.pick(count - 1);
        let last = first + 1 + self.pick(count - first - 1);
        let mut merged = [None; LBNS];
        for run in self.heads[&no].runs[first..=last].iter().rev() {
            for (lbn, target) in run.iter().enumerate() {
                match target {
                    Some(Target::At(address)) => {
                        merged[lbn] = Some(Target::At(self.resolve(*address)?));
                    }
                    Some(Target::Hole) if last == count - 1 => merged[lbn] = None,
                    Some(Target::Hole) => merged[lbn] = Some(Target::Hole),
                    None => {}
                }
            }
        }
        let head = self.heads.get_mut(&no).expect("chosen above");
        head.runs.splice(first..=last, [Rc::new(merged)]);
        // Memtables stay, and so does the log's position.
        self.manifest.heads = self.listed_heads();
        Ok(())
    }

    pub fn listed_heads(&self) -> BTreeMap<HeadNo, Head> {
        let listed = self.heads.iter().map(|(no, head)| {
            let head = Head {
                memory: [None; LBNS],
                ..head.clone()
            };
            (*no, head)
        });
        listed.collect()
    }

    pub fn clone_or_delete(&mut self) {
        if self.heads.len() >= HEADS_MAX {
            let others: Vec<HeadNo> = self.heads.keys().copied().filter(|no| *no != 0).collect();
            let no = others[self.pick(others.len())];
            self.heads.remove(&no);
            self.model.remove(&no);
            self.readers.retain(|reader| reader.head != no);
        } else {
            let all: Vec<HeadNo> = self.heads.keys().copied().collect();
            let from = all[self.pick(all.len())];
            self.checkpoint();
            let is_writable = self.chance(50);
            let head = Head {
                is_writable,
                ..self.heads[&from].clone()
            };
            self.heads.insert(self.next_head, head);
            self.model.insert(self.next_head, self.model[&from]);
            self.next_head += 1;
        }
        self.checkpoint();
        self.flush();
    }

    // Readers in flight.

    pub fn begin_read(&mut self) -> Kept<()> {
        let all: Vec<HeadNo> = self.heads.keys().copied().collect();
        let (head, lbn) = (all[self.pick(all.len())], self.pick(LBNS));
        self.readers.push(Reader {
            head,
            lbn,
            place: self.place(head, lbn)?,
            possible: vec![self.model[&head][lbn]],
        });
        Ok(())
    }

    /// Reads what was resolved some time ago. A place that holds another zone now is resolved again.
    pub fn end_read(&mut self) -> Kept<()> {
        if self.readers.is_empty() {
            return Ok(());
        }
        let reader = self.readers.remove(0);
        let mut found = None;
        if let Some(((zone, page, slot), no)) = reader.place {
            let there = self.device[no].as_ref();
            let is_same = there.is_some_and(|there| there.id == zone);
            found = match there {
                Some(there) if is_same || self.has(Fault::ReaderTrustsAReusedZone) => {
                    let chunks = there.pages.get(page).copied().flatten();
                    chunks.and_then(|chunks| chunks[slot])
                }
                _ => {
                    self.counts.resolved_again += 1;
                    self.read(reader.head, reader.lbn)?
                }
            };
        }
        if reader.possible.contains(&found) {
            Ok(())
        } else {
            Err(Lost(format!(
                "a reader of LBN {} found {found:?}, which is none of {:?}",
                reader.lbn, reader.possible
            )))
        }
    }
}
