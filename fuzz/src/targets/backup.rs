//! Snapshots, leaves, recipes, and what users write: patterns and policies.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use onefold_backup::backup::{self, Input, Parent};
use onefold_backup::exclude::{IgnoreFile, PatternsBuilder, pattern_lines};
use onefold_backup::fuzzing;
use onefold_backup::leaf::{self, recipe};
use onefold_backup::meta::Owners;
use onefold_backup::snapshot::{Snapshot, decode_table, encode_table};
use onefold_backup::tree::{Tree, read_leaf};
use onefold_backup::{Error, Item, NoEvents, Progress, Time, forget, snapshots};
use onefold_io::MemDir;
use onefold_store::{Encryption, Entropy, InitOptions, OpenOptions, Repository, SessionKind};

use super::Target;

/// A small repository without encryption, and what its snapshot holds.
pub struct Scene {
    pub dir: Arc<MemDir>,
    snapshot: Vec<u8>,
    table: Vec<u8>,
    leaves: Vec<Vec<u8>>,
    recipes: Vec<Vec<u8>>,
}

/// The same one for all targets.
pub fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| Scene::new().expect("a repository in RAM"))
}

pub fn targets() -> Vec<Target> {
    let scene = scene();
    vec![
        Target::new("backup/snapshot", vec![scene.snapshot.clone()], |bytes| {
            let _ = Snapshot::decode(bytes);
        }),
        Target::new("backup/table", vec![scene.table.clone()], |bytes| {
            let _ = decode_table(bytes);
        }),
        Target::new("backup/leaf", scene.leaves.clone(), |bytes| {
            let _ = leaf::decode_bare(bytes);
            let _ = leaf::decode(bytes, &mut |_| Err(Error::Usage("no recipes here".into())));
        }),
        Target::new("backup/recipe", scene.recipes.clone(), |bytes| {
            let _ = recipe::decode(bytes, 0);
            let _ = recipe::decode(bytes, 1);
        }),
        Target::new("backup/patterns", patterns(), |bytes| {
            let mut builder = PatternsBuilder::default();
            if pattern_lines(bytes).all(|(_, line)| builder.add(line, true).is_ok())
                && let Ok(patterns) = builder.build()
            {
                let _ = patterns.decide(b"/home/me/a file.o", false);
                let _ = patterns.covers(b"/home", true);
            }
            if let Ok(ignore) = IgnoreFile::new(None, b"/home", bytes) {
                let _ = ignore.0.excludes(b"/home/me/a file.o", false);
            }
        })
        .allowing(64 << 20),
        Target::new("backup/policy", vec![b"1y2m3d4h".to_vec()], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = forget::parse_span(&text);
            let _ = forget::GroupBy::parse(&text);
        }),
        Target::new("backup/acl", vec![ACL.to_vec()], |bytes| {
            for name in ["system.posix_acl_access", "system.posix_acl_default"] {
                fuzzing::acl_record(name.as_bytes(), bytes);
            }
            let mode = fuzzing::mode_without_acl(0o4664, bytes);
            assert_eq!(mode & !0o070, 0o4604, "more than the group's bits");
        }),
        Target::new("backup/owners", owners(), |bytes| {
            let (passwd, group) = bytes.split_at(bytes.len() / 2);
            for (passwd, group) in [(passwd, group), (bytes, bytes)] {
                let owners = Owners::of(passwd, group);
                let owner = owners.get(0, 0);
                if !owner.user.is_empty() {
                    let least = owners.uid_of(&owner.user);
                    assert_eq!(least, Some(0), "a name without its number");
                }
                owners.gid_of("users");
            }
        }),
    ]
}

/// As `setfacl -m u:1234:rw,g:7:x` makes it of a file of mode 0640.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\xd2\x04\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x08\0\x01\0\x07\0\0\0\x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

/// Files of users and of groups.
fn owners() -> Vec<Vec<u8>> {
    [
        "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\n",
        "root:x:0:\nusers:x:100:ann,bob\n+::4294967295:\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn patterns() -> Vec<Vec<u8>> {
    ["*.o\n!keep.o\n/home/**/cache/\n# no\n", "a[b-d]?{x,y}\\*\n"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

impl Scene {
    fn new() -> Result<Self, Error> {
        let dir = Arc::new(MemDir::new());
        let mut init = InitOptions::new("fuzz", 1);
        init.encryption = Encryption::None;
        init.entropy = Entropy::seeded(1);
        Repository::init(dir.clone(), &init, None)?;
        // names of containers are the same each time, so that an input that was kept fits
        let options = OpenOptions {
            entropy: Entropy::seeded(2),
            threads: 1,
            ..OpenOptions::default()
        };
        let repository = Repository::open(dir.clone(), options, None)?;
        let source = tempfile::tempdir().expect("a folder");
        write_files(source.path()).expect("files");
        let options = backup::Options {
            time: Time { secs: 1, nanos: 2 },
            parent: Parent::Newest(onefold_backup::forget::GroupBy::default()),
            ..backup::Options::default()
        };
        let input = Input::Paths(vec![source.path().as_os_str().as_bytes().to_vec()]);
        let outcome = backup::run(
            &repository,
            input,
            &options,
            &Progress::default(),
            &NoEvents,
        )?;
        repository.put_sketch(b"what a chunker learnt")?;
        let id = outcome.id.expect("a snapshot");
        let named = snapshots::load(&repository, id)?;
        let session = repository.session(SessionKind::Read)?;
        let mut reader = session.reader()?;
        let tree = Tree::open(&named.snapshot, &mut reader)?;
        let mut scene = Self {
            dir,
            snapshot: named.snapshot.encode(),
            table: encode_table(tree.leaves()),
            leaves: Vec::new(),
            recipes: Vec::new(),
        };
        for leaf in tree.leaves() {
            let leaf = read_leaf(leaf, &mut reader)?;
            let items: Vec<Item> = leaf.items().cloned().collect();
            scene.recipes.push(recipe::encode(&items, 0));
            scene.leaves.push(leaf::encode(&leaf));
        }
        Ok(scene)
    }
}

/// Folders, small files, one of some chunks, a hole, a link.
fn write_files(root: &Path) -> std::io::Result<()> {
    for folder in ["a", "a/b", "c"] {
        std::fs::create_dir_all(root.join(folder))?;
        for number in 0..5u32 {
            let text = format!("{folder} {number}\n").repeat(number as usize * 50);
            std::fs::write(root.join(folder).join(format!("file {number}")), text)?;
        }
    }
    let mut state = 1u32;
    let noise: Vec<u8> = (0..100_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    std::fs::write(root.join("noise"), noise)?;
    std::fs::File::create(root.join("hole"))?.set_len(1 << 20)?;
    std::os::unix::fs::symlink("a/b", root.join("link"))
}
