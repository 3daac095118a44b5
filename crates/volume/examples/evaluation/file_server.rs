//! Figure 6.4 and Table 2.1: what file systems of this host write for a file server. Needs root, FUSE and loop devices.
//!
//! A device in RAM is given to the kernel and notes all requests; which chunks are metadata is seen from their bytes
//! ([`recorder`](crate::recorder)). Figure 6.4 replays the requests on modelled devices: without hints, with NODEDUP
//! for metadata, and for all.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onefold_export::attach::{AttachFolder, Transport, Via};
use onefold_volume::BlockDevice;

use crate::file_load::FileServer;
use crate::findings::{Findings, Measured, parallel};
use crate::hints::CACHES;
use crate::likeness::MetadataDevice;
use crate::loads::QUEUE;
use crate::micro::range;
use crate::paper;
use crate::recorder::{Chunk, Event, Kind, Recorder};
use crate::report::Table;
use crate::setup::{CHUNK_BYTES, Modelled, Setup, Spent, Write};
use crate::{Args, Error};

/// Bytes of the device for each file: files of 128 KiB that grow.
const DEVICE_BYTES_A_FILE: u64 = 384 << 10;
/// Bytes of the device besides: no file system is smaller than XFS's 300 MiB.
const DEVICE_BYTES: u64 = 512 << 20;
/// Writes of a transaction (p. 35).
const TRANSACTION: u64 = 1000;

/// A file system that this host can make and mount.
struct FileSystem {
    name: &'static str,
    make: &'static str,
    /// Options of `mount`. Journals commit each second in place of five: the load runs that much faster here.
    options: &'static str,
}

const EXT2: FileSystem = FileSystem {
    name: "ext2",
    make: "mkfs.ext2 -qF -E lazy_itable_init=0",
    options: "-t ext2",
};
const EXT3: FileSystem = FileSystem {
    name: "ext3",
    make: "mkfs.ext3 -qF -E lazy_itable_init=0,lazy_journal_init=0",
    options: "-t ext3 -o commit=1",
};
const EXT4: FileSystem = FileSystem {
    name: "ext4",
    make: "mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0",
    options: "-t ext4 -o commit=1",
};
const XFS: FileSystem = FileSystem {
    name: "xfs",
    make: "mkfs.xfs -qf",
    options: "-t xfs",
};
/// Metadata once: two copies, which is the default, would make half of it duplicates.
const BTRFS: FileSystem = FileSystem {
    name: "btrfs",
    make: "mkfs.btrfs -qf -m single",
    options: "-t btrfs -o commit=1",
};

/// The hint NODEDUP, of what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hinted {
    Nothing,
    Metadata,
    All,
}

impl Hinted {
    const EACH: [Self; 3] = [Self::Nothing, Self::Metadata, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no hints",
            Self::Metadata => "for metadata",
            Self::All => "for metadata and data",
        }
    }

    fn is_of(self, chunk: &Chunk) -> bool {
        match self {
            Self::Nothing => false,
            Self::Metadata => chunk.kind == Kind::Metadata,
            Self::All => true,
        }
    }
}

/// Work of a file system for the load.
struct Recorded {
    file_system: &'static str,
    bytes: u64,
    events: Vec<Event>,
    /// All chunks of the device when it was unmounted.
    at_rest: Vec<Chunk>,
}

impl Recorded {
    fn written(&self) -> impl Iterator<Item = &Chunk> {
        self.events.iter().flat_map(|event| match event {
            Event::Write(_, chunks) => &chunks[..],
            _ => &[],
        })
    }
}

/// One replay.
struct Replay<'a> {
    of: &'a Recorded,
    metadata: MetadataDevice<'a>,
    setup: Setup,
    hinted: Hinted,
}

