//! Statistics of the data that the chunker of file contents has gathered, for the next backup. Specified in FORMAT.md,
//! "Sketch".
//!
//! Advice: without it, or with an older one, chunks are cut otherwise and some are stored once more; nothing else
//! depends on it. It is replaced whole, so of two backups that end at the same time the last one's stays.

use onefold_io::frame::{self, FrameKind, OVERHEAD_BYTES};
use onefold_keys::{SALT_BYTES, TAG_BYTES};

use crate::objects::read_twice_at_most;
use crate::repository::Repository;
use crate::{Error, Result};

/// The frame of the sketch.
pub const SKETCH: FrameKind = FrameKind {
    magic: *b"1FSKETCH",
    version: 1,
};
/// The name of its object.
pub const SKETCH_OBJECT: &str = "sketch";
/// No sketch may be longer, in bytes: nothing larger is read.
pub const SKETCH_BYTES_MAX: usize = 8 << 20;

impl Repository {
    /// The sketch that was put last, if there is one.
    ///
    /// # Errors
    /// [`Error::Damaged`] for bytes that are not what was written, which a backup can do without.
    pub fn sketch(&self) -> Result<Option<Vec<u8>>> {
        let shared = &self.shared;
        let stored_bytes = match shared.objects.len(SKETCH_OBJECT) {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        let damaged = |what: &str| Error::damaged(SKETCH_OBJECT, None, what);
        if stored_bytes > (SKETCH_BYTES_MAX + OVERHEAD_BYTES + SALT_BYTES + TAG_BYTES) as u64 {
            return Err(damaged("longer than a sketch may be"));
        }
        read_twice_at_most(&*shared.objects, SKETCH_OBJECT, || {
            let stored = shared.objects.get(SKETCH_OBJECT)?;
            let payload = frame::decode_whole(SKETCH, &stored, SKETCH_OBJECT, 0)?;
            let keys = &shared.keys;
            let opened = keys.open_object(&SKETCH.magic, payload, SKETCH_OBJECT)?;
            Ok(Some(opened))
        })
    }

    /// Keeps `sketch` in place of the one before, durably. A dry run keeps nothing.
    ///
    /// # Errors
    /// [`Error::Option`] for one longer than [`SKETCH_BYTES_MAX`]; what the device says.
    pub fn put_sketch(&self, sketch: &[u8]) -> Result<()> {
        let shared = &self.shared;
        if sketch.len() > SKETCH_BYTES_MAX {
            return Err(Error::Option(format!(
                "a sketch of {} bytes; {SKETCH_BYTES_MAX} can be",
                sketch.len()
            )));
        }
        if shared.options.dry_run {
            return Ok(());
        }
        let entropy = &shared.options.entropy;
        let sealed = shared.keys.seal_object(&SKETCH.magic, sketch, entropy)?;
        let stored = frame::encode_frame(SKETCH, &sealed);
        shared.objects.put(SKETCH_OBJECT, &[&stored])
    }
}
