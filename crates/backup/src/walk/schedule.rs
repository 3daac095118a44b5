//! Schedule of the walk: tasks in the order of their results, the foremost first; results are handed out in order.
//!
//! Every task has a key; a task only ever makes tasks with greater keys, in the same step in which its own result
//! becomes ready (a task without a result may make one with its own key). So the smallest key is always the next
//! result, be it ready, running or waiting. Workers take the smallest waiting task, and stop looking ahead when enough
//! results wait for the consumer. Tasks that come before all waiting results are always allowed: the consumer is about
//! to wait for them, and however much lies ahead of a slow folder, the folders below it are looked at side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::folder::{FolderTask, TaskResult};
use super::key::WalkKey;
use super::opened::OpenFiles;
use super::shared::{AHEAD_ENTRIES_MAX, WalkShared};
use super::{FolderPart, Options, WalkedEntry};

/// Number of waiting entries at which stopped workers go on: with a greater number, all would be woken for each piece.
const AHEAD_ENTRIES_FEW: usize = AHEAD_ENTRIES_MAX / 4 * 3;
/// Approximate bytes of an entry.
const ENTRY_BYTES: usize = 150;
/// Interval at which a consumer that waits for a piece asks whether it is still wanted.
const ASKING: Duration = Duration::from_millis(100);

enum TaskSlot {
    Waiting(Box<FolderTask>),
    Running,
    /// A piece that is ready, and the entries that it counts as.
    Ready(Box<FolderPart>, usize),
}

struct TaskQueue {
    slots: BTreeMap<WalkKey, TaskSlot>,
    waiting: BTreeSet<WalkKey>,
    ahead: usize,
}

impl TaskQueue {
    /// Whether the next piece is ready.
    fn is_ready(&self) -> bool {
        let first = self.slots.first_key_value();
        matches!(first, Some((_, TaskSlot::Ready(..))))
    }

    /// Whether no ready piece comes before the result of the first waiting task: the consumer is about to wait for it,
    /// however much lies behind.
    fn is_wanted_soon(&self) -> bool {
        self.waiting.first().is_some_and(|first| {
            let mut before = self.slots.range(..first);
            !before.any(|(_, slot)| matches!(slot, TaskSlot::Ready(..)))
        })
    }
}

pub(super) struct Schedule {
    state: Mutex<TaskQueue>,
    shared: WalkShared,
    work: Condvar,
    ready: Condvar,
}

