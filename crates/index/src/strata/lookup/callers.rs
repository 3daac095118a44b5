//! State that lookups keep from one to the next, for any number of callers at once.
//!
//! The prefetch cache is shared: lookups that ask it hold it together, a lookup that adds pages holds it alone, and no
//! lookup holds it while pages are read. The state of a stream is kept for each caller (thread) apart. Invariant:
//! the cache belongs to one view of the index, the newest that a lookup began with. A lookup that began with an older
//! view goes on without the cache, since page numbers may mean other pages there: this costs reads, never an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use parking_lot::{MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::super::cache::PageCache;
use super::super::manifest::FileId;
use super::super::options::RamPlan;
use super::super::view::View;
use super::Lookup;
use crate::IndexStats;

/// Number of callers whose streams are kept: those that asked last.
const STREAMS_MAX: usize = 64;

/// State that lookups keep from one to the next.
pub struct Lookups {
    cached: RwLock<CachedView>,
    streams: Mutex<Vec<(ThreadId, CallerStream)>>,
    /// Buffer for pages, for the next lookup; a lookup that finds it taken allocates a buffer of its own.
    buf: Mutex<Vec<u8>>,
    /// Number of log pages that were read into the cache.
    pages_read: AtomicU64,
    /// Whether all log pages were read into the cache, or are being read.
    whole: AtomicBool,
    /// Whether the device was told to read ahead all of a small index.
    told: AtomicBool,
    /// Largest number of run pages that are read at once.
    pub(super) pages_max: usize,
    stats: Mutex<IndexStats>,
}

/// The prefetch cache and the view it belongs to.
struct CachedView {
    cache: PageCache,
    /// RAM that the cache may take, in bytes.
    cache_bytes: usize,
    /// The `born` of the manifest that the cached pages belong to; `generation` is of the same manifest.
    born: u64,
    generation: u64,
}

/// The state of a caller's stream.
#[derive(Clone, Copy)]
pub(super) struct CallerStream {
    /// Share of the stream's keys that the cache knew after a wave of reads, estimated, 0 to 1.
    pub(super) locality: f32,
    /// The log page that the stream has reached, if a key was seen in the cache.
    pub(super) reached: Option<u32>,
}

impl Lookups {
    /// Lookups with a cache of `cache_bytes` until they follow a view, reading at most `pages_max` run pages at once.
    pub fn new(cache_bytes: usize, pages_max: usize) -> Lookups {
        Lookups {
            cached: RwLock::new(CachedView {
                cache: PageCache::new(cache_bytes),
                cache_bytes,
                born: 0,
                generation: 0,
            }),
            streams: Mutex::default(),
            buf: Mutex::default(),
            pages_read: AtomicU64::new(0),
            whole: AtomicBool::new(false),
            told: AtomicBool::new(false),
            pages_max,
            stats: Mutex::default(),
        }
    }

    /// Lookups that follow `view` alone, with the same parameters as [`Lookups::new`].
    pub fn of(view: &View, cache_bytes: usize, pages_max: usize) -> Lookups {
        let lookups = Lookups::new(cache_bytes, pages_max);
        lookups.cached.write().become_of(view);
        lookups
    }

