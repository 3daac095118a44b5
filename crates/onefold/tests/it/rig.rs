//! Fixtures of all tests: a place for a repository, the program, and trees of files that change and are compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use onefold_io::Random;
use serde_json::Value;
use tempfile::TempDir;

pub const PASSWORD: &str = "correct horse battery";

/// The program, without anything of the caller's environment that it listens to.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONEFOLD_"))
    {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .env("ONEFOLD_PASSWORD", PASSWORD);
    command
}

/// Output of a run, and its exit code.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Ran {
    /// Fails unless the program ended with `code`.
    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        self
    }

    /// Standard output as JSON lines.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }

    /// Standard error as JSON lines.
    #[track_caller]
    pub fn errors(&self) -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.err.lines().map(parse).collect()
    }

    /// The last line of standard output as JSON.
    #[track_caller]
    pub fn last(&self) -> Value {
        self.lines().pop().expect("a line")
    }
}

/// A folder with a place for a repository, sources and targets.
pub struct Rig {
    pub dir: TempDir,
}

impl Rig {
    /// Nothing there yet.
    pub fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder for the test"),
        }
    }

    /// An encrypted repository.
    pub fn new() -> Self {
        let rig = Self::empty();
        rig.run(["init"]).ends(0);
        rig
    }

    /// One without encryption: opening takes no time.
    pub fn open() -> Self {
        let rig = Self::empty();
        rig.run(["init", "--encryption", "none"]).ends(0);
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    /// The program with this repository.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = program();
        command
            .current_dir(self.dir.path())
            .env("ONEFOLD_REPOSITORY", self.repo())
            .args(args);
        let is_there = |name: &str| self.repo().join(name).exists();
        let is_of_another = |arg: &OsStr| ["init", "-r", "--repo"].iter().any(|at| arg == *at);
        if is_there("config") && !is_there("keys") && !command.get_args().any(is_of_another) {
            // One without encryption, to which nobody gives a password.
            command.env_remove("ONEFOLD_PASSWORD");
        }
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.command(args)
            .output()
            .expect("the program starts")
            .into()
    }

    /// Runs it where mounts are as the script, which ends with `exec "$@"`, has made them for it alone. `None` where
    /// they cannot be so: it ends with 99.
    pub fn run_where(&self, script: &str, args: &[&str]) -> Option<Ran> {
        let with = self.command(args);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(program().get_program())
            .args(with.get_args())
            .current_dir(self.dir.path());
        for (name, value) in with.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let ran = Ran::from(command.output().ok()?);
        (ran.code != Some(99)).then_some(ran)
    }

    /// Writes a file, making the folders above it.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("make folders");
        fs::write(path, bytes).expect("write a file");
    }

    /// Backs up `source` and gives the snapshot's id.
    #[track_caller]
    pub fn backup(&self, source: &str) -> String {
        let ran = self.run(["backup", source, "--json"]).ends(0);
        id_of(&ran)
    }

    /// Restores what was backed up from `source` and gives its files.
    #[track_caller]
    pub fn restored(&self, snapshot: &str, source: &str) -> Files {
        self.restored_with(snapshot, source, 0)
    }

    /// The same, of a restore that ends with `code`.
    #[track_caller]
    pub fn restored_with(&self, snapshot: &str, source: &str, code: i32) -> Files {
        let target = tempfile::tempdir_in(self.dir.path()).expect("a target");
        let spec = format!("{snapshot}:{}", self.path(source).display());
        self.run([
            OsStr::new("restore"),
            OsStr::new(&spec),
            OsStr::new("--target"),
            target.path().as_os_str(),
        ])
        .ends(code);
        files(target.path())
    }

    /// Ids of all snapshots.
    #[track_caller]
    pub fn snapshots(&self) -> Vec<String> {
        let list = self.run(["snapshots", "--json"]).ends(0).last();
        let ids = list.as_array().expect("an array").iter();
        ids.map(|snapshot| snapshot["id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

/// The snapshot's id in a backup's summary.
#[track_caller]
pub fn id_of(ran: &Ran) -> String {
    ran.last()["snapshot_id"]
        .as_str()
        .expect("a snapshot")
        .to_owned()
}

/// Contents by path.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// All files below `folder`.
pub fn files(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(folder).expect("below").to_owned();
                found.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// Other numbers each time; the seed is printed with the failure.
pub fn seeded(test: &str) -> Random {
    let seed = std::env::var("ONEFOLD_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        u64::from(std::process::id()) << 32
            | u64::from(
                std::time::UNIX_EPOCH
                    .elapsed()
                    .map_or(0, |d| d.subsec_nanos()),
            )
    });
    println!("{test}: ONEFOLD_TEST_SEED={seed}");
    Random(seed)
}

/// Changes a tree: new files, changed ones, some go.
pub fn change(folder: &Path, random: &mut Random) {
    for _ in 0..12 {
        let path = folder.join(format!("d{}/f{}", random.below(6), random.below(20)));
        fs::create_dir_all(path.parent().expect("a folder")).expect("make a folder");
        match random.below(8) {
            0 => drop(fs::remove_file(&path)),
            1 | 2 => {
                let mut bytes = fs::read(&path).unwrap_or_default();
                let len = random.below(20_000) as usize;
                bytes.extend(random.bytes(len));
                fs::write(&path, bytes).expect("write");
            }
            _ => {
                let len = random.below(600_000) as usize;
                fs::write(&path, random.bytes(len)).expect("write");
            }
        }
    }
}
