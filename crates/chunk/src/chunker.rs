//! The seam of all chunkers.

use alloc::boxed::Box;

/// Chunk lengths in bytes that a chunker promises: `min ≤ length ≤ max`, save for the last chunk of a stream, which may
/// be shorter.
///
/// ```
/// use onefold_chunk::{Chunker, ChunkLimits, fixed::Fixed};
///
/// assert_eq!(Fixed::new(4096).limits(), ChunkLimits { min: 4096, mean: 4096, max: 4096 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLimits {
    /// The shortest chunk, in bytes, but for the last of a stream.
    pub min: usize,
    /// The mean that the chunker aims for on random data, in bytes.
    pub mean: usize,
    /// The longest chunk, in bytes.
    pub max: usize,
}

/// Facts about a stream that are known before it is cut.
///
/// ```
/// use onefold_chunk::StreamHints;
///
/// assert_eq!(StreamHints::of(b"/music/song.MP3", b"ID3").extension, Some(&b"MP3"[..]));
/// assert_eq!(StreamHints::of(b".profile", b"").extension, None);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct StreamHints<'a> {
    /// Extension of the file's name, after the last dot, in any case; `None` without a name or a dot.
    pub extension: Option<&'a [u8]>,
    /// First bytes of the stream: some thousand, or all.
    pub head: &'a [u8],
}

impl<'a> StreamHints<'a> {
    /// The hints for a file named `name` whose content begins with `head`.
    pub fn of(name: &'a [u8], head: &'a [u8]) -> Self {
        let dot = name.iter().rposition(|byte| *byte == b'.');
        // A dot in front hides a file and begins no extension.
        let extension = dot.filter(|dot| *dot > 0).map(|dot| &name[dot + 1..]);
        Self { extension, head }
    }
}

/// Cuts a stream into chunks.
///
/// ```
/// use onefold_chunk::{Chunker, ChunkLimits};
///
/// /// A chunk a line, of at most 80 bytes.
/// struct Lines;
///
/// impl Chunker for Lines {
///     fn limits(&self) -> ChunkLimits {
///         ChunkLimits { min: 1, mean: 40, max: 80 }
///     }
///
///     fn cut(&mut self, data: &[u8]) -> usize {
///         let data = &data[..data.len().min(80)];
///         let end = data.iter().position(|byte| *byte == b'\n');
///         end.map_or(data.len(), |end| end + 1)
///     }
/// }
///
/// let mut lengths = Vec::new();
/// Lines.cuts(b"one\nthree\nno end", true, &mut |length| lengths.push(length));
/// assert_eq!(lengths, [4, 6, 6]);
/// ```
pub trait Chunker: Send {
    /// The lengths this chunker promises.
    fn limits(&self) -> ChunkLimits;

    /// Bytes that a cut needs to see in nearly all streams: at most [`limits`](Self::limits)`().max`, and fewer for a
    /// chunker that seldom makes its longest chunks. A caller with many streams may plan its RAM by this number.
    fn ahead(&self) -> usize {
        self.limits().max
    }

    /// In a chunker with two sizes of chunks, the chunker that cuts long chunks (longer than [`ahead`](Self::ahead))
    /// into short ones. Short chunks stored earlier between other data are found again by it.
    fn short(&mut self) -> Option<&mut dyn Chunker> {
        None
    }

    /// Begins a stream with these hints. A chunker that looks at nothing but the bytes of a chunk may ignore the call.
    ///
    /// The stream may go on behind its end, as a file does behind a hole. Cuts there may depend on the data before, but
    /// never on how that data was split into calls.
    fn begin(&mut self, _hints: &StreamHints<'_>) {}

    /// Whether the chunks of the stream that began are worth compressing, as far as is known without trying.
    fn is_compressible(&self) -> bool {
        true
    }

    /// The length of the chunk that starts at `data[0]`: `1..=data.len()`, or 0 if `data` is empty.
    ///
    /// `data` holds at least `limits().max` bytes, or the stream ends where `data` ends. A cut depends on nothing but
    /// `data` (and, in a chunker that says so, on the chunks before), never on how much more than `max` bytes was
    /// given.
    fn cut(&mut self, data: &[u8]) -> usize;

    /// Cuts all of `data` that is certain: up to its end where the stream `ends` there, else at least until less than
    /// `limits().max` bytes are left. Calls `chunk` with the length of each chunk in order, and returns how many bytes
    /// they cover.
    ///
    /// The cuts are those of repeated [`cut`](Self::cut), which a chunker may find faster where it knows what comes
    /// next.
    fn cuts(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        let max = self.limits().max;
        let mut at = 0;
        while at < data.len() && (ends || data.len() - at >= max) {
            let length = self.cut(&data[at..]);
            chunk(length);
            at += length;
        }
        at
    }
}

impl<C: Chunker + ?Sized> Chunker for Box<C> {
    fn limits(&self) -> ChunkLimits {
        (**self).limits()
    }

    fn ahead(&self) -> usize {
        (**self).ahead()
    }

    fn short(&mut self) -> Option<&mut dyn Chunker> {
        (**self).short()
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        (**self).cut(data)
    }

    fn cuts(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        (**self).cuts(data, ends, chunk)
    }

    fn begin(&mut self, hints: &StreamHints<'_>) {
        (**self).begin(hints);
    }

    fn is_compressible(&self) -> bool {
        (**self).is_compressible()
    }
}
