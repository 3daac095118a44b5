//! The seam of all chunkers.

/// Chunk lengths in bytes that a chunker promises: `min ≤ length ≤ max`, save for the last chunk of a stream, which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The shortest chunk, in bytes, but for the last of a stream.
    pub min: usize,
    /// The mean that the chunker aims for on random data, in bytes.
    pub mean: usize,
    /// The longest chunk, in bytes.
    pub max: usize,
}

/// Cuts a stream into chunks.
pub trait Chunker: Send {
    /// The lengths this chunker promises.
    fn limits(&self) -> Limits;

    /// The length of the chunk that starts at `data[0]`: `1..=data.len()`, or 0 if `data` is empty.
    ///
    /// `data` holds at least `limits().max` bytes, or the stream ends where `data` ends. A cut depends on nothing but `data`
    /// (and, in a chunker that says so, on the chunks before), never on how much more than `max` bytes was given.
    fn cut(&mut self, data: &[u8]) -> usize;
}

impl<C: Chunker + ?Sized> Chunker for Box<C> {
    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        (**self).cut(data)
    }
}
