//! Retraced files with holes: their data and the places of their holes are verified.

use std::fs::{File, FileTimes};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use onefold_backup::Content;
use onefold_backup::backup::Outcome;
use onefold_backup::tree::{Visit, visit_items};
use onefold_store::{Encryption, SessionKind};
use rustix::fs::{SeekFrom, seek};

use super::{MIB, Scene, is_cached, not_tested, put_out, uneven};

const SIZE: u64 = 20 * MIB as u64 + 5;
/// Ranges of data: all kinds of holes between them, and an end within a block whose rest is zeros.
const DATA: [Range<usize>; 2] = [MIB..9 * MIB, 12 * MIB..19 * MIB + 5];
const BLOCK: usize = 4096;

/// Writes the same bytes at these places, one after another, and nothing elsewhere.
fn write(file: &File, data: &[Range<usize>]) {
    file.set_len(SIZE).expect("set_len");
    let all = uneven(1, 20 * MIB);
    let mut rest = &all[..];
    for place in data {
        let (here, behind) = rest.split_at(place.len());
        file.write_all_at(here, place.start as u64).expect("write");
        rest = behind;
    }
}

/// Returns the ranges where the file system says that there is data.
fn runs(file: &File) -> Vec<Range<u64>> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).expect("a hole, or the end");
        runs.push(start..at);
    }
    runs
}

/// Whether the file has holes where there is no data.
fn has_holes(file: &File) -> bool {
    file.sync_all().expect("sync");
    let about = file.metadata().expect("stat");
    let has = about.blocks() * 512 < about.len() && runs(file).len() > 1;
    if !has {
        not_tested("files with holes, of which this file system has none");
    }
    has
}

impl Scene {
    fn with_holes(encryption: Encryption) -> Option<Self> {
        let scene = Self::of(encryption, |file| write(file, &DATA));
        has_holes(&scene.file("a")).then_some(scene)
    }

    fn file(&self, folder: &str) -> File {
        File::open(self.path(&format!("{folder}/file.xyz"))).expect("open")
    }

    /// Makes a file of the same size and time of change.
    fn like(&self, folder: &str, write: impl FnOnce(&File)) {
        std::fs::create_dir(self.path(folder)).expect("mkdir");
        let path = self.path(&format!("{folder}/file.xyz"));
        let file = File::create(path).expect("create");
        write(&file);
        let mtime = self.file("a").metadata().expect("stat").modified();
        let times = FileTimes::new().set_modified(mtime.expect("mtime"));
        file.set_times(times).expect("utimens");
    }

    fn has_read(&self, folder: &str, outcome: &Outcome) -> Content {
        let content = self.content(outcome, &format!("{folder}/file.xyz"));
        assert_eq!(self.data_of(&content), runs(&self.file(folder)));
        content
    }

    /// Returns the ranges where the content has data.
    fn data_of(&self, content: &Content) -> Vec<Range<u64>> {
        let session = self.repository.session(SessionKind::Read).expect("session");
        let mut reader = session.reader().expect("reader");
        let (mut data, mut at) = (Vec::<Range<u64>>::new(), 0);
        visit_items(content, &mut reader, &mut |visit, _| {
            match visit {
                Visit::Data(slice, _) => {
                    let end = at + u64::from(slice.len);
                    match data.last_mut() {
                        Some(run) if run.end == at => run.end = end,
                        _ => data.push(at..end),
                    }
                    at = end;
                }
                Visit::Hole(_, len) => at += len,
                Visit::Recipe(_) => {}
            }
            Ok(true)
        })
        .expect("read");
        data
    }
}

fn bytes_of(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

#[test]
fn what_has_holes_keeps_its_chunks() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let Some(mut scene) = Scene::with_holes(encryption) else {
            return;
        };
        let data = runs(&scene.file("a"));
        if is_cached(&scene.path("a/file.xyz")) {
            let outcome = scene.read_again("a");
            assert_eq!(outcome.snapshot.summary.bytes_read, bytes_of(&data));
            assert_eq!(outcome.snapshot.summary.data_chunks, 0);
            assert_eq!(scene.has_read("a", &outcome), scene.first);
        }
    }
}

