//! One read of the data for all choices: each thread has its chunkers, and all share the tallies.

use std::io::{self, Read};

use onefold_chunk::sieve::Sieve;
use onefold_chunk::tar::{Tar, Tars};
use onefold_chunk::{Chunker, Fingerprint, StreamHints, UnknownChunker, by_name, fingerprints};
use parking_lot::Mutex;

use onefold_io::unless_interrupted;

use crate::idle::side_by_side;
use crate::{Estimate, Helpers, Tally};

/// A chunker and the mean that is asked of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChunkerChoice {
    /// The chunker's name.
    pub chunker: String,
    /// The mean in bytes.
    pub mean: u32,
}

/// A tally for each choice, shared by all threads.
pub struct Tallies {
    all: Vec<(ChunkerChoice, Mutex<Tally>)>,
    tars: Option<Tars>,
}

impl Tallies {
    /// Empty tallies that together take at most `ram_bytes`.
    pub fn new(choices: &[ChunkerChoice], ram_bytes: u64) -> Self {
        let share = ram_bytes / choices.len().max(1) as u64;
        let empty = |choice: &ChunkerChoice| (choice.clone(), Mutex::new(Tally::new(share)));
        Self {
            all: choices.iter().map(empty).collect(),
            tars: None,
        }
    }

    /// Makes these tallies cut streams at a tar's members where `tars` takes them for a tar, as a backup does;
    /// `whole-file` makes one chunk of them nevertheless.
    pub fn cutting(mut self, tars: Option<Tars>) -> Self {
        self.tars = tars;
        self
    }

    /// The estimates of all choices, in their order.
    pub fn estimates(&self) -> Vec<(ChunkerChoice, Estimate)> {
        let estimate = |(choice, tally): &(ChunkerChoice, Mutex<Tally>)| {
            (choice.clone(), Estimate::of(&tally.lock()))
        };
        self.all.iter().map(estimate).collect()
    }

    /// The tallies themselves.
    pub fn into_inner(self) -> Vec<(ChunkerChoice, Tally)> {
        let inner = |(choice, tally): (ChunkerChoice, Mutex<Tally>)| (choice, tally.into_inner());
        self.all.into_iter().map(inner).collect()
    }
}

/// Smallest number of bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Smallest number of bytes that are read at once with helpers: enough that starting a helper costs little.
const READ_BYTES_HELPED: usize = 8 << 20;
/// Smallest number of bytes that are worth help.
const HELPED_BYTES_MIN: usize = 1 << 20;
/// A chunker that looks at no byte, so its chunks are followed without holding them.
const WHOLE_FILE: &str = "whole-file";
/// Number of chunks that wait until a tally is locked for them.
const BATCH: usize = 2048;

/// A thread's chunkers. Memory: 1 MiB and twice the longest chunk of all choices; with helpers 8 MiB in place of the 1
/// MiB.
pub struct Reading<'a> {
    tallies: &'a Tallies,
    helpers: Option<&'a Helpers>,
    /// The longest chunk of all choices, in bytes.
    longest: usize,
    lanes: Vec<Lane>,
    buffer: Vec<u8>,
}

/// One choice: its chunker, its position in the buffer, and the chunks that its tally does not have yet.
struct Lane {
    chunker: Box<dyn Chunker>,
    /// The same chunker where its search can be shared among threads.
    sieve: Option<Sieve>,
    /// Whether the stream is a tar, whose members are cut in turn.
    in_tar: bool,
    /// The chunk in progress, in place of `chunker`, where chunks are longer than any buffer.
    whole: Option<Whole>,
    at: usize,
    waiting: Vec<(Fingerprint, usize)>,
}

impl<'a> Reading<'a> {
    /// A reading for one thread.
    ///
    /// # Errors
    /// A choice's chunker is not known, or cannot have its mean.
    pub fn new(tallies: &'a Tallies) -> Result<Self, UnknownChunker> {
        let mut lanes = Vec::new();
        for (choice, _) in &tallies.all {
            let chunker = by_name(&choice.chunker, choice.mean as usize, None)?;
            let whole = choice.chunker == WHOLE_FILE;
            lanes.push(Lane {
                whole: whole.then(|| Whole::of(chunker.limits().max)),
                sieve: match choice.chunker.as_str() {
                    "sieve" => Some(Sieve::new(choice.mean as usize)),
                    "sieve-threshold" => Some(Sieve::threshold(choice.mean as usize)),
                    _ => None,
                },
                chunker: match tallies.tars {
                    // A chunker by file types handles a tar itself.
                    Some(tars) if choice.chunker != "context" => Box::new(Tar::new(chunker, tars)),
                    _ => chunker,
                },
                in_tar: false,
                at: 0,
                waiting: Vec::new(),
            });
        }
        let cutting = lanes.iter().filter(|lane| lane.whole.is_none());
        let longest = cutting.map(|lane| lane.chunker.limits().max).max();
        let longest = longest.unwrap_or(0);
        Ok(Self {
            tallies,
            helpers: None,
            longest,
            lanes,
            buffer: vec![0; READ_BYTES + 2 * longest],
        })
    }

