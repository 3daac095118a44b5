//! Deletes the containers that a sweep has decided on: the list is put, sessions are waited for, roots are looked at
//! once more, and then containers go.
//!
//! Invariant: the machine ([`protocol::SweepMachine`](crate::protocol::SweepMachine)) says which step comes next.

use std::collections::HashSet;

use onefold_index::ContainerId;

use super::judge::{is_proved, search_unresolved};
use super::{StageProgress, Sweep, SweepObserver};
use crate::protocol::{Names, Sorted, SweepStep, Verdict};
use crate::registry::{Held, Living, PinState};
use crate::roots::RootId;
use crate::session::Session;
use crate::sweep::condemned::{CONDEMNED_FOLDER, ListId};
use crate::sweep::marker::Marker;
use crate::sweep::marks::Marks;
use crate::sweep::{catalogs, condemned};
use crate::{Error, Result, container};

/// The roots from which a sweep marks.
pub(super) struct AllRoots {
    /// Roots that count.
    pub(super) listed: Vec<RootId>,
    /// Roots that were forgotten, and that readers hold.
    pub(super) held: Vec<RootId>,
}

impl Sweep<'_> {
    /// Condemns what is `going`, waits out the sessions that may refer to it, and deletes all that is condemned, but
    /// for what new roots refer to and what was `not_rescued`. `session` wrote what takes the place of what goes.
    ///
    /// # Errors
    /// [`Error::Overtaken`]: nothing was deleted.
    pub(super) fn delete(
        &mut self,
        going: Vec<ContainerId>,
        not_rescued: Sorted<ContainerId>,
        session: Session,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        let shared = &self.repository.shared;
        self.protocol.judged(Verdict {
            condemned: going.into(),
            not_rescued,
        });
        if self.protocol.next() == SweepStep::End {
            self.remove_lists_of_the_gone()?;
            return session.finish();
        }
        // The index must lead to the new copies.
        session.checkpoint()?;
        if self.protocol.next() == SweepStep::PutList {
            self.put_list(&session)?;
        }
        self.confirm(&session)?;
        self.find_graced()?;
        let waiting = self.protocol.condemned().as_slice().len() + self.inherited().len();
        if !self.wait(&session, observer)? {
            self.protocol.gave_up_waiting();
            self.report.pending_containers = waiting as u64;
            return Ok(());
        }
        self.protocol.waited();
        self.mark_new(observer)?;
        // Without a list who begins counts on what is on it.
        let listed = condemned::containers(&condemned::lists(&*shared.objects)?);
        let mut going = self.protocol.going().as_slice().iter();
        if let Some(away) = going.find(|id| listed.binary_search(id).is_err()) {
            let object = self.list_of(*away).object();
            return Err(Error::Overtaken { object });
        }
        self.confirm(&session)?;
        self.delete_going(observer)?;
        session.finish()
    }

    /// Puts the list of what this sweep condemned.
    fn put_list(&mut self, session: &Session) -> Result<()> {
        let shared = &self.repository.shared;
        let condemned = self.protocol.condemned().as_slice().to_vec();
        // A list that is known to be in vain is not put: everything on a list costs a rewriting.
        session.confirm_not_overtaken()?;
        let number = shared.options.entropy.try_u64()?;
        condemned::put(&*shared.objects, number, &condemned)?;
        self.lists.push((ListId::Sweep(number), condemned));
        self.protocol.list_put();
        Ok(())
    }

    /// Finds the lists that are too young for anything on them to be deleted, by the store's clock.
    fn find_graced(&mut self) -> Result<()> {
        if self.grace_s == 0 {
            return Ok(());
        }
        let ages = self.repository.shared.objects.ages(CONDEMNED_FOLDER)?;
        for (list, _) in &self.lists {
            let age_s = ages.iter().find(|(object, _)| *object == list.object());
            let age_s = age_s.and_then(|(_, age_s)| *age_s);
            // A list whose age nobody knows waits for ever.
            if age_s < Some(self.grace_s) {
                self.graced.insert(*list);
            }
        }
        let graced = self.graced_containers();
        self.report.graced_containers = graced.len() as u64;
        Ok(())
    }

    /// The containers on lists that wait still.
    fn graced_containers(&self) -> HashSet<ContainerId> {
        let lists = self.lists.iter();
        let graced = lists.filter(|(list, _)| self.graced.contains(list));
        graced.flat_map(|(_, ids)| ids.iter().copied()).collect()
    }

    /// A sweep that takes this session for dead removes its pin, then reads the lists: with the pin still there, it
    /// will count on nothing that is on this one's.
    fn confirm(&mut self, session: &Session) -> Result<()> {
        let held = || self.lock.map_or(Ok(()), Held::confirm);
        let confirmed = session.confirm_not_overtaken().and_then(|()| held());
        self.protocol.confirmed(confirmed.is_ok());
        confirmed
    }

    /// The list that a container stands on.
    fn list_of(&self, container: ContainerId) -> ListId {
        let mut on = self.lists.iter();
        let found = on.find(|(_, ids)| ids.binary_search(&container).is_ok());
        found.map_or(ListId::Before, |(id, _)| *id)
    }

    /// Deletes what goes, and the lists all of which is gone then.
    fn delete_going(&mut self, observer: &mut dyn SweepObserver) -> Result<()> {
        let shared = &self.repository.shared;
        let going = self.protocol.going().as_slice();
        // A root that was removed must not come back, in a power cut, when what it refers to is gone: whoever removed
        // it may have died before that was durable.
        shared.keep_roots()?;
        shared.with_index(|index| {
            index.retire(going)?;
            Ok(index.checkpoint()?)
        })?;
        for (i, id) in going.iter().enumerate() {
            observer.progress(StageProgress {
                stage: "deleting",
                done: i as u64,
                total: going.len() as u64,
            });
            let object = container::object_name(*id);
            let bytes = match shared.objects.len(&object) {
                Err(error) if error.is_not_found() => continue, // by the sweep that condemned it
                other => other.unwrap_or(0),
            };
            shared.objects.delete(&object)?;
            self.report.deleted_containers += 1;
            self.report.freed_bytes += bytes;
        }
        shared.with_index(|index| index.unlist(going))?;
        self.remove_lists_of_the_gone()?;
        if shared.place.ways.is_dear()
            && let Err(error) = catalogs::merge(shared)
        {
            tracing::info!("{error}: catalogs stay as they are");
        }
        self.protocol.deleted();
        Ok(())
    }

    /// Removes each list of which all is gone.
    fn remove_lists_of_the_gone(&self) -> Result<()> {
        if self.lists.is_empty() {
            return Ok(());
        }
        let shared = &self.repository.shared;
        let left = shared.containers()?;
        for (list, ids) in &self.lists {
            if !ids.iter().any(|id| left.binary_search(id).is_ok()) {
                shared.objects.delete(&list.object())?;
            }
        }
        Ok(())
    }

    /// Deletes damaged containers whose good chunks are durable elsewhere: roots that refer to them are no reason to
    /// keep them. What else is condemned is left to a sweep.
    pub(crate) fn delete_damaged(
        &mut self,
        list: Vec<ContainerId>,
        session: Session,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        if list.is_empty() {
            return session.finish();
        }
        self.grace_s = 0;
        self.protocol.roots_locked();
        let all = self.list_roots(observer)?;
        self.marked.extend(all.listed.into_iter().chain(all.held));
        self.roots_listed();
        let not_rescued = self.protocol.inherited().minus(&list.clone().into());
        self.delete(list, not_rescued, session, observer)
    }

    /// Lists roots while nobody changes them: a listing is no moment, and a root that is put in another's place could
    /// be missed under both names. Where the lock is held the observer waits. What readers hold is asked for after
    /// that: whoever is not seen to hold a root now looks later whether it is still there.
    pub(super) fn list_roots(&self, observer: &mut dyn SweepObserver) -> Result<AllRoots> {
        let listed = self.listed_roots(observer)?;
        let mut held = self.repository.held_roots()?;
        held.retain(|root| listed.binary_search(root).is_err());
        Ok(AllRoots {
            listed,
            held: held.into_iter().collect(),
        })
    }

    fn listed_roots(&self, observer: &mut dyn SweepObserver) -> Result<Vec<RootId>> {
        if self.lock.is_none() {
            return self.repository.roots();
        }
        loop {
            match self.repository.lock_roots() {
                Err(Error::Locked { what }) if observer.wait_for_change(&what) => {}
                lock => {
                    let _lock = lock?;
                    return self.repository.roots();
                }
            }
        }
    }

    /// Tells the machine which roots were looked at.
    pub(super) fn roots_listed(&mut self) {
        let marked: Vec<_> = self.marked.iter().copied().collect();
        self.protocol.roots_listed(marked.into(), true);
    }

    /// Returns when every session but this sweep's own that lives now, and has not read all lists, is over; false where
    /// the observer gave up. Nobody waits for one that is stale: it is revoked, and puts no root any more. The root of
    /// one that has committed is put for it.
    fn wait(&self, session: &Session, observer: &mut dyn SweepObserver) -> Result<bool> {
        let registry = &*self.repository.shared.place.registry;
        let mut waited_for: Option<HashSet<String>> = None;
        loop {
            let mut living = registry.living()?;
            living.retain(|one| {
                let is_own = session.pin_name() == Some(&*one.name);
                let is_waited_for = waited_for
                    .as_ref()
                    .is_none_or(|all| all.contains(&one.name));
                // Chunks that a reader holds are marked.
                let is_reader = !one.holds.is_empty();
                !is_own && is_waited_for && !is_reader && !self.is_known_to(one)
            });
            let is_over = |one: &Living| one.is_stale || one.state != PinState::Active;
            for one in living.extract_if(.., |one| is_over(one)) {
                registry.revoke(&one.name)?;
            }
            if living.is_empty() {
                return Ok(true);
            }
            let infos: Vec<_> = living.iter().map(|one| one.info.clone()).collect();
            if !observer.wait_for(&infos) {
                return Ok(false);
            }
            waited_for = Some(living.into_iter().map(|one| one.name).collect());
        }
    }

    /// Whether the session has read all lists of which this sweep deletes something.
    fn is_known_to(&self, session: &Living) -> bool {
        let lists = self.lists.iter().map(|(list, _)| list);
        let deleted_from = lists.filter(|list| !self.graced.contains(list));
        let mut lists = deleted_from.map(|list| list.registered());
        lists.all(|list| list.is_some_and(|list| session.seen.contains(&list)))
    }

    /// Marks from the roots that came up since the first look: what they refer to stays, wherever the index or the
    /// tables say that it is. It stays condemned, and a later sweep rescues it.
    fn mark_new(&mut self, observer: &mut dyn SweepObserver) -> Result<()> {
        let shared = &self.repository.shared;
        let mut marks = Marks::new(&*shared.place.own)?;
        let mut unresolved = HashSet::new();
        self.protocol.roots_locked();
        // One that is removed while we come to it was given another name, perhaps: that is listed then.
        loop {
            let AllRoots {
                listed: mut new,
                mut held,
            } = self.list_roots(observer)?;
            new.retain(|id| !self.marked.contains(id));
            held.retain(|id| !self.marked.contains(id));
            // After the roots: what they refer to was there before they were.
            let listed = shared.containers()?;
            let mut marker = Marker::new(self.repository, &listed, &[]);
            let mut all_read = true;
            for id in new {
                if marker.mark(&id, self.roots, &mut self.reader, &mut marks.taker())? {
                    self.marked.insert(id);
                } else {
                    all_read = false;
                }
                if let Some((_, error)) = marker.damaged.pop() {
                    return Err(error);
                }
            }
            for id in held {
                // One that is nowhere was forgotten by hand.
                marker.mark_held(&id, self.roots, &mut self.reader, &mut marks.taker())?;
                if let Some((_, error)) = marker.damaged.pop() {
                    return Err(error);
                }
                self.marked.insert(id);
            }
            unresolved.extend(marker.unresolved.into_keys());
            if all_read {
                break;
            }
        }
        self.roots_listed();
        let condemned = self.protocol.condemned().plus(self.protocol.inherited());
        let all = condemned.as_slice();
        let mut needed = search_unresolved(all, &mut self.reader, &unresolved, &mut marks)?;
        let mut proved = true;
        let reader = &mut self.reader;
        marks.for_each(&mut |marks| {
            proved &= !marks.followed || is_proved(reader, &marks)?;
            needed.insert(marks.id);
            Ok(())
        })?;
        // They stay condemned, too, and the next sweep has nothing of them to rescue.
        needed.extend(self.graced_containers());
        self.protocol.new_marked(if proved {
            needed.into_iter().collect::<Vec<_>>().into()
        } else {
            condemned
        });
        Ok(())
    }
}
