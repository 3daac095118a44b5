//! The trace file: a recorded stream of fingerprints, in frames of up to 1024 (FORMAT.md §5.4).

use onefold_chunk::Fingerprint;
use onefold_io::Disk;
use onefold_io::frame::{FrameKind, OVERHEAD_BYTES, read_frame, write_frame};
use std::sync::Arc;

use onefold_index::{Error, Result};

const TRACE_FRAME: FrameKind = FrameKind {
    magic: *b"OFTRACES",
    version: 1,
};
const FRAME_KEYS: usize = 1024;
const KEY_BYTES: usize = 32;

/// Records a stream to an empty disk.
pub struct TraceWriter {
    disk: Arc<dyn Disk>,
    at: u64,
    payload: Vec<u8>,
}

impl TraceWriter {
    /// Begins a trace.
    pub fn new(disk: Arc<dyn Disk>) -> TraceWriter {
        TraceWriter {
            disk,
            at: 0,
            payload: Vec::new(),
        }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`Error::Io`]: a full frame cannot be written.
    pub fn push(&mut self, key: &Fingerprint) -> Result<()> {
        self.payload.extend_from_slice(&key.0);
        if self.payload.len() == FRAME_KEYS * KEY_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the last frame and makes all frames durable.
    ///
    /// # Errors
    /// [`Error::Io`]: the last frame cannot be written, or not be made durable.
    pub fn finish(mut self) -> Result<()> {
        if !self.payload.is_empty() {
            self.write()?;
        }
        Ok(self.disk.sync()?)
    }

    fn write(&mut self) -> Result<()> {
        self.at += write_frame(&*self.disk, TRACE_FRAME, self.at, &self.payload)?;
        self.payload.clear();
        Ok(())
    }
}

/// Replays a trace, frame by frame.
pub struct TraceReader {
    disk: Arc<dyn Disk>,
    path: String,
    at: u64,
}

impl TraceReader {
    /// A reader of the trace on `disk`, from its beginning; `path` is for errors.
    pub fn new(disk: Arc<dyn Disk>, path: &str) -> TraceReader {
        TraceReader {
            disk,
            path: path.to_string(),
            at: 0,
        }
    }

    /// Reads the next keys, at most 1024; none at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a frame that is not whole, or is empty, or ends within a key; [`Error::Io`].
    pub fn read(&mut self) -> Result<Vec<Fingerprint>> {
        if self.at >= self.disk.len()? {
            return Ok(Vec::new());
        }
        let most = (FRAME_KEYS * KEY_BYTES) as u64;
        let payload = read_frame(&*self.disk, TRACE_FRAME, self.at, most, &self.path)?;
        if payload.is_empty() || payload.len() % KEY_BYTES != 0 {
            let what = format!("a frame of {} bytes", payload.len());
            return Err(Error::damaged(&self.path, self.at, what));
        }
        self.at += (payload.len() + OVERHEAD_BYTES) as u64;
        let key = |bytes: &[u8]| Fingerprint(bytes.try_into().expect("32 bytes"));
        Ok(payload.chunks_exact(KEY_BYTES).map(key).collect())
    }
}