    /// This reading with help: while `helpers` are idle, they share the search for cuts (in chunkers that can) and the
    /// fingerprints of large streams. The chunks are the same.
    pub fn helped(mut self, helpers: &'a Helpers) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// Reads a stream to its end; a chunker by file types gets its `name`. `tick` gets the number of bytes of every
    /// read and returns whether to go on.
    ///
    /// # Errors
    /// Errors of `source`, except interruptions. Earlier chunks stay in the tallies; bytes that were read and not cut
    /// yet are in none, and only `stream` may follow.
    pub fn stream(
        &mut self,
        name: &[u8],
        source: &mut dyn Read,
        tick: impl FnMut(usize) -> bool,
    ) -> io::Result<()> {
        self.read(Some(name), source, tick)
    }

    /// Reads on behind a hole of the file that [`stream`](Self::stream) began, in the same way: no chunk crosses a
    /// hole.
    ///
    /// # Errors
    /// Errors of [`stream`](Self::stream).
    pub fn behind_hole(
        &mut self,
        source: &mut dyn Read,
        tick: impl FnMut(usize) -> bool,
    ) -> io::Result<()> {
        self.read(None, source, tick)
    }

    /// Reads a range; `begins` is the name of a file that begins here.
    fn read(
        &mut self,
        mut begins: Option<&[u8]>,
        source: &mut dyn Read,
        mut tick: impl FnMut(usize) -> bool,
    ) -> io::Result<()> {
        let (mut filled, mut ends) = (0, false);
        while !ends {
            let (read, is_end) = fill(source, &mut self.buffer[filled..])?;
            (filled, ends) = (filled + read, is_end);
            if !tick(read) {
                return Ok(());
            }
            let data = &self.buffer[..filled];
            if let Some(name) = begins.take() {
                let head = &data[..filled.min(4096)];
                let in_tar = self.tallies.tars.is_some_and(|tars| tars.take(head));
                for lane in &mut self.lanes {
                    lane.begin(&StreamHints::of(name, head), in_tar);
                }
            }
            let lanes = &mut self.lanes;
            let mut cut = |threads| {
                lanes
                    .iter_mut()
                    .for_each(|lane| lane.cut(data, ends, threads));
            };
            match self.helpers {
                Some(helpers) if filled >= HELPED_BYTES_MIN => helpers.with(cut),
                _ => cut(1),
            }
            self.hand_over(BATCH);
            let done = self
                .lanes
                .iter()
                .map(|lane| lane.at)
                .min()
                .unwrap_or(filled);
            self.buffer.copy_within(done..filled, 0);
            filled -= done;
            self.lanes.iter_mut().for_each(|lane| lane.at -= done);
            self.widen();
        }
        Ok(())
    }

    /// Enlarges the buffer where there are helpers.
    fn widen(&mut self) {
        if self.helpers.is_some_and(Helpers::are_there) {
            self.buffer.resize(READ_BYTES_HELPED + 2 * self.longest, 0);
        }
    }

    /// Passes waiting chunks to the tallies.
    pub fn finish(mut self) {
        self.hand_over(1);
    }

    fn hand_over(&mut self, least: usize) {
        for (lane, (_, tally)) in self.lanes.iter_mut().zip(&self.tallies.all) {
            if lane.waiting.len() >= least {
                let mut tally = tally.lock();
                for (fingerprint, bytes) in lane.waiting.drain(..) {
                    tally.add(fingerprint, bytes);
                }
            }
        }
    }
}

impl Lane {
    fn begin(&mut self, hints: &StreamHints<'_>, in_tar: bool) {
        (self.at, self.in_tar) = (0, in_tar);
        self.whole = self.whole.take().map(|whole| Whole::of(whole.max));
        self.chunker.begin(hints);
    }

    fn cut(&mut self, data: &[u8], ends: bool, threads: usize) {
        if let Some(whole) = &mut self.whole {
            whole.take(&data[self.at..], ends, &mut self.waiting);
            self.at = data.len();
            return;
        }
        let (mut chunks, rest) = (Vec::new(), &data[self.at..]);
        let mut at = 0;
        let mut chunk = |length| {
            chunks.push(&rest[at..at + length]);
            at += length;
        };
        let covered = match &mut self.sieve {
            Some(sieve) if threads > 1 && !self.in_tar => {
                let search = |piece| sieve.candidates(rest, piece);
                let found = side_by_side(rest.len(), threads, search);
                sieve.cuts_from(rest, &found, ends, &mut chunk)
            }
            _ => self.chunker.cuts(rest, ends, &mut chunk),
        };
        self.at += covered;
        let name = |part| {
            let part: &[&[u8]] = &chunks[part];
            fingerprints(None, part.iter().copied())
        };
        let names = match threads {
            1 => name(0..chunks.len()),
            _ => side_by_side(chunks.len(), threads, name).concat(),
        };
        let sizes = chunks.iter().map(|chunk| chunk.len());
        self.waiting.extend(names.into_iter().zip(sizes));
    }
}

/// A chunk whose bytes are hashed and not kept.
struct Whole {
    hasher: blake3::Hasher,
    bytes: usize,
    max: usize,
}

impl Whole {
    fn of(max: usize) -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            bytes: 0,
            max,
        }
    }

    fn take(&mut self, mut data: &[u8], ends: bool, chunks: &mut Vec<(Fingerprint, usize)>) {
        while !data.is_empty() {
            let (part, rest) = data.split_at(data.len().min(self.max - self.bytes));
            self.hasher.update(part);
            self.bytes += part.len();
            data = rest;
            if self.bytes == self.max {
                self.end(chunks);
            }
        }
        if ends && self.bytes > 0 {
            self.end(chunks);
        }
    }

    fn end(&mut self, chunks: &mut Vec<(Fingerprint, usize)>) {
        let name = Fingerprint(self.hasher.finalize().into());
        chunks.push((name, self.bytes));
        self.hasher.reset();
        self.bytes = 0;
    }
}

/// Reads until the buffer is full or the stream ends: returns the number of bytes, and whether it ended.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut filled = 0;
    while filled < buffer.len() {
        match unless_interrupted(|| source.read(&mut buffer[filled..]))? {
            0 => return Ok((filled, true)),
            read => filled += read,
        }
    }
    Ok((filled, false))
}