/// Figure 6.4.
pub fn throughput(args: &Args) -> Result<Findings, Error> {
    let mut found = Findings::new("6.4", "A file server with unique data, hint NODEDUP");
    let mut setups = vec![Setup::Raw, Setup::Log];
    setups.extend(CACHES.map(|cache| Setup::Cbt {
        cache,
        transaction: TRANSACTION,
    }));
    for (file_system, claims) in [(&EXT4, paper::FILES_EXT4), (&BTRFS, paper::FILES_NILFS2)] {
        let recorded = record(args, file_system)?;
        let mut replays = Vec::new();
        for hinted in Hinted::EACH {
            replays.extend(setups.iter().map(|setup| Replay {
                of: &recorded,
                metadata: args.hinted_device(),
                setup: *setup,
                hinted,
            }));
        }
        let measured = parallel(&replays, replay)?;
        for (claim, hinted, seconds) in [
            (claims[0], 1, Spent::seconds as fn(&Spent) -> f64),
            (claims[1], 1, Spent::seconds_in_turns),
            (claims[2], 2, Spent::seconds),
            (claims[3], 2, Spent::seconds_in_turns),
        ] {
            let of = |hinted: usize| {
                let part = &measured[hinted * setups.len()..][..setups.len()];
                part.iter().filter(|one| one.setup.is_cbt(TRANSACTION))
            };
            let times = of(0).zip(of(hinted));
            found.add(
                claim,
                range(times.map(|(without, with)| seconds(&without.spent) / seconds(&with.spent))),
            );
        }
        found.measured.extend(measured);
    }
    Ok(found)
}

/// Table 2.1.
pub fn unique_metadata(args: &Args) -> Result<(Table, Findings), Error> {
    let mut found = Findings::new("t2.1", "Unique metadata of file systems");
    let mut rows = Vec::new();
    for (file_system, said) in [
        (&EXT2, Some((98.9, paper::UNIQUE_EXT2))),
        (&EXT3, Some((84.7, paper::UNIQUE_EXT3))),
        (&EXT4, Some((84.6, paper::UNIQUE_EXT4))),
        (&XFS, None),
        (&BTRFS, None),
    ] {
        let recorded = record(args, file_system)?;
        let of_metadata = |chunk: &&Chunk| chunk.kind == Kind::Metadata;
        let written: Vec<&Chunk> = recorded.written().filter(of_metadata).collect();
        let at_rest: Vec<&Chunk> = recorded.at_rest.iter().filter(of_metadata).collect();
        let (of_writes, of_rest) = (unique_percent(&written), unique_percent(&at_rest));
        if let Some((_, claim)) = said {
            found.add(claim, range([of_writes, of_rest]));
        }
        let inferred = written.iter().filter(|chunk| chunk.is_inferred).count();
        let wrong = (recorded.written())
            .filter(|chunk| chunk.kind == Kind::Data && chunk.is_inferred)
            .count();
        rows.push(vec![
            file_system.name.to_owned(),
            said.map_or("–".into(), |(percent, _)| format!("{percent:.1}")),
            format!("{of_rest:.1}"),
            at_rest.len().to_string(),
            format!("{of_writes:.1}"),
            written.len().to_string(),
            recorded.written().count().to_string(),
            format!("{:.1}", percent(inferred, written.len())),
            wrong.to_string(),
        ]);
    }
    let table = Table {
        head: vec![
            "file system",
            "paper, %",
            "unique at rest, %",
            "chunks",
            "unique of writes, %",
            "chunks",
            "all writes",
            "inferred, %",
            "data taken for it",
        ],
        words: 1,
        rows,
    };
    Ok((table, found))
}

fn percent(part: usize, all: usize) -> f64 {
    part as f64 * 100.0 / all.max(1) as f64
}

/// Different contents by all chunks.
fn unique_percent(chunks: &[&Chunk]) -> f64 {
    let contents: HashSet<u64> = chunks.iter().map(|chunk| chunk.content).collect();
    percent(contents.len(), chunks.len())
}

/// Makes a file system on a device that notes what is done to it, and runs the load there.
fn record(args: &Args, file_system: &FileSystem) -> Result<Recorded, Error> {
    let work = tempfile::tempdir()?;
    let bytes = args.files * DEVICE_BYTES_A_FILE + DEVICE_BYTES;
    let recorder = Arc::new(Recorder::new(bytes));
    let device: Arc<dyn BlockDevice> = recorder.clone();
    let attached = AttachFolder::take(&work.path().join("attached"))?;
    let via = Via::Only(Transport::Fuse);
    let mut attached = attached.attach(&device, via, &work.path().join("control"))?;
    let path = attached.device.display().to_string();
    let mount = work.path().join("mount");
    std::fs::create_dir(&mount)?;
    let loaded = shell(&format!("{} {path}", file_system.make))
        .and_then(|()| Ok(recorder.start()?))
        .and_then(|()| {
            let options = file_system.options;
            shell(&format!("mount {options} {path} {}", mount.display()))
        })
        .and_then(|()| {
            let loaded = load(args, &mount, &recorder);
            shell(&format!("umount {}", mount.display())).and(loaded)
        });
    let events = recorder.take();
    attached.detach()?;
    loaded.map_err(|error| format!("{}: {error}", file_system.name))?;
    Ok(Recorded {
        file_system: file_system.name,
        bytes,
        events,
        at_rest: recorder.chunks(),
    })
}

