//! Every step that a process can take in a state. Every process may sleep for ever between two steps, die, or be taken
//! for dead by others while alive: whether a process really is stale does not matter.

use onefold_store::protocol::{ChangeStep, Names, SessionStep, SweepStep, Verdict};

use super::world::{
    CONTAINERS, Cast, Changer, Record, RootPlan, RootsHolder, Set, TAG_ROOT, World,
    container_of_session, container_of_sweep, root_of_session,
};

/// The words of a step, for the trace that leads to a loss.
pub type Label = (&'static str, &'static str);

const SESSION: [&str; 2] = ["session 1", "session 2"];
const SWEEP: [&str; 2] = ["sweep A", "sweep B"];

/// Passes each following state to `visit`, always in the same order.
pub fn successors(world: &World, cast: &Cast, visit: &mut dyn FnMut(World, Label)) {
    for number in 0..cast.sessions {
        session(world, number, visit);
    }
    forget(world, visit);
    tag(world, visit);
    for number in 0..cast.sweeps {
        sweep(world, number, visit);
    }
    lists(world, visit);
}

fn session(world: &World, number: usize, visit: &mut dyn FnMut(World, Label)) {
    let mut next = *world;
    let me = &mut next.sessions[number];
    let mut done = |next: World, what| visit(next, (SESSION[number], what));
    let is_revoked = me.record == Record::Revoked;
    match me.machine.next() {
        SessionStep::Begin => {
            me.record = Record::Active;
            me.machine.begun();
            return done(next, "begins");
        }
        SessionStep::ReadLists => {
            me.machine.lists_read(world.lists, world.all_condemned());
            done(next, "reads the lists");
        }
        SessionStep::TellLists if is_revoked => {
            me.machine.given_up();
            return done(next, "learns that it was revoked");
        }
        SessionStep::TellLists => {
            me.told = *me.machine.read();
            me.machine.lists_told();
            done(next, "tells which lists it read");
        }
        SessionStep::ListContainers => {
            me.machine.containers_listed(world.containers);
            done(next, "lists containers");
        }
        SessionStep::Work => {
            let newer = world.containers.minus(me.machine.condemned());
            for container in me.machine.live().plus(&newer).numbers() {
                let mut next = next;
                next.references[root_of_session(number) as usize] = container;
                next.sessions[number].machine.work_done();
                done(next, "refers to a container");
            }
            let own = container_of_session(number);
            next.containers.add(own);
            next.made.add(own);
            next.references[root_of_session(number) as usize] = own;
            next.sessions[number].machine.work_done();
            done(next, "stores a container");
        }
        SessionStep::Commit if is_revoked => {
            me.machine.given_up();
            return done(next, "cannot commit: it was revoked");
        }
        SessionStep::Commit => {
            if me.record == Record::Active {
                me.record = Record::Committing;
                me.told = Set::default();
                done(next, "commits, and the answer is lost");
            }
            next.sessions[number].machine.committed();
            done(next, "commits");
        }
        SessionStep::PutRoot => {
            me.machine.root_put();
            next.roots.add(root_of_session(number));
            done(next, "puts its root");
        }
        SessionStep::End => {
            me.machine.ended();
            (me.record, me.told) = (Record::Absent, Set::default());
            return done(next, "ends");
        }
        SessionStep::Over => return,
    }
    let mut next = *world;
    next.sessions[number].machine.given_up();
    done(next, "dies");
}

