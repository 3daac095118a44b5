//! A folder with more subfolders than are in RAM at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use onefold_backup::exclude::Patterns;
use onefold_backup::restore::Options;

use crate::scene::look;
use crate::windows::Scene;

const FOLDERS: usize = 2600;

fn folder(n: usize) -> String {
    format!("wide/folder {n:04}")
}

/// Every third folder has something in it, now and then a folder with something in it.
fn scene() -> Scene {
    Scene::with(|source| {
        for n in 0..FOLDERS {
            let folder = source.join(folder(n));
            fs::create_dir_all(&folder).expect("dirs");
            if n % 3 == 0 {
                fs::write(folder.join("file"), n.to_string()).expect("write");
            }
            if n % 100 == 0 {
                fs::create_dir_all(folder.join("more/empty")).expect("dirs");
                fs::write(folder.join("more/file"), n.to_string()).expect("write");
            }
            let mode = fs::Permissions::from_mode(0o700 + (n % 8) as u32);
            fs::set_permissions(&folder, mode).expect("chmod");
        }
        fs::write(source.join("zz"), "after them").expect("write");
    })
}

#[test]
fn all_its_subfolders_come_back_with_what_is_in_them() {
    let scene = scene();
    let summary = scene.restore(Options::default());
    assert_eq!(look(&scene.source), look(&scene.target));
    assert_eq!(summary.dirs as usize, 1 + FOLDERS + 2 * FOLDERS / 100);
    // One thing fills each of these windows.
    fs::remove_dir_all(&scene.target).expect("remove");
    let some = Options {
        include: Patterns::new(["folder 21??"]).expect("pattern"),
        ..Options::default()
    };
    scene.restore_in(1, some);
    let restored = fs::read_dir(scene.target.join("wide")).expect("list");
    assert_eq!(restored.count(), 100);
}

#[test]
fn what_is_wanted_in_a_late_one_brings_no_other() {
    let scene = scene();
    scene.restore(Options {
        include: Patterns::new(["folder 2400/more"]).expect("pattern"),
        ..Options::default()
    });
    let names = |folder: &Path| -> Vec<_> {
        let names = fs::read_dir(folder).expect("list");
        names.map(|name| name.expect("name").file_name()).collect()
    };
    assert_eq!(names(&scene.target), ["wide"]);
    assert_eq!(names(&scene.target.join("wide")), ["folder 2400"]);
    let wanted = folder(2400) + "/more";
    assert_eq!(
        look(&scene.source.join(&wanted)),
        look(&scene.target.join(&wanted))
    );
}

#[test]
fn what_the_snapshot_does_not_have_is_deleted_in_each_of_them() {
    let scene = scene();
    scene.restore(Options::default());
    let mut others = vec!["0 first".into(), "wide/0 first".into(), "zzz".into()];
    others.extend([folder(1300) + " and", folder(FOLDERS)]);
    // Some have files in them, some have nothing, and some have a folder.
    others.extend([2400, 2401, 2300].map(|n| folder(n) + "/other"));
    others.extend(["/more/other", "/more/empty/other"].map(|other| folder(2300) + other));
    for other in &others {
        fs::create_dir(scene.target.join(other)).expect("mkdir");
        fs::write(scene.target.join(other).join("file"), "").expect("write");
    }
    let count = 2 * others.len() as u64;
    let delete = |dry_run| Options {
        delete: true,
        dry_run,
        ..Options::default()
    };
    assert_eq!(scene.restore(delete(true)).deleted, count);
    assert_eq!(scene.restore(delete(false)).deleted, count);
    assert_eq!(look(&scene.source), look(&scene.target));
}

/// The paths are longer than the system takes in one call, so the folders are made and looked at one by one. Each has a
/// file, and a further name of the file above.
#[test]
fn folders_in_each_other_come_back_in_many_windows_and_again() {
    use rustix::fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat};
    let scene = Scene::with(|source| {
        let open = |dir: &_, name: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(dir, name, flags, Mode::empty()).expect("open")
        };
        let root = std::fs::File::open(source).expect("open");
        let mut above = open(&root.into(), ".");
        for n in 0..60 {
            let name = format!("{n:0250}");
            mkdirat(&above, &name, Mode::RWXU).expect("mkdir");
            let dir = open(&above, &name);
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = openat(&dir, "file", flags, Mode::RUSR | Mode::WUSR).expect("create");
            rustix::io::write(&file, n.to_string().as_bytes()).expect("write");
            if n > 0 {
                linkat(&above, "file", &dir, "one above", AtFlags::empty()).expect("link");
            }
            above = dir;
        }
    });
    for window_bytes in [1 << 10, 64 << 20] {
        for _ in 0..2 {
            let dry = Options {
                dry_run: true,
                delete: true,
                ..Options::default()
            };
            assert_eq!(scene.restore_in(window_bytes, dry).errors, 0);
            let summary = scene.restore_in(window_bytes, Options::default());
            assert_eq!((summary.dirs, summary.files), (60, 119));
            assert_eq!(look(&scene.source), look(&scene.target));
        }
    }
}
