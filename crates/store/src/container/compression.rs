//! Compression of blocks: zstd at the repository's level, or stored raw where it does not pay.

use zstd::zstd_safe::CParameter;

use crate::container::StreamKind;
use crate::{Error, Result};

/// How hard to try. Each backup may choose its own; blocks say how they were coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Blocks are stored raw.
    Off,
    /// zstd 1.
    Fastest,
    /// zstd 3: about as fast as two cores can read, and the default.
    #[default]
    Auto,
    /// zstd 9.
    Better,
    /// zstd 16 over blocks of 8 MiB: a fifth to a quarter smaller than the default. Level 19 takes twice the time for 4
    /// to 6 % more.
    Max,
}

impl Compression {
    /// All, in order of effort, with the names users give.
    pub const ALL: [(&'static str, Compression); 5] = [
        ("off", Self::Off),
        ("fastest", Self::Fastest),
        ("auto", Self::Auto),
        ("better", Self::Better),
        ("max", Self::Max),
    ];

    /// Threads where nobody says how many: one a core, and no more than keep a backup under 200 MiB, of which each
    /// takes some for what it compresses.
    pub fn threads(self) -> usize {
        let most = match self {
            Self::Max => 2,
            Self::Better => 3,
            Self::Off | Self::Fastest | Self::Auto => 5,
        };
        std::thread::available_parallelism().map_or(1, |cores| cores.get().min(most))
    }

    /// Returns the compression of this name.
    ///
    /// # Errors
    /// [`Error::Option`] with the names that there are.
    pub fn by_name(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, compression)| *compression).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Error::Option(format!(
                "no compression is named \"{name}\"; there are {}",
                names.join(", ")
            ))
        })
    }

    /// The name users give.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == self)
            .expect("every one is listed")
            .0
    }

    fn level(self) -> Option<i32> {
        match self {
            Self::Off => None,
            Self::Fastest => Some(1),
            Self::Auto => Some(3),
            Self::Better => Some(9),
            Self::Max => Some(16),
        }
    }

    /// Raw bytes of neighbouring chunks that are compressed as one.
    ///
    /// Larger blocks compress better, smaller ones cost less to read one chunk from. On 758 MB of unique python sources
    /// zstd 3 makes 122 MB at 128 KiB, 117 at 256 KiB, 108 at 1 MiB, 105 at 4 MiB. Metadata repeats itself at longer
    /// distances, folder after folder of the same names and fingerprints, and is read in order.
    pub fn block_bytes(self, stream: StreamKind) -> usize {
        match (stream, self) {
            (StreamKind::Metadata, _) => METADATA_BLOCK_BYTES,
            // Half of metadata's, since several are under way at a time and all must stay within the default budget of
            // RAM.
            (_, Self::Max) => METADATA_BLOCK_BYTES / 2,
            _ => 1 << 20,
        }
    }
}

const METADATA_BLOCK_BYTES: usize = 8 << 20;

/// How a block's raw bytes were coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// The chunks as they are.
    Raw,
    /// One zstd frame.
    Zstd,
}

impl Codec {
    /// Returns the stored code.
    pub fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
        }
    }

    /// Decodes a stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A compressor with its working memory; one a thread.
pub struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    probe: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
    coded: Vec<u8>,
}

/// A block whose samples shrink by less than 1/32 is stored raw without trying the rest.
const SAMPLES: usize = 8;
const SAMPLE_BYTES: usize = 4096;

impl Compressor {
    /// For blocks of this stream at this effort.
    ///
    /// # Errors
    /// [`Error::Machine`]: no memory for it.
    pub fn new(compression: Compression, stream: StreamKind) -> Result<Self> {
        let make = |level| zstd::bulk::Compressor::new(level).map_err(failed);
        let mut zstd = compression.level().map(make).transpose()?;
        let block_bytes = compression.block_bytes(stream);
        if let Some(zstd) = &mut zstd
            && block_bytes > 1 << 20
        {
            // The whole block is the window, and what repeats at a distance is searched for there.
            zstd.set_parameter(CParameter::WindowLog(block_bytes.ilog2()))
                .map_err(failed)?;
            zstd.set_parameter(CParameter::EnableLongDistanceMatching(true))
                .map_err(failed)?;
        }
        if let (Some(zstd), Compression::Max) = (&mut zstd, compression) {
            // By itself this level takes 26 MB a thread for its tables, for 1 % less.
            zstd.set_parameter(CParameter::HashLog(20))
                .map_err(failed)?;
            zstd.set_parameter(CParameter::ChainLog(20))
                .map_err(failed)?;
        }
        let probe = zstd.is_some().then(|| make(1)).transpose()?;
        Ok(Self {
            zstd,
            probe,
            scratch: Vec::new(),
            coded: Vec::new(),
        })
    }