fn forget(world: &World, visit: &mut dyn FnMut(World, Label)) {
    let mut next = *world;
    let mut done = |next: World, what| visit(next, ("forget", what));
    let holder = RootsHolder::Forget;
    match next.forget.machine.next() {
        ChangeStep::LockRoots => {
            next.take_roots_lock(holder);
            next.forget.machine.locked();
            return done(next, "locks the roots");
        }
        ChangeStep::Choose => {
            for root in world.listed_roots().numbers() {
                let mut next = next;
                next.forget.source = root;
                next.forget.machine.chosen();
                done(next, "chooses a root");
            }
        }
        ChangeStep::Decide => {
            let is_locked = world.roots_lock == holder;
            if is_locked {
                next.plan = RootPlan::Forget;
            }
            next.forget.machine.decided(is_locked);
            done(next, "decides, if it has the lock");
        }
        ChangeStep::PutRoots => {
            next.forget.machine.roots_put();
            return done(next, "puts no root");
        }
        ChangeStep::RemoveRoots => {
            next.removed.add(world.forget.source);
            next.forget.machine.roots_removed();
            done(next, "removes the root");
        }
        ChangeStep::FreeLock => {
            next.free_roots_lock(holder);
            next.forget.machine.over();
            return done(next, "frees the lock");
        }
        ChangeStep::Over => return,
    }
    let mut next = *world;
    die(&mut next.forget, &mut next.roots_lock, holder);
    done(next, "dies");
}

fn tag(world: &World, visit: &mut dyn FnMut(World, Label)) {
    let mut next = *world;
    let mut done = |next: World, what| visit(next, ("tag", what));
    let holder = RootsHolder::Tag;
    match next.tag.machine.next() {
        ChangeStep::LockRoots => {
            next.take_roots_lock(holder);
            next.tag.machine.locked();
            return done(next, "locks the roots");
        }
        ChangeStep::Choose => {
            for root in world.listed_roots().numbers() {
                let mut next = next;
                next.tag.source = root;
                next.references[TAG_ROOT as usize] = world.references[root as usize];
                next.tag.machine.chosen();
                done(next, "chooses a root");
            }
        }
        ChangeStep::Decide => {
            let is_locked = world.roots_lock == holder;
            if is_locked {
                next.plan = RootPlan::Tag;
            }
            next.tag.machine.decided(is_locked);
            done(next, "decides, if it has the lock");
        }
        ChangeStep::PutRoots => {
            next.roots.add(TAG_ROOT);
            next.tag.machine.roots_put();
            done(next, "puts the new root");
        }
        ChangeStep::RemoveRoots => {
            next.removed.add(world.tag.source);
            next.tag.machine.roots_removed();
            done(next, "removes the old root");
        }
        ChangeStep::FreeLock => {
            next.free_roots_lock(holder);
            next.tag.machine.over();
            return done(next, "frees the lock");
        }
        ChangeStep::Over => return,
    }
    let mut next = *world;
    die(&mut next.tag, &mut next.roots_lock, holder);
    done(next, "dies");
}

/// Ends a changer of roots; the plan that it has decided stays.
fn die(changer: &mut Changer, lock: &mut RootsHolder, holder: RootsHolder) {
    changer.machine.over();
    if *lock == holder {
        *lock = RootsHolder::Nobody;
    }
}

