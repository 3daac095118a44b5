//! The repository's configuration, which never changes after `init`. Specified in FORMAT.md, "Config".
//!
//! The configuration is stored in the clear, twice in one file, and once more inside each key slot, sealed with the
//! master key: the clear copy is believed only where it equals the sealed one.

use onefold_chunk::Chunker;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use crate::{Error, Result};

pub use onefold_io::frame::{Twice, decode_twice, encode_twice};

/// The frame of the configuration.
pub const CONFIG: FrameKind = FrameKind {
    magic: *b"1FCONFIG",
    version: 1,
};
/// The name of its object.
pub const CONFIG_OBJECT: &str = "config";

/// The name of a second such object, read where the first is gone.
pub const CONFIG_COPY_OBJECT: &str = "config.copy";

/// Encryption of a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// Nothing is sealed and fingerprints are unkeyed: for research, and for disks that are encrypted already.
    None,
    /// AES-256-GCM per block, keyed fingerprints and cut points.
    Aes256Gcm,
}

impl Encryption {
    /// Returns the encryption of the name that users give.
    ///
    /// # Errors
    /// [`Error::Option`] with the names that there are.
    pub fn by_name(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "aes256gcm" => Ok(Self::Aes256Gcm),
            _ => Err(Error::Option(format!(
                "no encryption is named \"{name}\"; there are none, aes256gcm"
            ))),
        }
    }

    /// The name users give.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Aes256Gcm => "aes256gcm",
        }
    }
}

/// Configuration of a repository; it never changes after `init`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepositoryConfig {
    /// The repository's name, random.
    pub repository: [u8; 16],
    /// Encryption of the stored data and names.
    pub encryption: Encryption,
    /// The chunker of file contents, by name.
    pub chunker: String,
    /// Its mean, in bytes.
    pub chunk_bytes_mean: u32,
    /// The fingerprint index, by name.
    pub index: String,
}

/// The mean chunk of file contents, in bytes, where `init` says nothing: of 4 to 32 KiB the one whose whole
/// repositories are smallest on average (docs/chunkers, "Why 8 KiB").
pub const CHUNK_BYTES_MEAN_DEFAULT: u32 = 8 * 1024;
/// The longest chunk that a new repository's chunker may make of nearly all data, in bytes. A backup holds some twenty
/// of them at once: with this it stays below 200 MiB.
pub const CUT_BYTES_MAX: usize = 4 << 20;
/// The longest one that it may make of any data, in bytes. Of those that are longer than [`CUT_BYTES_MAX`] a backup
/// holds as many as that leaves room for.
pub const LONG_CUT_BYTES_MAX: usize = 8 << 20;

impl RepositoryConfig {
    /// The repository's name in hexadecimal.
    pub fn repository_hex(&self) -> String {
        self.repository
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// A chunker of file contents.
    ///
    /// # Errors
    /// [`Error::Option`]: this version has none of the name, or not with this mean.
    pub fn chunker(&self, key: Option<&[u8; 32]>) -> Result<Box<dyn Chunker>> {
        onefold_chunk::by_name(&self.chunker, self.chunk_bytes_mean as usize, key)
            .map_err(|error| Error::Option(error.to_string()))
    }

    /// Checks that a new repository may have this chunker with this mean.
    ///
    /// # Errors
    /// [`Error::Option`]: there is none, or its chunks could be longer than [`CUT_BYTES_MAX`] or
    /// [`LONG_CUT_BYTES_MAX`].
    pub fn check_chunker(&self) -> Result<()> {
        let chunker = self.chunker(None)?;
        let lengths = [
            (chunker.ahead(), CUT_BYTES_MAX),
            (chunker.limits().max, LONG_CUT_BYTES_MAX),
        ];
        if let Some((max, allowed)) = lengths.into_iter().find(|(max, allowed)| max > allowed) {
            let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
            return Err(Error::Option(format!(
                "{} with a mean of {} makes chunks of up to {}; a repository takes {} at most, so that its RAM is bounded",
                self.chunker,
                mib(self.chunk_bytes_mean as usize),
                mib(max),
                mib(allowed)
            )));
        }
        Ok(())
    }

    /// Encodes the configuration, for the frame and for key slots.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.repository.to_vec();
        out.push(match self.encryption {
            Encryption::None => 0,
            Encryption::Aes256Gcm => 1,
        });
        put_bytes(&mut out, self.chunker.as_bytes());
        put_varint(&mut out, self.chunk_bytes_mean.into());
        put_bytes(&mut out, self.index.as_bytes());
        out
    }

    /// The inverse of [`encode`](Self::encode); `bytes` stand at `offset` of `object`.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]), with the offset; another version's encryption
    /// ([`Error::is_other_version`]).
    pub fn decode(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, object, offset);
        let repository = reader.array()?;
        let at = reader.offset();
        let encryption = match reader.u8()? {
            0 => Encryption::None,
            1 => Encryption::Aes256Gcm,
            other => {
                let found = format!("encryption {other}");
                return Err(frame::later_version(object, at, &found).into());
            }
        };
        let chunker = text(&mut reader)?;
        let chunk_bytes_mean = reader.varint_max(u32::MAX.into())? as u32;
        let index = text(&mut reader)?;
        reader.end()?;
        Ok(Self {
            repository,
            encryption,
            chunker,
            chunk_bytes_mean,
            index,
        })
    }
}

fn text(reader: &mut ByteReader<'_>) -> Result<String> {
    let at = reader.offset();
    let bytes = reader.bytes()?;
    let bad = |_| reader.damaged("text that is not UTF-8".into()).at(at);
    Ok(String::from_utf8(bytes.to_vec()).map_err(bad)?)
}
