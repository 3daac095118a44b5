//! The configuration of a depot: what never changes after it was created (FORMAT.md, "Depot"). It is stored in the
//! folder twice, and once at the beginning of the data device.

use onefold_io::Error as IoError;
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};
use onefold_keys::Slot;

use super::parameters::Parameters;
use crate::{Compression, Error, Result};

/// The frame of the configuration.
pub const DEPOT: FrameKind = FrameKind {
    magic: *b"1FVDEPOT",
    version: 1,
};
/// A configuration with compression.
const COMPRESSED: FrameKind = FrameKind {
    version: 2,
    ..DEPOT
};
/// The configuration of an encrypted depot.
const ENCRYPTED: FrameKind = FrameKind {
    version: 3,
    ..DEPOT
};
/// The configuration of a depot with a metadata device.
const WITH_METADATA_DEVICE: FrameKind = FrameKind {
    version: 4,
    ..DEPOT
};
/// Codes of encryption: none, and AES-256-GCM.
const PLAIN: u8 = 0;
const AES_256_GCM: u8 = 1;
/// No depot has more key slots: all copies of the configuration have room for them.
pub(super) const SLOTS_MAX: usize = 16;

/// Bytes at the beginning of the data device that hold the head copy: the longest chunk, so that blocks stay aligned.
pub const HEAD_BYTES: u64 = 64 << 10;

/// Chunks may be as short and as long as this, in bytes; powers of two.
pub const CHUNK_BYTES_MIN: u32 = 512;
/// The longest chunk, in bytes.
pub const CHUNK_BYTES_MAX: u32 = 64 << 10;

/// No volume and no data device is larger: 1 PiB.
pub const BYTES_MAX: u64 = 1 << 50;
/// No name of a volume is longer.
const NAME_BYTES_MAX: usize = 255;
/// No path of a data device is longer.
const PATH_BYTES_MAX: usize = 4096;

/// Engine behind the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// The report's engine over a metadata backend.
    Dmdedup(Backend),
    /// Zones and a log.
    Log,
}

/// A metadata backend of the engine `dmdedup`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// All metadata in RAM, saved when the depot is closed.
    InRam,
    /// All metadata in RAM, saved at every flush.
    InRamSaved,
    /// A table on the metadata device behind a page cache.
    Dtb,
    /// A copy-on-write B-tree.
    Cbt,
}

impl EngineKind {
    /// By the name users give.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names that there are.
    pub fn by_name(name: &str) -> Result<Self> {
        let known = ALL_KINDS.iter().find(|kind| kind.name() == name);
        known.copied().ok_or_else(|| Error::Invalid {
            what: format!(
                "no backend is named \"{name}\"; there are {}",
                ALL_KINDS.map(Self::name).join(", ")
            ),
        })
    }

    /// The name users give.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dmdedup(Backend::InRam) => "inram",
            Self::Dmdedup(Backend::InRamSaved) => "inram-saved",
            Self::Dmdedup(Backend::Dtb) => "dtb",
            Self::Dmdedup(Backend::Cbt) => "cbt",
            Self::Log => "log",
        }
    }

    fn code(self) -> (u8, u8) {
        match self {
            Self::Dmdedup(Backend::InRam) => (1, 1),
            Self::Dmdedup(Backend::InRamSaved) => (1, 4),
            Self::Dmdedup(Backend::Dtb) => (1, 2),
            Self::Dmdedup(Backend::Cbt) => (1, 3),
            Self::Log => (2, 0),
        }
    }
}

const ALL_KINDS: [EngineKind; 5] = [
    EngineKind::Dmdedup(Backend::InRam),
    EngineKind::Dmdedup(Backend::InRamSaved),
    EngineKind::Dmdedup(Backend::Dtb),
    EngineKind::Dmdedup(Backend::Cbt),
    EngineKind::Log,
];

/// Properties of a depot that never change after it was created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The depot's name, random.
    pub depot: [u8; 16],
    /// Engine behind the front.
    pub engine: EngineKind,
    /// Parameters of its backend, where it has any.
    pub parameters: Parameters,
    /// How new chunks are packed.
    pub compression: Compression,
    /// Bytes of a chunk: a power of two, 512 to 65,536.
    pub chunk_bytes: u32,
    /// Key of the fingerprints, random, so that hashes of blocks cannot be looked up elsewhere. Zeros where the depot
    /// is encrypted and was not unlocked.
    pub hash_key: [u8; 32],
    /// Slots, each of which holds the keys under a password; none where the depot is not encrypted.
    pub slots: Vec<Slot>,
    /// Name of the first volume.
    pub volume: String,
    /// Its size in bytes: whole chunks.
    pub volume_bytes: u64,
    /// Bytes of the data device that hold chunks, without the head copy: whole chunks.
    pub capacity_bytes: u64,
    /// Bytes of a zone; 0 where the engine has none.
    pub zone_bytes: u64,
    /// Path of the data device; empty where it is the file `data` in the folder.
    pub data_path: String,
    /// Path of the metadata device, with `dtb` and `cbt`; empty where it is the file `meta` in the folder.
    pub metadata_path: String,
}