fn load(args: &Args, mount: &Path, recorder: &Recorder) -> Result<(), Error> {
    FileServer::new(mount, args.files, args.seed).run(args.files, || recorder.begin())
}

fn shell(line: &str) -> Result<(), Error> {
    let script = format!("export PATH=$PATH:/usr/sbin:/sbin; {line}");
    let output = Command::new("sh").args(["-c", &script]).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// Replays all requests; the time counts from where the load began.
fn replay(replay: &Replay<'_>) -> Result<Measured, Error> {
    let recorded = replay.of;
    let stored = (recorded.written()).filter(|chunk| chunk.kind != Kind::Zero);
    let chunks = stored.count() as u64;
    let lbns = recorded.bytes / CHUNK_BYTES;
    let mut device = Modelled::over(replay.setup, chunks, lbns, replay.metadata)?;
    let mut queue = Vec::new();
    let (mut queued, mut done) = (0, 0);
    for event in &recorded.events {
        match event {
            Event::Write(lbn, chunks) => {
                done += chunks.len() as u64;
                queue.extend(writes(*lbn, chunks, replay.hinted));
                queued += 1;
            }
            _ => queued = QUEUE,
        }
        if queued == QUEUE {
            device.write(&queue)?;
            queue.clear();
            queued = 0;
        }
        match event {
            Event::Write(..) => {}
            Event::Read(places) => {
                done += places.end - places.start;
                device.read(&places.clone().collect::<Vec<u64>>(), false)?;
            }
            Event::Flush => device.commit()?,
            Event::Begin => {
                device.commit()?;
                device.begin();
                done = 0;
            }
        }
    }
    device.write(&queue)?;
    device.commit()?;
    Ok(Measured {
        group: format!("{}, {}", recorded.file_system, replay.hinted.name()),
        setup: replay.setup,
        chunks: done,
        spent: device.spent(),
        stored: device.stored_chunks(),
        said: None,
        half_width: None,
    })
}

/// Neighbours that are hinted alike are one write.
fn writes(lbn: u64, chunks: &[Chunk], hinted: Hinted) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    for (chunk, lbn) in chunks.iter().zip(lbn..) {
        let nodedup = hinted.is_of(chunk);
        match writes.last_mut() {
            Some(last) if last.nodedup == nodedup => last.contents.push(chunk.content),
            _ => writes.push(Write {
                lbn,
                contents: vec![chunk.content],
                nodedup,
            }),
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::MARK;

    fn recorded() -> Recorded {
        let chunk = |number: u8, is_data: bool| {
            let mut bytes = vec![number; 100];
            if is_data {
                bytes[..8].copy_from_slice(&MARK);
            }
            Chunk::of(&bytes)
        };
        let all: Vec<Chunk> = (1..100).map(|n| chunk(n, n % 4 != 0)).collect();
        Recorded {
            file_system: "test",
            bytes: 4 << 20,
            events: vec![
                Event::Write(0, all.clone()),
                Event::Begin,
                Event::Write(200, all.clone()),
                Event::Flush,
                Event::Read(0..99),
            ],
            at_rest: Vec::new(),
        }
    }

    #[test]
    fn hints_of_a_replay_reach_the_chunks_that_they_are_of() {
        let of = &recorded();
        let cbt = Setup::Cbt {
            cache: 0.1,
            transaction: TRANSACTION,
        };
        // The second time each chunk is known, unless it was hinted: 24 of 99 are metadata.
        for (hinted, stored) in [
            (Hinted::Nothing, 99),
            (Hinted::Metadata, 75 + 2 * 24),
            (Hinted::All, 2 * 99),
        ] {
            let replayed = Replay {
                of,
                metadata: MetadataDevice::new(onefold_io::FlashModel::s3700),
                setup: cbt,
                hinted,
            };
            let measured = replay(&replayed).expect("a replay");
            assert_eq!(measured.stored, Some(stored), "{}", hinted.name());
            assert_eq!(measured.chunks, 2 * 99);
        }
    }

    #[test]
    fn unique_metadata_is_counted_by_content() {
        let chunks: Vec<Chunk> = [&[1u8][..], &[2], &[1], &[3]].map(Chunk::of).to_vec();
        let chunks: Vec<&Chunk> = chunks.iter().collect();
        assert!((unique_percent(&chunks) - 75.0).abs() < 1e-9);
    }
}