fn sweep(world: &World, number: usize, visit: &mut dyn FnMut(World, Label)) {
    let mut next = *world;
    let id = number as u8;
    let holder = RootsHolder::Sweep(id);
    let mut done = |next: World, what| visit(next, (SWEEP[number], what));
    let me = &mut next.sweeps[number];
    let is_in_place = me.is_alive && world.sweep_lock == Some(id);
    match me.machine.next() {
        SweepStep::TakeLock => {
            me.machine.lock_taken();
            next.sweep_lock = Some(id);
            return done(next, "takes the lock");
        }
        SweepStep::Begin => {
            me.machine.begun();
            me.is_alive = true;
            done(next, "begins");
        }
        SweepStep::RevokeOthers => {
            me.machine.others_revoked();
            let others = (0..)
                .zip(&mut next.sweeps)
                .filter(|(other, _)| *other != number);
            others.for_each(|(_, other)| other.is_alive = false);
            done(next, "revokes others");
        }
        SweepStep::ReadLists => {
            me.machine.lists_read(world.lists, world.all_condemned());
            done(next, "reads the lists");
        }
        SweepStep::ListContainers => {
            me.machine.containers_listed(world.containers);
            done(next, "lists containers");
        }
        SweepStep::LockRoots(_) => {
            me.machine.roots_locked();
            next.take_roots_lock(holder);
            done(next, "locks the roots");
        }
        SweepStep::ListRoots(_) => list_roots(world, number, &mut done),
        SweepStep::Judge => judge(world, number, &mut done),
        SweepStep::PutList => {
            next.condemned[number] = *me.machine.condemned();
            me.machine.list_put();
            next.lists.add(id);
            done(next, "puts its list");
        }
        SweepStep::Confirm(_) => {
            me.machine.confirmed(is_in_place);
            done(next, "confirms its place, if it can");
        }
        SweepStep::Wait => wait(world, number, &mut done),
        SweepStep::MarkNew => mark_new(world, number, &mut done),
        SweepStep::Delete => return delete(world, number, &mut done),
        SweepStep::End => {
            me.machine.over();
            me.is_alive = false;
            if next.sweep_lock == Some(id) {
                next.sweep_lock = None;
            }
            return done(next, "ends");
        }
        SweepStep::Over => return,
    }
    done(sweep_died(world, number), "dies");
}