    /// `raw` coded in place, by whichever codec is smaller; the other buffer is kept for the next block.
    pub fn encode(&mut self, raw: &mut Vec<u8>) -> Codec {
        if self.zstd.is_none() || raw.len() < 64 || !self.may_shrink(raw) {
            return Codec::Raw;
        }
        let zstd = self.zstd.as_mut().expect("checked above");
        self.coded.clear();
        self.coded
            .reserve(zstd::zstd_safe::compress_bound(raw.len()) + onefold_keys::TAG_BYTES);
        match zstd.compress_to_buffer(&raw[..], &mut self.coded) {
            Ok(_) if self.coded.len() < raw.len() - raw.len() / 64 => {
                std::mem::swap(raw, &mut self.coded);
                Codec::Zstd
            }
            _ => Codec::Raw,
        }
    }

    /// Tries samples from all over a large block, so that what cannot shrink costs next to nothing.
    fn may_shrink(&mut self, raw: &[u8]) -> bool {
        let Some(probe) = &mut self.probe else {
            return false;
        };
        if raw.len() < 4 * SAMPLES * SAMPLE_BYTES {
            return true;
        }
        let step = raw.len() / SAMPLES;
        let mut coded_bytes = 0;
        for sample in 0..SAMPLES {
            let bytes = &raw[sample * step..][..SAMPLE_BYTES];
            self.scratch.clear();
            self.scratch
                .reserve(zstd::zstd_safe::compress_bound(SAMPLE_BYTES));
            match probe.compress_to_buffer(bytes, &mut self.scratch) {
                Ok(_) => coded_bytes += self.scratch.len().min(SAMPLE_BYTES),
                Err(_) => return true,
            }
        }
        coded_bytes < SAMPLES * SAMPLE_BYTES * 31 / 32
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Machine(format!("zstd: {error}"))
}

/// A decompressor with its working memory; one a thread.
pub struct Decompressor(zstd::bulk::Decompressor<'static>);

impl Decompressor {
    /// A decompressor for all codecs.
    ///
    /// # Errors
    /// [`Error::Machine`]: no memory for it.
    pub fn new() -> Result<Self> {
        let zstd = zstd::bulk::Decompressor::new()
            .map_err(|error| Error::Machine(format!("zstd: {error}")))?;
        Ok(Self(zstd))
    }

    /// `coded` back to exactly `raw_len` bytes.
    ///
    /// # Errors
    /// In words, without where: the frame says another length, or its bytes are no frame or have another length.
    pub fn decode(
        &mut self,
        codec: Codec,
        coded: &[u8],
        raw_len: usize,
    ) -> std::result::Result<Vec<u8>, String> {
        let raw = match codec {
            Codec::Raw => coded.to_vec(),
            Codec::Zstd => {
                // The frame says its content's length, too: nothing is allocated for a block that was never as long.
                let said = zstd::zstd_safe::get_frame_content_size(coded)
                    .ok()
                    .flatten();
                if said != Some(raw_len as u64) {
                    return Err(format!(
                        "a zstd frame of {said:?} bytes, expected {raw_len}"
                    ));
                }
                let mut raw = Vec::with_capacity(raw_len);
                let decoded = self.0.decompress_to_buffer(coded, &mut raw);
                decoded.map_err(|error| format!("zstd: {error}"))?;
                raw
            }
        };
        if raw.len() != raw_len {
            return Err(format!("{} raw bytes, expected {raw_len}", raw.len()));
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    const LEN: usize = 1 << 20;

    fn noise(len: usize) -> Vec<u8> {
        Random(1).bytes(len)
    }

    #[test]
    fn what_does_not_compress_is_stored_as_it_is() {
        let text: Vec<u8> = b"every byte once, "
            .iter()
            .copied()
            .cycle()
            .take(LEN)
            .collect();
        let half = [&noise(LEN / 2)[..], &text[..LEN / 2]].concat();
        // Too little shrinks for a longer way to it.
        let hardly = [&noise(LEN - LEN / 128)[..], &text[..LEN / 128]].concat();
        for compression in [Compression::Fastest, Compression::Auto, Compression::Max] {
            let mut compressor = Compressor::new(compression, StreamKind::Data).unwrap();
            for (data, codec) in [
                (noise(LEN), Codec::Raw),
                (noise(100), Codec::Raw),
                (noise(LEN / 16), Codec::Raw),
                (text.clone(), Codec::Zstd),
                (half.clone(), Codec::Zstd),
                (hardly.clone(), Codec::Raw),
            ] {
                let mut coded = data.clone();
                assert_eq!(compressor.encode(&mut coded), codec, "{} bytes", data.len());
                assert_eq!(codec == Codec::Raw, coded == data);
            }
        }
        let mut off = Compressor::new(Compression::Off, StreamKind::Data).unwrap();
        assert_eq!(off.encode(&mut text.clone()), Codec::Raw);
    }
}