impl Config {
    /// Where fields have the key of the fingerprints: behind the depot's name and four bytes.
    pub(super) const HASH_KEY_AT: usize = 20;

    /// Whether everything is sealed.
    pub fn is_encrypted(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Chunks of the volume.
    pub fn lbns(&self) -> u64 {
        self.volume_bytes / u64::from(self.chunk_bytes)
    }

    /// Chunks that the data device has room for.
    pub fn blocks(&self) -> u64 {
        self.capacity_bytes / u64::from(self.chunk_bytes)
    }

    /// Checks that a depot can have these properties.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the limit that is broken.
    pub fn check(&self) -> Result<()> {
        match self.amiss() {
            None => Ok(()),
            Some(what) => Err(Error::Invalid { what }),
        }
    }

    fn amiss(&self) -> Option<String> {
        let chunk = self.chunk_bytes;
        if !chunk.is_power_of_two() || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk) {
            return Some(format!(
                "chunks of {chunk} bytes, where a power of two from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} is expected"
            ));
        }
        for (what, bytes) in [
            ("a volume", self.volume_bytes),
            ("a capacity", self.capacity_bytes),
        ] {
            if bytes == 0 || bytes > BYTES_MAX || !bytes.is_multiple_of(u64::from(chunk)) {
                return Some(format!(
                    "{what} of {bytes} bytes, where whole chunks of {chunk} bytes up to {BYTES_MAX} are expected"
                ));
            }
        }
        let name = &self.volume;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            return Some(format!(
                "a volume named \"{name}\", where up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.' are expected"
            ));
        }
        for path in [&self.data_path, &self.metadata_path] {
            if path.len() > PATH_BYTES_MAX {
                let bytes = path.len();
                return Some(format!("a path of {bytes} bytes, at most {PATH_BYTES_MAX}"));
            }
        }
        if !self.metadata_path.is_empty() && !has_cache(self.engine) {
            return Some(format!(
                "a metadata device with the backend {}, where dtb or cbt is expected: the others have none",
                self.engine.name()
            ));
        }
        if !self.metadata_path.is_empty() && self.metadata_path == self.data_path {
            return Some(format!(
                "{} for data and for metadata, where two devices are expected",
                self.data_path
            ));
        }
        let is_packed = self.compression != Compression::None;
        if is_packed && (self.engine != EngineKind::Log || chunk != 4096) {
            return Some(format!(
                "compression {}, where the backend log and chunks of 4096 bytes are expected",
                self.compression.name()
            ));
        }
        if self.is_encrypted() && self.engine != EngineKind::Log {
            return Some(format!(
                "encryption with the backend {}, where log is expected: the others seal nothing",
                self.engine.name()
            ));
        }
        self.parameters.amiss()
    }

    /// The framed configuration. The key of the fingerprints of an encrypted depot is in its slots alone.
    pub fn encode(&self) -> Vec<u8> {
        if self.is_encrypted() {
            let mut out = self.sealed_fields([0; 32]);
            put_varint(&mut out, self.slots.len() as u64);
            for slot in &self.slots {
                put_bytes(&mut out, &slot.encode());
            }
            return frame::encode_frame(ENCRYPTED, &out);
        }
        let mut out = self.fields(self.hash_key, PLAIN);
        if !self.metadata_path.is_empty() {
            put_bytes(&mut out, self.metadata_path.as_bytes());
            return frame::encode_frame(WITH_METADATA_DEVICE, &out);
        }
        match self.compression {
            Compression::None => frame::encode_frame(DEPOT, &out),
            compression => {
                out.push(compression.code());
                frame::encode_frame(COMPRESSED, &out)
            }
        }
    }

    /// The fields of an encrypted depot, as a slot seals them, with this key of the fingerprints.
    pub(super) fn sealed_fields(&self, hash_key: [u8; 32]) -> Vec<u8> {
        let mut out = self.fields(hash_key, AES_256_GCM);
        out.push(self.compression.code());
        out
    }

    fn fields(&self, hash_key: [u8; 32], encryption: u8) -> Vec<u8> {
        let (engine, backend) = self.engine.code();
        let mut out = Vec::new();
        out.extend_from_slice(&self.depot);
        out.extend_from_slice(&[engine, backend, self.chunk_bytes.trailing_zeros() as u8]);
        out.push(encryption);
        out.extend_from_slice(&hash_key);
        put_varint(&mut out, self.volume_bytes);
        put_varint(&mut out, self.capacity_bytes);
        put_varint(&mut out, self.zone_bytes);
        put_bytes(&mut out, self.volume.as_bytes());
        put_bytes(&mut out, self.data_path.as_bytes());
        let Parameters {
            cache_bytes,
            transaction_writes,
        } = self.parameters;
        if has_cache(self.engine) {
            put_varint(&mut out, cache_bytes);
        }
        if has_transactions(self.engine) {
            put_varint(&mut out, transaction_writes);
        }
        out
    }

    /// The configuration at the beginning of `bytes`, which were read from `path`.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made it.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let is_of = |kind: &FrameKind| bytes.get(8..10) == Some(&kind.version.to_le_bytes());
        let kinds = [COMPRESSED, ENCRYPTED, WITH_METADATA_DEVICE];
        let kind = kinds.into_iter().find(is_of);
        let kind = kind.unwrap_or(DEPOT);
        let payload = frame::decode_frame(kind, bytes, path, 0)?.payload;
        let mut reader = ByteReader::new(payload, path, frame::HEADER_BYTES as u64);
        let reader = &mut reader;
        let is_encrypted = kind == ENCRYPTED;
        let mut config = read_fields(reader, if is_encrypted { AES_256_GCM } else { PLAIN })?;
        if [COMPRESSED, ENCRYPTED].contains(&kind) {
            config.compression = read_compression(reader, is_encrypted)?;
        }
        if kind == WITH_METADATA_DEVICE {
            config.metadata_path = text(reader)?;
            if config.metadata_path.is_empty() {
                return Err(reader.damaged("no metadata device".into()).into());
            }
        }
        if is_encrypted {
            config.slots = read_slots(reader, path)?;
            if config.hash_key != [0; 32] {
                let what = "a key of hashes in the clear, expected zeros";
                return Err(reader.damaged(what.into()).into());
            }
        }
        reader.end()?;
        if let Some(what) = config.amiss() {
            return Err(reader.damaged(what).into());
        }
        Ok(config)
    }
}

