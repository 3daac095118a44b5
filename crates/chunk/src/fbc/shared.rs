//! One chunker by frequency for several streams at once: they share one table of frequent segments, and its memory.
//!
//! Between two chunks a stream has no state but the end of its coarse chunk, so streams may take turns chunk by chunk:
//! a cut is searched under a lock that all may hold together, and remembered under one that is held for that chunk
//! alone. The cuts of a stream depend on the order of all chunks, as they do in a chunker of one stream.

use std::sync::{Arc, PoisonError, RwLock};

use super::segments::{HEAD_BYTES, ITEM_BYTES};
use super::{Fbc, Params, Segments, SketchError, StreamState};
use crate::{ChunkLimits, Chunker, StreamHints};

/// A one-pass [`Fbc`] that all clones of it share.
///
/// ```
/// use onefold_chunk::{Chunks, fbc::SharedFbc};
///
/// let data: Vec<u8> = (0..200_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
/// let shared = SharedFbc::one_pass(4096);
/// assert!(Chunks::new(shared.clone(), &data).count() > 10);
/// // A later run starts from what this one learnt.
/// let later = SharedFbc::informed(4096, &shared.sketch()).unwrap();
/// assert_eq!(later.sketch(), shared.sketch());
/// ```
#[derive(Clone)]
pub struct SharedFbc {
    fbc: Arc<RwLock<Fbc>>,
    limits: ChunkLimits,
    /// The stream that this clone cuts.
    stream: StreamState,
}

impl SharedFbc {
    /// The longest sketch in bytes.
    pub const SKETCH_BYTES_MAX: usize = HEAD_BYTES + ITEM_BYTES * Params::ENTRIES_MAX;

    /// A chunker without a sketch; see [`Fbc::one_pass`].
    pub fn one_pass(mean: usize) -> Self {
        Self::of(Fbc::one_pass(mean))
    }

    /// A counting chunker without a sketch; see [`Fbc::counting`].
    pub fn counting(params: Params) -> Self {
        let segments = Segments::new(params.segment_bytes, params.modulo, params.entries_max);
        Self::of(Fbc::counting(params, segments))
    }

    /// Starts with the [`sketch`](Self::sketch) of a run with the same mean.
    ///
    /// # Errors
    /// [`SketchError`]: the bytes are not such a sketch.
    pub fn informed(mean: usize, sketch: &[u8]) -> Result<Self, SketchError> {
        Self::one_pass(mean).knowing(sketch)
    }

    /// This chunker with `sketch` in place of everything that it and its clones know.
    ///
    /// # Errors
    /// [`SketchError`]: the bytes are no sketch of a run with the same mean and pre-filter.
    pub fn knowing(self, sketch: &[u8]) -> Result<Self, SketchError> {
        let sketch = Segments::decode(sketch, Params::ENTRIES_MAX)?;
        let of = |segments: &Segments| (segments.window_bytes(), segments.modulo());
        {
            let mut fbc = self.fbc.write().unwrap_or_else(PoisonError::into_inner);
            if of(&sketch) != of(fbc.segments()) {
                return Err(SketchError("a sketch for chunks of another mean"));
            }
            fbc.segments = sketch;
        }
        Ok(self)
    }

    fn of(fbc: Fbc) -> Self {
        Self {
            limits: fbc.limits(),
            fbc: Arc::new(RwLock::new(fbc)),
            stream: StreamState::default(),
        }
    }

    /// The sketch of all streams, for a later run.
    pub fn sketch(&self) -> Vec<u8> {
        let fbc = self.fbc.read().unwrap_or_else(PoisonError::into_inner);
        fbc.segments().encode()
    }

    /// Bytes cut so far, of all streams.
    pub fn bytes_done(&self) -> u64 {
        let fbc = self.fbc.read().unwrap_or_else(PoisonError::into_inner);
        fbc.bytes_done
    }
}

impl Chunker for SharedFbc {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn begin(&mut self, _hints: &StreamHints<'_>) {
        self.stream = StreamState::default();
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limits.max)];
        // No thread panics while it holds the lock; even then, the table is still a table.
        let cut = {
            let fbc = self.fbc.read().unwrap_or_else(PoisonError::into_inner);
            fbc.look(&mut self.stream, data)
        };
        let mut fbc = self.fbc.write().unwrap_or_else(PoisonError::into_inner);
        fbc.settle(cut)
    }
}
