//! Metadata of file systems that others made: ext4, XFS and btrfs, as their own programs write them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::hints::FileSystem;
use onefold_volume::{Depot, HeadId};

/// XFS takes no less than 300 MiB.
const IMAGE_BYTES: u64 = 320 << 20;
const CHUNK: usize = 4096;

/// An image that `program` made; `None` where it is not installed.
fn image(program: &str, options: &[&str]) -> Option<(tempfile::TempDir, File)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    let file = File::create_new(&path).expect("a file");
    file.set_len(IMAGE_BYTES).expect("a sparse file");
    let made = Command::new(program).args(options).arg(&path).output();
    let Ok(made) = made else {
        eprintln!("not tested: {program} is not installed");
        return None;
    };
    assert!(
        made.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    Some((folder, File::open(path).expect("it is there")))
}

/// Chunks of an image that are not zeros: those that a program has written.
fn written(image: &File) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let chunks = IMAGE_BYTES / CHUNK as u64;
    let read = move |lbn: u64| {
        let mut chunk = vec![0; CHUNK];
        image
            .read_exact_at(&mut chunk, lbn * CHUNK as u64)
            .expect("it is as long");
        (lbn, chunk)
    };
    let is_written = |(_, chunk): &(u64, Vec<u8>)| *chunk != [0; CHUNK];
    (0..chunks).map(read).filter(is_written)
}

/// Chunks of a new file system that are not known: the root folder and lost+found of ext4 have no id.
const UNKNOWN_MAX: usize = 8;

/// A new file system consists of metadata: nearly all of it is known for certain, and nothing elsewhere is.
#[test]
fn metadata_is_known_as_mkfs_writes_it() {
    for (program, options) in [
        ("mkfs.ext4", &["-q", "-F"][..]),
        ("mkfs.ext4", &["-q", "-F", "-O", "meta_bg,^resize_inode"]),
        ("mkfs.ext4", &["-q", "-F", "-O", "sparse_super2"]),
        ("mkfs.ext2", &["-q", "-F"]),
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
    ] {
        let Some((_folder, image)) = image(program, options) else {
            continue;
        };
        let found = FileSystem::find(IMAGE_BYTES, &mut |offset, buffer| {
            image.read_exact_at(buffer, offset).expect("it is as long");
            Ok(())
        });
        let mut file_system = found.expect("it can be read");
        let (mut known, mut unknown) = (0, Vec::new());
        for (lbn, chunk) in written(&image) {
            if file_system.has_metadata(lbn * CHUNK as u64, &chunk) {
                known += 1
            } else {
                unknown.push(lbn)
            }
        }
        assert!(known > 0, "{program} {options:?}");
        assert!(
            unknown.len() <= UNKNOWN_MAX.max(known / 20),
            "{program} {options:?}: {known} known, not {unknown:?}"
        );
        let data = vec![0x5A; CHUNK];
        let last = IMAGE_BYTES - 40 * CHUNK as u64;
        assert!(!file_system.has_metadata(last - 7 * CHUNK as u64, &data));
    }
}

/// Once the superblock is there, metadata is stored without being deduplicated, and data is.
#[test]
fn metadata_is_stored_apart_from_what_is_deduplicated() {
    let Some((_folder, image)) = image("mkfs.ext4", &["-q", "-F"]) else {
        return;
    };
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine: EngineKind::Dmdedup(Backend::InRamSaved),
        ..CreateOptions::new(IMAGE_BYTES, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let options = OpenOptions {
        front: Options {
            inline: true,
            infer: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let depot = Depot::open(folder, options).expect("it opens");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    let write_image = || {
        for (lbn, chunk) in written(&image) {
            let written = caller.write(lbn * CHUNK as u64, &chunk);
            written.expect("a write");
        }
        caller.flush().expect("a flush");
    };
    let counted = || {
        let stats = depot.stats().expect("it is open");
        (
            stats.front.nodedup.as_metadata,
            stats.engine.duplicate_writes,
        )
    };
    write_image();
    // Until here nobody had looked for the file system since its superblock was written.
    for lbn in 0..300 {
        let written = caller.write(IMAGE_BYTES - (lbn + 1) * CHUNK as u64, &[7; CHUNK]);
        written.expect("a write");
    }
    caller.flush().expect("a flush");
    let (metadata, duplicates) = counted();
    assert!(duplicates >= 299, "data is deduplicated: {duplicates}");
    write_image();
    let (now, _) = counted();
    let all = written(&image).count() as u64;
    let known = now - metadata;
    assert!(known + UNKNOWN_MAX as u64 >= all, "{known} of {all}");
    for (lbn, chunk) in written(&image) {
        let found = caller.read(lbn * CHUNK as u64, CHUNK as u64);
        assert!(found.expect("a read")[..] == chunk[..], "chunk {lbn}");
    }
}