/// How chunks are packed; `may_be_none` where a configuration says that, too.
fn read_compression(reader: &mut ByteReader<'_>, may_be_none: bool) -> Result<Compression> {
    let code = reader.u8()?;
    let known = Compression::by_code(code).filter(|it| may_be_none || *it != Compression::None);
    let damage = || reader.damaged(format!("compression {code}, expected 1 or 2"));
    Ok(known.ok_or_else(damage)?)
}

fn read_slots(reader: &mut ByteReader<'_>, path: &str) -> Result<Vec<Slot>> {
    let count = reader.count(1)?;
    if !(1..=SLOTS_MAX).contains(&count) {
        let what = format!("{count} key slots, expected 1 to {SLOTS_MAX}");
        return Err(reader.damaged(what).into());
    }
    (0..count)
        .map(|_| Ok(Slot::decode(reader.bytes()?, path)?.0))
        .collect()
}

/// The fields of all versions, of a depot with this code of encryption.
fn read_fields(reader: &mut ByteReader<'_>, encryption: u8) -> Result<Config> {
    let depot = reader.array()?;
    let [engine, backend, chunk_log] = reader.array()?;
    let engine = ALL_KINDS
        .into_iter()
        .find(|kind| kind.code() == (engine, backend));
    let engine = engine.ok_or_else(|| Error::Unsupported {
        what: "the depot was created by another version of this program, with an engine that this one does not know"
            .into(),
    })?;
    if reader.u8()? != encryption {
        return Err(Error::Unsupported {
            what: "the depot is encrypted in a way that this version of the program does not know"
                .into(),
        });
    }
    let mut config = Config {
        depot,
        engine,
        parameters: Parameters::default(),
        compression: Compression::None,
        chunk_bytes: 1u32.checked_shl(u32::from(chunk_log)).unwrap_or(0),
        hash_key: reader.array()?,
        slots: Vec::new(),
        volume_bytes: reader.varint()?,
        capacity_bytes: reader.varint()?,
        zone_bytes: reader.varint()?,
        volume: text(reader)?,
        data_path: text(reader)?,
        metadata_path: String::new(),
    };
    if has_cache(engine) {
        config.parameters.cache_bytes = reader.varint()?;
    }
    if has_transactions(engine) {
        config.parameters.transaction_writes = reader.varint()?;
    }
    Ok(config)
}

fn has_cache(engine: EngineKind) -> bool {
    matches!(engine, EngineKind::Dmdedup(Backend::Dtb | Backend::Cbt))
}

fn has_transactions(engine: EngineKind) -> bool {
    engine == EngineKind::Dmdedup(Backend::Cbt)
}

fn text(reader: &mut ByteReader<'_>) -> Result<String, IoError> {
    let bytes = reader.bytes()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| reader.damaged("a name that is no UTF-8".into()))
}