/// Lists the roots in two pages: some, and at the next step the others.
fn list_roots(world: &World, number: usize, done: &mut dyn FnMut(World, &'static str)) {
    let mut next = *world;
    let holder = RootsHolder::Sweep(number as u8);
    let me = &mut next.sweeps[number];
    let first_page = Set::of(TAG_ROOT);
    if let Some(page) = me.page.take() {
        let rest = world.listed_roots().minus(&first_page);
        let is_locked = world.roots_lock == holder;
        me.machine.roots_listed(page.plus(&rest), is_locked);
        next.free_roots_lock(holder);
        done(next, "lists the other roots");
    } else {
        me.page = Some(world.listed_roots().both(first_page));
        done(next, "lists some roots");
    }
}

/// Deletes any of the containers that go, or notes that all are deleted.
fn delete(world: &World, number: usize, done: &mut dyn FnMut(World, &'static str)) {
    let mut next = *world;
    let me = &mut next.sweeps[number];
    let going = me.machine.going().both(world.containers);
    if going.is_empty() {
        me.machine.deleted();
        return done(next, "has deleted all");
    }
    for container in going.numbers() {
        let mut next = *world;
        next.containers.remove(container);
        done(next, "deletes a container");
    }
}

/// Returns the world after the sweep has died: its locks are free.
fn sweep_died(world: &World, number: usize) -> World {
    let mut next = *world;
    let id = number as u8;
    let me = &mut next.sweeps[number];
    me.machine.over();
    (me.is_alive, me.page) = (false, None);
    if next.sweep_lock == Some(id) {
        next.sweep_lock = None;
    }
    if next.roots_lock == RootsHolder::Sweep(id) {
        next.roots_lock = RootsHolder::Nobody;
    }
    next
}

/// Marks from the roots of the first look, judges, and copies; with each choice that an index may lead to. A root that
/// was removed meanwhile can be read, or cannot.
fn judge(world: &World, number: usize, done: &mut dyn FnMut(World, &'static str)) {
    let marked = *world.sweeps[number].machine.marked();
    let left = marked.minus(&world.removed);
    judge_by(world, number, marked, done);
    if left != marked {
        judge_by(world, number, left, done);
    }
}

fn judge_by(world: &World, number: usize, roots: Set, done: &mut dyn FnMut(World, &'static str)) {
    let machine = &world.sweeps[number].machine;
    let inherited = *machine.inherited();
    let staying = machine.listed().both(world.containers).minus(&inherited);
    let referred = world.referred(roots);
    let direct = staying.both(referred);
    let wandering = referred.minus(&direct);
    let copy = container_of_sweep(number);
    let can_copy = !world.made.has(copy);
    let mut decide = |marked: Set, rewritten: Set, not_rescued: Set, copies: bool, what| {
        let mut next = *world;
        if copies {
            next.containers.add(copy);
            next.made.add(copy);
        }
        let dead = machine.listed().minus(&marked);
        next.sweeps[number].machine.judged(Verdict {
            condemned: dead.plus(&rewritten),
            not_rescued,
        });
        done(next, what);
    };
    if referred.is_empty() {
        return decide(
            Set::default(),
            Set::default(),
            Set::default(),
            false,
            "judges",
        );
    }
    if staying.is_empty() {
        // The chunk is in condemned containers only, or in none.
        let holders = inherited.both(world.containers);
        if can_copy && !holders.is_empty() {
            decide(
                direct,
                Set::default(),
                Set::default(),
                true,
                "rescues a chunk",
            )
        } else {
            decide(
                direct,
                Set::default(),
                holders,
                false,
                "cannot rescue a chunk",
            )
        }
        return;
    }
    // References are followed to any container that stays, or all stay as they are.
    let mut choices = vec![];
    if wandering.is_empty() {
        choices.push(direct);
    }
    for followed in staying.numbers() {
        choices.push(direct.plus(&Set::of(followed)));
        choices.push(Set::of(followed));
    }
    choices.sort_unstable_by_key(|set| set.0);
    choices.dedup();
    for marked in choices {
        decide(marked, Set::default(), Set::default(), false, "judges");
        if can_copy {
            decide(marked, marked, Set::default(), true, "judges and rewrites");
        }
    }
}

/// Waits for sessions: revokes active ones that have not read the lists, and writes the roots of committing ones.
/// Others end by themselves.
fn wait(world: &World, number: usize, done: &mut dyn FnMut(World, &'static str)) {
    let wanted = world.sweeps[number]
        .machine
        .lists()
        .plus(&Set::of(number as u8));
    let mut is_over = true;
    for (session, writer) in world.sessions.iter().enumerate() {
        let root = root_of_session(session);
        match writer.record {
            Record::Active if !wanted.minus(&writer.told).is_empty() => {
                let mut next = *world;
                next.sessions[session].record = Record::Revoked;
                next.sessions[session].told = Set::default();
                is_over = false;
                done(next, "revokes a session");
            }
            Record::Committing if !world.roots.has(root) => {
                let mut next = *world;
                next.roots.add(root);
                is_over = false;
                done(next, "puts a session's root");
            }
            _ => {}
        }
    }
    let mut next = *world;
    if is_over {
        next.sweeps[number].machine.waited();
        done(next, "has waited");
    } else {
        next.sweeps[number].machine.gave_up_waiting();
        done(next, "waits no longer");
    }
}

/// Marks from new roots: containers that they refer to are needed; a missing one is replaced by any other that has the
/// chunk.
fn mark_new(world: &World, number: usize, done: &mut dyn FnMut(World, &'static str)) {
    let referred = world.referred(*world.sweeps[number].machine.new_roots());
    let direct = referred.both(world.containers);
    let mut decide = |needed: Set| {
        let mut next = *world;
        next.sweeps[number].machine.new_marked(needed);
        done(next, "marks from new roots");
    };
    if direct == referred {
        return decide(direct);
    }
    for followed in 0..CONTAINERS {
        if world.containers.has(followed) {
            decide(direct.plus(&Set::of(followed)));
        }
    }
}

/// Removes lists once all containers on them are gone; a repeated request may write one again.
fn lists(world: &World, visit: &mut dyn FnMut(World, Label)) {
    for (list, condemned) in (0..).zip(&world.condemned) {
        let is_done = condemned.both(world.containers).is_empty() && !condemned.is_empty();
        if is_done && world.lists.has(list) {
            let mut next = *world;
            next.lists.remove(list);
            visit(next, ("somebody", "removes a list"));
        } else if is_done {
            let mut next = *world;
            next.lists.add(list);
            visit(next, ("a late request", "puts a list again"));
        }
    }
}
