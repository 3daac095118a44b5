//! Who looks at what next: tasks in the order of their results, the foremost first, results handed out in order.
//!
//! Every task has a key; a task only ever makes tasks with greater keys, in the same step in which its own result becomes ready (one without a result
//! may make one with its own key). So the smallest key is always the next result, be it ready, running or waiting. Workers take the smallest waiting
//! task, and stop looking ahead when enough results wait for the consumer; the task that the consumer itself waits for is always allowed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::folder::Task;
use super::put_off::PutOff;
use super::{Options, Piece};
use crate::path;

/// Entries that may wait for the consumer, ~150 bytes each.
const AHEAD_ENTRIES_MAX: usize = 32 << 10;
/// What a waiting folder counts for, in entries: it holds a file descriptor.
const AHEAD_PER_PIECE: usize = 64;

/// The place of a piece in the walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub folder: Arc<[u8]>,
    pub piece: u64,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        path::order(&self.folder, &other.folder).then(self.piece.cmp(&other.piece))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a task gave: a piece, or nothing yet, and the tasks that follow from it.
pub(super) struct Done {
    pub piece: Option<Piece>,
    pub next: Vec<(Key, Task)>,
}

enum Slot {
    Waiting(Box<Task>),
    Running,
    Ready(Box<Piece>),
}

struct State {
    slots: BTreeMap<Key, Slot>,
    waiting: BTreeSet<Key>,
    ahead: usize,
    stopped: bool,
}

pub(super) struct Schedule {
    state: Mutex<State>,
    put_off: PutOff,
    work: Condvar,
    ready: Condvar,
}

impl Schedule {
    pub fn new((key, task): (Key, Task)) -> Self {
        let state = State {
            slots: BTreeMap::from([(key.clone(), Slot::Waiting(Box::new(task)))]),
            waiting: BTreeSet::from([key]),
            ahead: 0,
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            put_off: PutOff::default(),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// The next piece in order; `None` when there is no more.
    pub fn next(&self) -> Option<Piece> {
        let mut state = self.state.lock();
        loop {
            let mut first = state.slots.first_entry()?;
            if let Slot::Ready(_) = first.get_mut() {
                let Slot::Ready(piece) = first.remove() else {
                    unreachable!("it was ready")
                };
                let was_full = state.ahead > AHEAD_ENTRIES_MAX;
                state.ahead -= weight(&piece);
                if was_full && state.ahead <= AHEAD_ENTRIES_MAX || state.slots.is_empty() {
                    self.work.notify_all();
                }
                return Some(*piece);
            }
            if state.stopped {
                return None;
            }
            self.work.notify_one();
            self.ready.wait(&mut state);
        }
    }

    /// Ends the workers after what they are doing.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Works until the walk is over.
    pub fn work(&self, options: &Options) {
        while let Some((key, task)) = self.take() {
            let done = task.run(&key, options, &self.put_off);
            self.finish(key, done);
        }
    }

    fn take(&self) -> Option<(Key, Task)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped || state.slots.is_empty() {
                return None;
            }
            let is_needed = state.waiting.first() == state.slots.keys().next();
            if (is_needed || state.ahead <= AHEAD_ENTRIES_MAX)
                && let Some(key) = state.waiting.pop_first()
            {
                let slot = state.slots.insert(key.clone(), Slot::Running);
                let Some(Slot::Waiting(task)) = slot else {
                    unreachable!("a waiting key has a waiting task")
                };
                return Some((key, *task));
            }
            self.work.wait(&mut state);
        }
    }

    fn finish(&self, key: Key, done: Done) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let is_first = state.slots.keys().next() == Some(&key);
        state.slots.remove(&key);
        let more = done.next.len();
        for (key, task) in done.next {
            state.waiting.insert(key.clone());
            state.slots.insert(key, Slot::Waiting(Box::new(task)));
        }
        if let Some(piece) = done.piece {
            state.ahead += weight(&piece);
            state.slots.insert(key, Slot::Ready(Box::new(piece)));
        }
        if is_first {
            self.ready.notify_one();
        }
        match more {
            0 if state.slots.is_empty() => drop(self.work.notify_all()),
            0 => {}
            1 => drop(self.work.notify_one()),
            _ => drop(self.work.notify_all()),
        }
    }
}

fn weight(piece: &Piece) -> usize {
    AHEAD_PER_PIECE + piece.found.len()
}
