//! `--generations N`: what a machine stores more that knows a bucket by its catalogs' hooks alone.
//!
//! A tree changes from day to day: files are edited, grow in the middle, move, come and go. Each day's tree is backed
//! up into two repositories: by one machine that keeps its index, and by a machine that was never there before. The first
//! one's stored bytes are those of a full index.

use std::fs;
use std::path::{Path, PathBuf};

use onefold_io::Random;

use super::measure;
use super::s3::S3Server;
use super::tools::{RepositoryPlace, TOOLS, Tool};

/// Files of the first day's tree.
const FILES: u64 = 10_000;
/// Bytes of the largest file of most; a few are larger.
const BYTES_MAX: u64 = 48 << 10;
/// Bytes of the large files, of which there is one in 400.
const LARGE_BYTES: u64 = 2 << 20;
/// Files in a folder.
const FOLDER_FILES: u64 = 100;
/// Changes of a day, in 10,000 files: edits in place, insertions, moves, new files, removals.
const CHANGES: [u64; 5] = [200, 100, 60, 60, 30];

/// Both repositories' stored bytes after a day.
struct Day {
    full_bytes: u64,
    hooks_bytes: u64,
    requests: u64,
    received_bytes: u64,
}

/// A repository in a bucket of its own, and the machine that backs up into it.
struct MachineSide {
    server: S3Server,
    place: RepositoryPlace,
    log: PathBuf,
    tool: Tool,
}

impl MachineSide {
    fn new(folder: &Path, path: &std::ffi::OsStr) -> Result<Self, String> {
        let home = folder.join("home");
        fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let server = S3Server::start(&folder.join("server"))?;
        let place = RepositoryPlace {
            repo: server.bucket.join("repo"),
            s3: Some(server.address.clone()),
            home,
            path: path.to_owned(),
        };
        let (tool, log) = (TOOLS[0], folder.join("log"));
        measure::run(tool.init(&place), &log)?;
        server.take_requests();
        Ok(Self {
            server,
            place,
            log,
            tool,
        })
    }

    /// Backs up, and gives the bytes that are stored then.
    fn back_up(&self, tree: &Path) -> Result<u64, String> {
        measure::run(self.tool.backup(&self.place, tree, "day"), &self.log)?;
        Ok(measure::disk_usage(&self.place.repo).0)
    }

    /// Makes the machine one that was never here.
    fn forget_machine(&self) -> Result<(), String> {
        fs::remove_dir_all(&self.place.home)
            .and_then(|()| fs::create_dir_all(&self.place.home))
            .map_err(|error| format!("{}: {error}", self.place.home.display()))
    }
}

/// Runs so many days, and prints a row for each.
pub fn run(days: u32, seed: u64, data: &Path, path: &std::ffi::OsStr) -> Result<(), String> {
    let work = data.join("generations");
    let _ = fs::remove_dir_all(&work);
    let [full, hooks] = ["full", "hooks"].map(|name| MachineSide::new(&work.join(name), path));
    let (full, hooks) = (full?, hooks?);
    let mut tree = SeededTree::new(work.join("tree"), seed)?;
    println!(
        "seed {seed}, {FILES} files, {} MB",
        tree.bytes()? / 1_000_000
    );
    println!("| day | full index, MB | hooks alone, MB | more | requests | received, MB |");
    println!("|---|---|---|---|---|---|");
    for day in 0..days {
        if day > 0 {
            tree.change()?;
        }
        hooks.forget_machine()?;
        let hooks_bytes = hooks.back_up(&tree.root)?;
        let requests = hooks.server.take_requests();
        let row = Day {
            full_bytes: full.back_up(&tree.root)?,
            hooks_bytes,
            requests: requests.count,
            received_bytes: requests.received_bytes,
        };
        // Its bytes are not those of the other repository's backup.
        hooks.server.take_requests();
        println!("{}", row.line(day));
    }
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

impl Day {
    fn line(&self, day: u32) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let more = self.hooks_bytes as f64 / self.full_bytes as f64 - 1.0;
        format!(
            "| {} | {:.2} | {:.2} | {:+.2} % | {} | {:.2} |",
            day + 1,
            mb(self.full_bytes),
            mb(self.hooks_bytes),
            more * 100.0,
            self.requests,
            mb(self.received_bytes)
        )
    }
}

/// The tree, which is the same for one seed.
struct SeededTree {
    root: PathBuf,
    files: Vec<PathBuf>,
    random: Random,
    made: u64,
}

impl SeededTree {
    fn new(root: PathBuf, seed: u64) -> Result<Self, String> {
        let mut tree = Self {
            root,
            files: Vec::new(),
            random: Random(seed),
            made: 0,
        };
        (0..FILES).try_for_each(|_| tree.add())?;
        Ok(tree)
    }

    fn bytes(&self) -> Result<u64, String> {
        let lens = self.files.iter().map(fs::metadata);
        let lens = lens.map(|about| about.map(|about| about.len()));
        lens.sum::<Result<u64, _>>()
            .map_err(|error| error.to_string())
    }

    /// Text that compresses to about a half: letters by chance, some of them spaces.
    fn content(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = self.random.bytes(len as usize);
        bytes
            .iter_mut()
            .for_each(|byte| *byte = b' ' + (*byte & 15));
        bytes
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let folder = self.random.below(FILES / FOLDER_FILES);
        self.root.join(format!("d{folder}/f{}", self.made))
    }

    fn add(&mut self) -> Result<(), String> {
        let bytes = if self.random.one_in(400) {
            LARGE_BYTES
        } else {
            self.random.below(BYTES_MAX) + 1
        };
        let (path, content) = (self.new_path(), self.content(bytes));
        write(&path, &content)?;
        self.files.push(path);
        Ok(())
    }

    fn any(&mut self) -> usize {
        self.random.below(self.files.len() as u64) as usize
    }

    /// A day's changes.
    fn change(&mut self) -> Result<(), String> {
        let [edits, insertions, moves, new, gone] = CHANGES;
        for _ in 0..edits {
            self.edit(|random, content, at| {
                let end = content.len().min(at + 1 + random.below(200) as usize);
                content[at..end].iter_mut().for_each(|byte| *byte ^= 1);
            })?;
        }
        for _ in 0..insertions {
            self.edit(|random, content, at| {
                let len = 1 + random.below(500) as usize;
                drop(content.splice(at..at, random.bytes(len)));
            })?;
        }
        for _ in 0..moves {
            let (at, to) = (self.any(), self.new_path());
            make_folder_of(&to)?;
            fs::rename(&self.files[at], &to).map_err(|error| error.to_string())?;
            self.files[at] = to;
        }
        (0..new).try_for_each(|_| self.add())?;
        for _ in 0..gone {
            let at = self.any();
            let path = self.files.swap_remove(at);
            fs::remove_file(path).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Changes a file at some place in it.
    fn edit(&mut self, edit: impl Fn(&mut Random, &mut Vec<u8>, usize)) -> Result<(), String> {
        let at = self.any();
        let path = self.files[at].clone();
        let mut content = fs::read(&path).map_err(|error| error.to_string())?;
        let place = self.random.below(content.len() as u64) as usize;
        edit(&mut self.random, &mut content, place);
        write(&path, &content)
    }
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    make_folder_of(path)?;
    fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}

fn make_folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().ok_or("a path without a folder")?;
    fs::create_dir_all(folder).map_err(|error| error.to_string())
}
