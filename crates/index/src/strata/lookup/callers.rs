//! What lookups keep from one to the next, for any number of callers at once.
//!
//! The prefetch cache is shared: who asks it holds it together with others, who adds pages to it holds it alone, and
//! nobody holds it while pages are read. What a stream has come to is kept for each caller (thread) apart. Always
//! holds: the cache is of one view of the index, the newest that a lookup began with. A lookup that began with an older
//! one goes on without the cache, since page numbers may mean other pages there: that costs reads, never an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use parking_lot::{MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::super::cache::PageCache;
use super::super::manifest::FileId;
use super::super::options::Plan;
use super::super::view::View;
use super::Lookup;
use crate::IndexStats;

/// Callers whose streams are kept in mind; of more, those that asked last.
const STREAMS_MAX: usize = 64;

/// What lookups keep from one to the next.
pub struct Lookups {
    cached: RwLock<Cached>,
    streams: Mutex<Vec<(ThreadId, Stream)>>,
    /// Room for pages that are read, for the next lookup; one that finds it taken has room of its own for as long.
    buf: Mutex<Vec<u8>>,
    /// Log pages that were read into the cache.
    pages_read: AtomicU64,
    /// Whether all were, or are being.
    whole: AtomicBool,
    /// Whether the device was told of the whole index, if it is small.
    told: AtomicBool,
    /// Run pages that are read at once.
    pub(super) pages_max: usize,
    stats: Mutex<IndexStats>,
}

/// The prefetch cache, and what it is of.
struct Cached {
    cache: PageCache,
    /// RAM that it may take.
    cache_bytes: usize,
    /// Which index the cached pages are of, and how new.
    born: u64,
    generation: u64,
}

/// What a caller's stream has come to.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// About which part of its keys the cache knows, after a wave of reads.
    pub(super) locality: f32,
    /// The log page that it has come to, if one was seen in the cache.
    pub(super) reached: Option<u32>,
}

impl Lookups {
    /// With a cache of `cache_bytes` until an index is followed, reading at most `pages_max` pages of runs at once.
    pub fn new(cache_bytes: usize, pages_max: usize) -> Lookups {
        Lookups {
            cached: RwLock::new(Cached {
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

    /// The same for `view` alone.
    pub fn of(view: &View, cache_bytes: usize, pages_max: usize) -> Lookups {
        let lookups = Lookups::new(cache_bytes, pages_max);
        lookups.cached.write().become_of(view);
        lookups
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let streams = self.streams.lock().capacity() * size_of::<(ThreadId, Stream)>();
        self.cached.read().cache.ram_bytes() + self.buf.lock().capacity() + streams
    }

    /// What all lookups did.
    pub fn stats(&self) -> IndexStats {
        *self.stats.lock()
    }

    /// A lookup with `view`, of the thread that calls; [`end`](Self::end) it, whatever it ends with.
    pub fn begin<'a>(&'a self, view: &'a View) -> Lookup<'a> {
        let caller = std::thread::current().id();
        let streams = self.streams.lock();
        let own = streams.iter().find(|(of, _)| *of == caller);
        let new = Stream {
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

    /// Keeps what the lookup's stream has come to, and counts what it did.
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

    fn keep(&self, stream: Stream) {
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

    /// The newest view, which the cache is of from now on.
    pub fn follow(&self, newest: impl Fn() -> Arc<View>, plan: &Plan) -> Arc<View> {
        {
            let cached = self.cached.read();
            let view = newest();
            if cached.is_of(&view) {
                return view;
            }
        }
        let mut cached = self.cached.write();
        // of two that come here with two views, the second has the newer one
        let view = newest();
        if !cached.is_of(&view) && cached.follow(&view, plan) {
            self.pages_read.store(0, Ordering::Relaxed);
            self.whole.store(false, Ordering::Relaxed);
            self.streams.lock().clear();
        }
        view
    }

    /// The cache gives back what the filters of the newest view need, for who looks nothing up for long.
    pub fn give_back(&self, newest: impl Fn() -> Arc<View>, plan: &Plan) {
        let cache_bytes = newest().cache_bytes(plan);
        if cache_bytes < self.cached.read().cache_bytes {
            self.follow(newest, plan);
        }
    }

    /// Whether the device is to be told of the index: the first caller does.
    pub(super) fn is_first(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// The cache, to be asked, if it is of `view`.
    pub(super) fn cache_of(&self, view: &View) -> Option<MappedRwLockReadGuard<'_, PageCache>> {
        let cached = self.cached.read();
        let is_of = cached.is_of(view);
        is_of.then(|| RwLockReadGuard::map(cached, |cached| &cached.cache))
    }

    /// The cache, to add `pages` pages to, if it is of `view`.
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

    /// Log pages that were read into the cache; `None` where all of the log is there, or is being read.
    pub(super) fn pages_read(&self) -> Option<u64> {
        let whole = self.whole.load(Ordering::Relaxed);
        (!whole).then(|| self.pages_read.load(Ordering::Relaxed))
    }

    /// Whether the caller is the one to read all of the log.
    pub(super) fn takes_all(&self) -> bool {
        !self.whole.swap(true, Ordering::Relaxed)
    }
}

impl Cached {
    fn is_of(&self, view: &View) -> bool {
        (self.born, self.generation) == (view.manifest.born, view.manifest.generation)
    }

    fn become_of(&mut self, view: &View) {
        (self.born, self.generation) = (view.manifest.born, view.manifest.generation);
    }

    /// Forgets pages of files that `view` has not: they were dropped, joined or compacted. Forgets all where it is of
    /// another index than before: somebody deleted that. The cache begins anew where the filters leave more or less to
    /// it than they did; whether it did.
    fn follow(&mut self, view: &View, plan: &Plan) -> bool {
        let manifest = &view.manifest;
        let is_another = self.born != manifest.born || self.generation > manifest.generation;
        let cache_bytes = view.cache_bytes(plan);
        let anew = is_another || self.cache_bytes != cache_bytes;
        if anew {
            // the old one goes before there is a new one
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
