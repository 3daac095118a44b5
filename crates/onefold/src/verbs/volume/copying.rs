//! Copying bytes into a hinted file, with progress: what `volume dd` and `volume cp` share.

use std::io;
use std::time::{Duration, Instant};

use onefold_io::PageBuffer;
use serde_json::json;

use super::hinted_file::HintedFile;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;
use crate::progress::line;
use crate::signal;

/// Interval at which the line of progress is shown.
const SHOW_AGAIN: Duration = Duration::from_millis(100);

/// A copy that is made.
pub struct Copying<'a> {
    /// Name of the input, for messages.
    pub from: String,
    /// Bytes that are read at once.
    pub block_bytes: usize,
    /// Bytes that are copied at most.
    pub bytes_max: u64,
    /// Bytes that will be copied, where that is known.
    pub bytes_expected: Option<u64>,
    pub out: &'a Out,
}

/// Bytes that were copied, and since when.
pub struct CopyProgress {
    pub bytes: u64,
    started: Instant,
    is_interrupted: bool,
}

impl Copying<'_> {
    /// Copies what `read` gives for an offset, block by block, until it gives nothing, or a signal comes, for which the
    /// caller listens.
    ///
    /// # Errors
    /// The input cannot be read, or the file cannot be written.
    pub fn run(
        &self,
        read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>,
        target: &mut HintedFile,
    ) -> Result<CopyProgress> {
        let mut copied = CopyProgress {
            bytes: 0,
            started: Instant::now(),
            is_interrupted: false,
        };
        let mut buffer = PageBuffer::zeroed(self.block_bytes);
        let mut shown = copied.started;
        while copied.bytes < self.bytes_max {
            if signal::raised() {
                copied.is_interrupted = true;
                break;
            }
            let count = read(&mut buffer[..], copied.bytes)
                .map_err(|error| Error::io(format!("read {}", self.from), error))?;
            if count == 0 {
                break;
            }
            let left = self.bytes_max - copied.bytes;
            let count = (count as u64).min(left) as usize;
            target.write(&buffer[..count])?;
            copied.bytes += count as u64;
            let is_asked = signal::asked();
            if is_asked || self.out.bar && shown.elapsed() >= SHOW_AGAIN {
                shown = Instant::now();
                self.show(&copied, is_asked);
            }
        }
        line::clear();
        Ok(copied)
    }

    fn show(&self, copied: &CopyProgress, is_asked: bool) {
        let of = match self.bytes_expected {
            Some(bytes) => format!(" of {}", human::bytes(bytes)),
            None => String::new(),
        };
        let done = human::bytes(copied.bytes);
        let text = format!("{done}{of}, {}/s", human::bytes(copied.bytes_a_second()));
        if is_asked {
            self.out.note(text)
        } else {
            line::show(&text)
        }
    }

    /// Tells what was copied.
    ///
    /// # Errors
    /// Standard output fails.
    pub fn tell(&self, copied: &CopyProgress) -> Result<Exit> {
        let seconds = copied.started.elapsed().as_secs_f64();
        if self.out.json {
            self.out.json(&json!({
                "message_type": "copied",
                "bytes": copied.bytes,
                "seconds": seconds,
                "interrupted": copied.is_interrupted,
            }))?;
        } else {
            self.out.say(format_args!(
                "copied {} in {seconds:.1} s, {}/s",
                human::bytes(copied.bytes),
                human::bytes(copied.bytes_a_second())
            ))?;
        }
        Ok(if copied.is_interrupted {
            Exit::Interrupted
        } else {
            Exit::Ok
        })
    }
}

impl CopyProgress {
    fn bytes_a_second(&self) -> u64 {
        (self.bytes as f64 / self.started.elapsed().as_secs_f64().max(0.001)) as u64
    }
}