#[test]
fn what_has_holes_and_lies_on_the_disk_is_verified_by_its_digest() {
    let Some(mut scene) = Scene::with_holes(Encryption::Aes256Gcm) else {
        return;
    };
    scene.like("b", |file| write(file, &DATA));
    put_out(&scene.path("b/file.xyz"));
    let outcome = scene.back_up("b");
    let data = runs(&scene.file("b"));
    assert_eq!(outcome.snapshot.summary.bytes_read, bytes_of(&data));
    assert_eq!(outcome.snapshot.summary.data_chunks, 0);
    assert_eq!(scene.has_read("b", &outcome), scene.first);
}

/// The files have the same data, or even the same bytes, and holes elsewhere; or other data between the same holes.
#[test]
fn what_has_its_holes_elsewhere_is_cut() {
    for (encryption, is_cold) in [
        (Encryption::Aes256Gcm, false),
        (Encryption::Aes256Gcm, true),
        (Encryption::None, false),
    ] {
        let Some(mut scene) = Scene::with_holes(encryption) else {
            return;
        };
        let [one, two] = DATA;
        let moved = [one.start + BLOCK..one.end + BLOCK, two.clone()];
        let shared = [one.start..one.end + BLOCK, two.start + BLOCK..two.end];
        scene.like("moved", |file| write(file, &moved));
        scene.like("shared", |file| write(file, &shared));
        scene.like("filled", |file| {
            write(file, &DATA);
            file.write_all_at(&[0; BLOCK], one.end as u64)
                .expect("zeros");
        });
        scene.like("ended", |file| {
            write(file, &DATA);
            file.write_all_at(&[0], SIZE - 1).expect("zeros");
        });
        scene.like("whole", |file| {
            write(file, &DATA);
            for hole in [0..one.start, one.end..two.start, two.end..SIZE as usize] {
                let zeros = vec![0; hole.len()];
                file.write_all_at(&zeros, hole.start as u64).expect("zeros");
            }
        });
        scene.like("other", |file| {
            write(file, &DATA);
            file.write_all_at(b"\xff", two.end as u64 - 1)
                .expect("write");
        });
        for folder in ["moved", "shared", "filled", "ended", "whole", "other"] {
            // The newest snapshot must have the other file, which looks the same.
            scene.back_up("a");
            let path = scene.path(&format!("{folder}/file.xyz"));
            if is_cold {
                put_out(&path)
            } else {
                is_cached(&path);
            }
            let outcome = scene.back_up(folder);
            let content = scene.has_read(folder, &outcome);
            assert_ne!(content.items, scene.first.items, "{folder}");
            let digest = content.digest;
            assert!(digest.is_none() || digest != scene.first.digest, "{folder}");
        }
    }
}

/// Holes that were read lie in the page cache like data that was read. That is no reason to compare the file before it
/// is cut.
#[test]
fn what_was_written_with_its_time_kept_and_has_only_its_holes_in_ram_is_read_once() {
    let Some(mut scene) = Scene::with_holes(Encryption::Aes256Gcm) else {
        return;
    };
    let [data, _] = DATA;
    scene.like("b", |file| write(file, std::slice::from_ref(&data)));
    scene.back_up("b");
    let path = scene.path("b/file.xyz");
    let file = File::options().read(true).write(true).open(&path);
    let file = file.expect("open");
    let before = file.metadata().expect("stat").modified().expect("mtime");
    file.write_all_at(b"\xff", data.end as u64 - 1)
        .expect("write");
    file.set_times(FileTimes::new().set_modified(before))
        .expect("utimens");
    put_out(&path);
    let mut zeros = vec![1; SIZE as usize - data.end];
    file.read_exact_at(&mut zeros, data.end as u64)
        .expect("read");
    let outcome = scene.back_up("b");
    assert_eq!(outcome.snapshot.summary.bytes_read, data.len() as u64);
    scene.has_read("b", &outcome);
}

#[test]
fn what_is_too_short_to_be_looked_for_by_its_digest_has_none() {
    let Some(mut scene) = Scene::with_holes(Encryption::Aes256Gcm) else {
        return;
    };
    for (folder, size) in [("short", 1 << 20), ("long", SIZE)] {
        scene.like(folder, |file| file.set_len(size).expect("set_len"));
        let outcome = scene.back_up(folder);
        let digest = scene.has_read(folder, &outcome).digest;
        assert_eq!(digest.is_some(), folder == "long");
    }
}