    /// RAM of the cache and the streams, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let streams = self.streams.lock().capacity() * size_of::<(ThreadId, CallerStream)>();
        self.cached.read().cache.ram_bytes() + self.buf.lock().capacity() + streams
    }

    /// The counters of all lookups.
    pub fn stats(&self) -> IndexStats {
        *self.stats.lock()
    }

    /// Begins a lookup of the calling thread with `view`; call [`end`](Self::end) with it, also after an error.
    pub fn begin<'a>(&'a self, view: &'a View) -> Lookup<'a> {
        let caller = std::thread::current().id();
        let streams = self.streams.lock();
        let own = streams.iter().find(|(of, _)| *of == caller);
        let new = CallerStream {
            locality: 1.0,
            reached: None,
        };
        Lookup {
            lookups: self,
            view,
            stream: own.map_or(new, |(_, stream)| *stream),
            buf: std::mem::take(&mut self.buf.lock()),
            stats: IndexStats::default(),
        }
    }

    /// Keeps the state of the lookup's stream, and adds its counters.
    pub fn end(&self, lookup: Lookup<'_>) {
        let Lookup {
            stream, buf, stats, ..
        } = lookup;
        self.keep(stream);
        let mut spare = self.buf.lock();
        if spare.capacity() < buf.capacity() {
            *spare = buf;
        }
        let mut all = self.stats.lock();
        all.lookups += stats.lookups;
        all.hits += stats.hits;
        all.lookup_reads += stats.lookup_reads;
        all.false_reads += stats.false_reads;
    }

    fn keep(&self, stream: CallerStream) {
        let caller = std::thread::current().id();
        let mut streams = self.streams.lock();
        match streams.iter_mut().find(|(of, _)| *of == caller) {
            Some((_, own)) => *own = stream,
            None => {
                if streams.len() == STREAMS_MAX {
                    streams.remove(0);
                }
                streams.push((caller, stream));
            }
        }
    }

    /// The newest view, to which the cache belongs from now on.
    pub fn follow(&self, newest: impl Fn() -> Arc<View>, plan: &RamPlan) -> Arc<View> {
        {
            let cached = self.cached.read();
            let view = newest();
            if cached.is_of(&view) {
                return view;
            }
        }
        let mut cached = self.cached.write();
        // of two threads that come here with two views, the second has the newer one
        let view = newest();
        if !cached.is_of(&view) && cached.follow(&view, plan) {
            self.pages_read.store(0, Ordering::Relaxed);
            self.whole.store(false, Ordering::Relaxed);
            self.streams.lock().clear();
        }
        view
    }

    /// Shrinks the cache where the filters of the newest view need its RAM, although no lookup has run for long.
    pub fn give_back(&self, newest: impl Fn() -> Arc<View>, plan: &RamPlan) {
        let cache_bytes = newest().cache_bytes(plan);
        if cache_bytes < self.cached.read().cache_bytes {
            self.follow(newest, plan);
        }
    }

    /// Whether the caller is the first one, which tells the device to read ahead the index.
    pub(super) fn is_first(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// The cache for reading, if it belongs to `view`.
    pub(super) fn cache_of(&self, view: &View) -> Option<MappedRwLockReadGuard<'_, PageCache>> {
        let cached = self.cached.read();
        let is_of = cached.is_of(view);
        is_of.then(|| RwLockReadGuard::map(cached, |cached| &cached.cache))
    }

    /// The cache for adding `pages` pages, if it belongs to `view`.
    pub(super) fn cache_to_fill(
        &self,
        view: &View,
        pages: u64,
    ) -> Option<MappedRwLockWriteGuard<'_, PageCache>> {
        let cached = self.cached.write();
        let is_of = cached.is_of(view);
        if is_of {
            self.pages_read.fetch_add(pages, Ordering::Relaxed);
        }
        is_of.then(|| RwLockWriteGuard::map(cached, |cached| &mut cached.cache))
    }

    /// Number of log pages that were read into the cache; `None` where the whole log was read, or is being read.
    pub(super) fn pages_read(&self) -> Option<u64> {
        let whole = self.whole.load(Ordering::Relaxed);
        (!whole).then(|| self.pages_read.load(Ordering::Relaxed))
    }

    /// Whether the caller is the one that has to read all of the log.
    pub(super) fn takes_all(&self) -> bool {
        !self.whole.swap(true, Ordering::Relaxed)
    }
}

impl CachedView {
    fn is_of(&self, view: &View) -> bool {
        (self.born, self.generation) == (view.manifest.born, view.manifest.generation)
    }

    fn become_of(&mut self, view: &View) {
        (self.born, self.generation) = (view.manifest.born, view.manifest.generation);
    }

    /// Makes the cache belong to `view`: forgets pages of files that `view` does not have, because they were dropped,
    /// joined or compacted. The cache is emptied where `view` is of another index, or where the filters leave it more
    /// or less RAM than before; returns whether it was.
    fn follow(&mut self, view: &View, plan: &RamPlan) -> bool {
        let manifest = &view.manifest;
        let is_another = self.born != manifest.born || self.generation > manifest.generation;
        let cache_bytes = view.cache_bytes(plan);
        let anew = is_another || self.cache_bytes != cache_bytes;
        if anew {
            // the old cache is freed before there is a new one
            self.cache = PageCache::new(0);
            self.cache = PageCache::new(cache_bytes);
            self.cache_bytes = cache_bytes;
        } else {
            let is_of =
                |page: u32, file: FileId| view.log_of(page).is_some_and(|log| log.entry.id == file);
            self.cache.retain(is_of);
        }
        self.become_of(view);
        anew
    }
}