impl Schedule {
    pub fn new((key, task): (WalkKey, FolderTask), open_files: OpenFiles) -> Self {
        let state = TaskQueue {
            slots: BTreeMap::from([(key.clone(), TaskSlot::Waiting(Box::new(task)))]),
            waiting: BTreeSet::from([key]),
            ahead: 0,
        };
        Self {
            state: Mutex::new(state),
            shared: WalkShared::new(open_files),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// Returns the next piece in order; `None` at the end, or soon after `is_over` returns true.
    pub fn next(&self, is_over: &dyn Fn() -> bool) -> Option<FolderPart> {
        let mut state = self.state.lock();
        loop {
            let mut first = state.slots.first_entry()?;
            if let TaskSlot::Ready(..) = first.get_mut() {
                let TaskSlot::Ready(piece, weight) = first.remove() else {
                    unreachable!("it was ready")
                };
                let were_many = state.ahead > AHEAD_ENTRIES_FEW;
                state.ahead -= weight;
                if were_many && state.ahead <= AHEAD_ENTRIES_FEW || !state.is_ready() {
                    self.work.notify_all();
                }
                return Some(*piece);
            }
            if self.shared.is_stopped.load(Relaxed) || is_over() {
                return None;
            }
            self.work.notify_one();
            self.ready.wait_for(&mut state, ASKING);
        }
    }

    /// Whether the next piece is ready.
    pub fn is_ready(&self) -> bool {
        self.state.lock().is_ready()
    }

    /// Ends the workers after their current tasks.
    pub fn stop(&self) {
        let _state = self.state.lock();
        self.shared.is_stopped.store(true, Relaxed);
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Works until the walk is over.
    pub fn work(&self, options: &Options) {
        while let Some((key, task)) = self.take() {
            let done = task.run(&key, options, &self.shared);
            self.finish(key, done);
        }
    }

    fn take(&self) -> Option<(WalkKey, FolderTask)> {
        let mut state = self.state.lock();
        loop {
            if self.shared.is_stopped.load(Relaxed) || state.slots.is_empty() {
                return None;
            }
            if (state.ahead <= AHEAD_ENTRIES_MAX || state.is_wanted_soon())
                && let Some(key) = state.waiting.pop_first()
            {
                self.shared.waiting.store(state.waiting.len(), Relaxed);
                let slot = state.slots.insert(key.clone(), TaskSlot::Running);
                let Some(TaskSlot::Waiting(task)) = slot else {
                    unreachable!("a waiting key has a waiting task")
                };
                return Some((key, *task));
            }
            self.work.wait(&mut state);
        }
    }

    fn finish(&self, key: WalkKey, done: TaskResult) {
        let ready = done.piece.map(|piece| {
            let weight = self.weight(&piece);
            (Box::new(piece), weight)
        });
        let mut state = self.state.lock();
        let state = &mut *state;
        let is_first = state.slots.keys().next() == Some(&key);
        state.slots.remove(&key);
        let more = done.next.len();
        for (key, task) in done.next {
            state.waiting.insert(key.clone());
            state.slots.insert(key, TaskSlot::Waiting(Box::new(task)));
        }
        self.shared.waiting.store(state.waiting.len(), Relaxed);
        if let Some((piece, weight)) = ready {
            state.ahead += weight;
            state.slots.insert(key, TaskSlot::Ready(piece, weight));
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

    fn weight(&self, piece: &FolderPart) -> usize {
        let bytes = piece.folder.len() + piece.ignore_bytes;
        let is_open = |found: &&WalkedEntry| found.opened.is_some();
        self.shared.folder_entries
            + piece.found.len()
            + piece.found.iter().filter(is_open).count() * self.shared.file_entries
            + bytes / ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::path;
    use crate::walk::{SOUND, Select};

    fn options() -> Options {
        Options {
            threads: 1,
            excludes: Default::default(),
            one_file_system: false,
            read_special: false,
            open_files: 0,
            failing: SOUND,
        }
    }

    #[test]
    fn who_waits_for_a_piece_that_does_not_come_may_give_up() {
        let schedule = Schedule::new(FolderTask::root(Default::default()), OpenFiles::new(0));
        assert!(schedule.take().is_some());
        assert!(schedule.next(&|| true).is_none());
    }

    #[test]
    fn long_paths_and_ignore_files_count_in_what_is_looked_at_ahead() {
        let schedule = Schedule::new(FolderTask::root(Default::default()), OpenFiles::new(0));
        let mut piece = super::super::folder::empty(vec![b'a'; 1 << 20].into());
        assert!(schedule.weight(&piece) > AHEAD_ENTRIES_MAX / 8);
        piece.ignore_bytes = 8 << 20;
        assert!(schedule.weight(&piece) > AHEAD_ENTRIES_MAX);
    }

    /// Much more may lie behind a slow folder than may wait.
    #[test]
    fn folders_that_are_wanted_soon_are_looked_at_side_by_side_however_much_is_there_behind_them() {
        let dir = tempfile::tempdir().expect("dir");
        for name in ["a/1", "a/2", "a/3", "b"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("dir");
        }
        let source = dir.path().as_os_str().as_encoded_bytes().to_vec();
        let select = Select::new(std::slice::from_ref(&source)).expect("not deep");
        let schedule = Schedule::new(FolderTask::root(Arc::new(select)), OpenFiles::new(0));
        let options = options();
        let is_at = |key: &WalkKey, below: &str| key.folder.path().ends_with(below.as_bytes());
        let look = |(key, task): (WalkKey, FolderTask)| {
            schedule.finish(key.clone(), task.run(&key, &options, &schedule.shared));
        };
        // Work up to `a`, whose folders wait then; `b` is ready before them.
        let a = loop {
            let taken = schedule.take().expect("a task");
            if is_at(&taken.0, "/a") {
                break taken;
            }
            look(taken);
            while schedule.is_ready() {
                schedule.next(&|| false).expect("a piece");
            }
        };
        let b = schedule.take().expect("a task");
        assert!(is_at(&b.0, "/b"));
        look(b);
        look(a);
        schedule.next(&|| false).expect("that of a");
        schedule.state.lock().ahead += AHEAD_ENTRIES_MAX;
        for below in ["/a/1", "/a/2", "/a/3"] {
            assert!(is_at(&schedule.take().expect("a task").0, below));
        }
        assert!(schedule.state.lock().waiting.is_empty());
    }

    /// Each level of the tree has hundreds of folders that wait until everything below one of them is looked at.
    #[test]
    fn of_a_deep_and_wide_tree_few_folders_wait_and_none_is_left_out() {
        let (levels, width) = (30, 500);
        let dir = tempfile::tempdir().expect("dir");
        let mut folder = dir.path().to_path_buf();
        for _ in 0..levels {
            (0..width).for_each(|n| {
                std::fs::create_dir(folder.join(format!("{n:03}"))).expect("dir");
            });
            folder.push("000");
        }
        let below = dir.path().as_os_str().as_encoded_bytes();
        let select = Select::new(&[below.to_vec()]).expect("not deep");
        let schedule = Schedule::new(FolderTask::root(Arc::new(select)), OpenFiles::new(0));
        let options = options();
        let (mut most, mut folders) = (0, Vec::<Arc<[u8]>>::new());
        while let Some((key, task)) = schedule.take() {
            schedule.finish(key.clone(), task.run(&key, &options, &schedule.shared));
            most = most.max(schedule.state.lock().waiting.len());
            while matches!(
                schedule.state.lock().slots.first_key_value(),
                Some((_, TaskSlot::Ready(..)))
            ) {
                let piece = schedule.next(&|| false).expect("a piece");
                assert!(piece.errors.is_empty());
                if folders.last() != Some(&piece.folder) {
                    folders.push(piece.folder);
                }
            }
        }
        assert!(most < 10_000, "{most}");
        assert!(folders.is_sorted_by(|a, b| path::order(a, b).is_lt()));
        folders.retain(|folder| folder.starts_with(below));
        assert_eq!(folders.len(), 1 + levels * width);
    }
}
