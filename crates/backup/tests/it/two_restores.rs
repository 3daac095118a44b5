//! Two restores at once into one folder: whatever one does to the other's files, both come to their end, and every file
//! in the folder is complete.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

use onefold_backup::restore::{self, Options, Overwrite};
use onefold_backup::{Progress, snapshots};
use onefold_store::SessionKind;

use crate::restore::options;
use crate::scene::{Log, back_up, bytes, uneven};
use crate::untested::is_root;

const ROUNDS: usize = 3;

/// Makes large and small files, further names, links and pipes, all owned by another user where possible.
fn fill(source: &Path) {
    for n in 0..8 {
        fs::write(source.join(format!("large-{n}")), uneven(n, 1_000_000)).expect("write");
        for m in 0..20 {
            let name = format!("{n}-{m}");
            fs::write(source.join(format!("small-{name}")), &name).expect("write");
            symlink(&name, source.join(format!("link-{name}"))).expect("symlink");
            let pipe = bytes(&source.join(format!("pipe-{name}")));
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, &pipe[..], kind, mode, 0).expect("fifo");
        }
        let first = source.join(format!("large-{n}"));
        fs::hard_link(first, source.join(format!("sub/again-{n}"))).expect("link");
    }
    if is_root() {
        for entry in fs::read_dir(source).expect("list") {
            lchown(entry.expect("entry").path(), Some(1234), Some(1234)).expect("chown");
        }
    }
}

/// Returns the looks of everything that is there, without link counts: each restore may link to the other's files.
fn look(root: &Path) -> Vec<(String, u32, u32, i64, Vec<u8>)> {
    let mut seen = Vec::new();
    for folder in [root.to_owned(), root.join("sub")] {
        for entry in fs::read_dir(&folder).expect("list") {
            let path = entry.expect("entry").path();
            let there = path.symlink_metadata().expect("stat");
            let content = if there.is_file() {
                fs::read(&path).expect("read")
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(root).expect("below it");
            let name = name.display().to_string();
            seen.push((name, there.mode(), there.uid(), there.mtime(), content));
        }
    }
    seen.sort();
    seen
}

#[test]
fn two_restores_into_one_folder_hinder_each_other_in_nothing() {
    let mut scene = crate::restore::scene();
    fill(&scene.source);
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    let id = scene.outcome.id.expect("id");
    let named = snapshots::load(&scene.repository, id).expect("load");
    for overwrite in [Overwrite::IfChanged, Overwrite::Always, Overwrite::Never] {
        for round in 0..ROUNDS {
            let target = scene.target.join(format!("{overwrite:?}-{round}"));
            let together = std::sync::Barrier::new(2);
            let run = || {
                let session = scene.repository.session(SessionKind::Read);
                let (log, options) = (Log::default(), options(&scene));
                let options = Options {
                    overwrite,
                    ..options
                };
                together.wait();
                let done = restore::run(
                    &session.expect("session"),
                    &named.snapshot,
                    &bytes(&target),
                    &options,
                    &Progress::default(),
                    &log,
                );
                done.expect("restore");
                let mut errors = log.errors.into_inner();
                // The other one may replace a file between the setting of a folder's time and the look at it. It sets
                // the time at its own end, and so the look below finds it.
                errors.retain(|(_, how)| !how.contains("time of change"));
                errors
            };
            let errors = std::thread::scope(|scope| {
                let runs = [scope.spawn(run), scope.spawn(run)];
                runs.map(|run| run.join().expect("ends"))
            });
            assert_eq!(errors, [vec![], vec![]], "{overwrite:?}");
            assert!(look(&target) == look(&scene.source), "{overwrite:?}");
        }
    }
}
