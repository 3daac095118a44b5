//! The commands of each program for each stage. All have comparable options: encryption where they have it, a
//! repository on the same disk, caches in a folder of the benchmark's own, no network.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::s3;

/// The compression of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// The program's default.
    Default,
    /// No compression.
    None,
    /// The smallest useful one: only for programs whose default is none, or that name one "max".
    More,
}

/// One step of a repository's life, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolStage {
    /// Back up into an empty repository.
    First,
    /// Back up the same folder, unchanged.
    Same,
    /// On S3: back up the same bytes from a machine that was never there.
    Second,
    /// Back up the same bytes under another path, with a cold cache.
    Reread,
    /// Back up under another path with all files in the page cache.
    RereadCached,
    /// Restore the latest snapshot into an empty folder.
    Restore,
    /// Check the repository, with all data read where the program can.
    Check,
    /// Forget all but a last snapshot of a part of the tree, and give back the space.
    Prune,
}

/// All stages, with their names on the command line and in tables.
pub const STAGES: &[(&str, ToolStage)] = &[
    ("first", ToolStage::First),
    ("same", ToolStage::Same),
    ("second", ToolStage::Second),
    ("reread", ToolStage::Reread),
    ("reread-cached", ToolStage::RereadCached),
    ("restore", ToolStage::Restore),
    ("check", ToolStage::Check),
    ("prune", ToolStage::Prune),
];

/// A contestant: a program with a compression.
#[derive(Clone, Copy)]
pub struct Tool {
    /// Name in tables.
    pub name: &'static str,
    /// Name of the program's file.
    pub program: &'static str,
    pub compression: Compression,
}

const fn tool(name: &'static str, program: &'static str, compression: Compression) -> Tool {
    Tool {
        name,
        program,
        compression,
    }
}

/// All tools; those whose program is missing are left out with a note.
pub const TOOLS: &[Tool] = &[
    tool("onefold", "onefold", Compression::Default),
    tool("bupstash", "bupstash", Compression::Default),
    tool("restic", "restic", Compression::Default),
    tool("rustic", "rustic", Compression::Default),
    tool("borg", "borg", Compression::Default),
    tool("kopia-zstd", "kopia", Compression::More),
    tool("tar-zstd", "zstd", Compression::Default),
    tool("onefold-none", "onefold", Compression::None),
    tool("bupstash-none", "bupstash", Compression::None),
    tool("restic-none", "restic", Compression::None),
    tool("rustic-none", "rustic", Compression::None),
    tool("borg-none", "borg", Compression::None),
    tool("kopia", "kopia", Compression::None),
    tool("tar", "tar", Compression::None),
    tool("onefold-max", "onefold", Compression::More),
];

/// Instructions for installing the peers.
pub const HOW_TO_GET_PEERS: &str = "\
Peers, each from its public registry; whichever is on PATH or in --peers DIR takes part:
  bupstash  cargo install --locked bupstash   (needs libsodium-dev, pkg-config)
  rustic    cargo install rustic-rs
  restic    go install github.com/restic/restic/cmd/restic@v0.19.1 (some proxies take 0.10.0 for @latest), or apt-get install restic (older)
  kopia     git clone https://github.com/kopia/kopia && go build -tags nohtmlui
  borg      apt-get install borgbackup, or pip install borgbackup (needs libacl1-dev, libssl-dev, liblz4-dev, libzstd-dev, libxxhash-dev)
  tar, zstd apt-get install tar zstd
Data sets need python3 with pip, mkfs.ext4 (e2fsprogs) and tar; about 9 GB for all sets at scale 1, and as much again while it runs.
As root the page cache is dropped before each stage but reread-cached, before which files, repository and program are
read; otherwise figures are those of a warm cache, and the report says so.";

/// The folders of one tool's run.
pub struct RepositoryPlace {
    /// The folder of the tool's repository.
    pub repo: PathBuf,
    /// The address of the server of S3 that the repository is behind.
    pub s3: Option<String>,
    /// The tool's caches, keys and configuration.
    pub home: PathBuf,
    /// PATH with the peers.
    pub path: std::ffi::OsString,
}

const PASSWORD: &str = "benchmark";

impl RepositoryPlace {
    /// The repository as onefold and restic write it.
    fn repository(&self) -> String {
        match &self.s3 {
            Some(address) => format!("s3:http://{address}/{}/repo", s3::BUCKET),
            None => text(&self.repo),
        }
    }
}

impl Tool {
    /// Whether the tool is our program.
    pub fn is_ours(&self) -> bool {
        self.program == "onefold"
    }

    /// Whether the tool is only a yardstick, no deduplicating backup.
    pub fn is_yardstick(&self) -> bool {
        matches!(self.program, "tar" | "zstd")
    }

    /// Whether the tool takes a repository on S3.
    pub fn knows_s3(&self) -> bool {
        matches!(self.program, "onefold" | "restic" | "kopia")
    }

    /// Makes the repository known to a machine that was never there.
    pub fn connect(&self, place: &RepositoryPlace) -> Vec<Command> {
        match (self.program, &place.s3) {
            ("kopia", Some(address)) => self.commands(place, &[kopia_on_s3("connect", address)]),
            _ => Vec::new(),
        }
    }

    /// Whether the tool can do this stage.
    pub fn can(&self, stage: ToolStage) -> bool {
        match self.program {
            "tar" | "zstd" => matches!(stage, ToolStage::First | ToolStage::Restore),
            "bupstash" => stage != ToolStage::Check,
            _ => true,
        }
    }

    /// Creates the empty repository; this is not measured.
    pub fn init(&self, place: &RepositoryPlace) -> Vec<Command> {
        let repo = place.repository();
        let key = text(&place.home.join("key"));
        let off = self.compression == Compression::None;
        let lines: Vec<Vec<&str>> = match self.program {
            "onefold" => vec![vec!["onefold", "-r", &repo, "init"]],
            "bupstash" => vec![
                vec!["bupstash", "init"],
                vec!["bupstash", "new-key", "-o", &key],
            ],
            "restic" => vec![vec!["restic", "init"]],
            "rustic" if off => vec![vec!["rustic", "init", "--set-compression", "0"]],
            "rustic" => vec![vec!["rustic", "init"]],
            "borg" => vec![vec!["borg", "init", "-e", "repokey-blake2", &repo]],
            "kopia" => {
                let on_disk = vec![
                    "kopia",
                    "repository",
                    "create",
                    "filesystem",
                    "--path",
                    &repo,
                    "--no-check-for-updates",
                ];
                let on_s3 = place.s3.as_ref();
                let on_s3 = on_s3.map(|address| kopia_on_s3("create", address));
                let mut lines = vec![on_s3.unwrap_or(on_disk)];
                if !off {
                    lines.push(vec![
                        "kopia",
                        "policy",
                        "set",
                        "--global",
                        "--compression",
                        "zstd-fastest",
                    ]);
                }
                lines
            }
            _ => vec![vec!["mkdir", "-p", &repo]],
        };
        self.commands(place, &lines)
    }

    /// Backs up `source` as a snapshot named `label`.
    pub fn backup(&self, place: &RepositoryPlace, source: &Path, label: &str) -> Vec<Command> {
        let repo = place.repository();
        let source = text(source);
        let off = self.compression == Compression::None;
        let tag = format!("stage={label}");
        let archive = format!("{repo}::{label}");
        let log = text(&place.home.join("send-log"));
        let pipe = format!("tar -c -C '{source}' . | zstd -q -T0 -o '{repo}/archive.tar.zst'");
        let file = format!("{repo}/archive.tar");
        let mut line: Vec<&str> = match self.program {
            "onefold" => vec!["onefold", "-r", &repo, "-q", "backup", &source],
            "bupstash" => vec!["bupstash", "put", "-q", "--send-log", &log],
            "restic" => vec!["restic", "backup", "-q", &source],
            "rustic" => vec!["rustic", "backup", "--no-progress", &source],
            "borg" => vec!["borg", "create"],
            "kopia" => vec!["kopia", "snapshot", "create", "--no-progress", &source],
            "zstd" => vec!["sh", "-c", &pipe],
            _ => vec!["tar", "-cf", &file, "-C", &source, "."],
        };
        match self.program {
            "onefold" if off => line.extend(["--compression", "off"]),
            "onefold" if self.compression == Compression::More => {
                line.extend(["--compression", "max"]);
            }
            "restic" if off => line.extend(["--compression", "off"]),
            "bupstash" | "borg" if off => line.extend(["--compression", "none"]),
            _ => {}
        }
        match self.program {
            "bupstash" => line.extend([tag.as_str(), "::", &source]),
            "borg" => line.extend([archive.as_str(), &source]),
            _ => {}
        }
        self.commands(place, &[line])
    }

    /// Restores the snapshot of `source` named `label`, the latest one, into the empty folder `target`.
    pub fn restore(
        &self,
        place: &RepositoryPlace,
        label: &str,
        target: &Path,
    ) -> Result<Vec<Command>, String> {
        let repo = place.repository();
        let into = text(target);
        let tag = format!("stage={label}");
        let archive = format!("{repo}::{label}");
        let pipe = format!("zstd -dc '{repo}/archive.tar.zst' | tar -x -C '{into}'");
        let file = format!("{repo}/archive.tar");
        let id = match self.program {
            "kopia" => self.kopia_ids(place)?.pop().unwrap_or_default(),
            _ => String::new(),
        };
        let line: Vec<&str> = match self.program {
            "onefold" => vec![
                "onefold", "-r", &repo, "-q", "restore", "latest", "--target", &into,
            ],
            "bupstash" => vec!["bupstash", "restore", "-q", "--into", &into, &tag],
            "restic" => vec!["restic", "restore", "-q", "latest", "--target", &into],
            "rustic" => vec!["rustic", "restore", "--no-progress", "latest", &into],
            "borg" => vec!["borg", "extract", &archive],
            "kopia" => vec!["kopia", "restore", "--no-progress", &id, &into],
            "zstd" => vec!["sh", "-c", &pipe],
            _ => vec!["tar", "-xf", &file, "-C", &into],
        };
        let mut commands = self.commands(place, &[line]);
        commands.iter_mut().for_each(|command| {
            command.current_dir(target);
        });
        Ok(commands)
    }

    /// Checks the repository, with all data read.
    pub fn check(&self, place: &RepositoryPlace) -> Vec<Command> {
        let repo = place.repository();
        let line: Vec<&str> = match self.program {
            "onefold" => vec!["onefold", "-r", &repo, "-q", "check", "--read-data"],
            "restic" => vec!["restic", "check", "-q", "--read-data"],
            "rustic" => vec!["rustic", "check", "--no-progress", "--read-data"],
            "borg" => vec!["borg", "check", "--verify-data", &repo],
            "kopia" => vec![
                "kopia",
                "snapshot",
                "verify",
                "--no-progress",
                "--verify-files-percent=100",
            ],
            _ => vec![],
        };
        self.commands(place, &[line])
    }

    /// Forgets all snapshots but the last, which is named `last`, and gives back the space.
    pub fn prune(&self, place: &RepositoryPlace, last: &str) -> Result<Vec<Command>, String> {
        let repo = place.repository();
        let keep = ["--keep-last", "1", "--group-by", ""];
        let other = format!("stage={last}");
        let mut ids = match self.program {
            "kopia" => self.kopia_ids(place)?,
            _ => Vec::new(),
        };
        ids.pop();
        let lines: Vec<Vec<&str>> = match self.program {
            "onefold" => vec![
                [
                    &["onefold", "-r", &repo, "-q", "forget", "--prune"][..],
                    &keep,
                ]
                .concat(),
            ],
            "restic" => vec![[&["restic", "forget", "-q", "--prune"][..], &keep].concat()],
            "rustic" => vec![
                [
                    &[
                        "rustic",
                        "forget",
                        "--no-progress",
                        "--prune",
                        "--instant-delete",
                    ][..],
                    &keep,
                ]
                .concat(),
            ],
            "borg" => vec![
                vec!["borg", "prune", "--keep-last", "1", &repo],
                vec!["borg", "compact", &repo],
            ],
            "bupstash" => vec![
                vec!["bupstash", "rm", "-q", "--allow-many", "~", &other],
                vec!["bupstash", "gc", "-q"],
            ],
            "kopia" => vec![
                ["kopia", "snapshot", "delete", "--delete"]
                    .into_iter()
                    .chain(ids.iter().map(String::as_str))
                    .collect(),
                vec!["kopia", "maintenance", "run", "--full", "--safety=none"],
            ],
            _ => vec![],
        };
        Ok(self.commands(place, &lines))
    }

    /// Ids of kopia's snapshots, oldest first: kopia has no name for the latest of all.
    fn kopia_ids(&self, place: &RepositoryPlace) -> Result<Vec<String>, String> {
        let line = vec!["kopia", "snapshot", "list", "--all", "--json"];
        let mut command = self.commands(place, &[line]).remove(0);
        let output = command.output().map_err(|error| error.to_string())?;
        let listed: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let mut found: Vec<(String, String)> = (listed.as_array().into_iter().flatten())
            .map(|one| {
                let text = |name: &str| one[name].as_str().unwrap_or_default().to_string();
                (text("startTime"), text("id"))
            })
            .collect();
        found.sort();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    fn commands(&self, place: &RepositoryPlace, lines: &[Vec<&str>]) -> Vec<Command> {
        let all = lines.iter().filter(|line| !line.is_empty());
        all.map(|line| {
            let mut command = Command::new(super::find_program(line[0], &place.path));
            command.args(&line[1..]);
            environment(&mut command, place);
            command
        })
        .collect()
    }
}

fn kopia_on_s3<'a>(verb: &'a str, address: &'a str) -> Vec<&'a str> {
    let mut line = vec!["kopia", "repository", verb, "s3", "--disable-tls"];
    line.extend(["--bucket", s3::BUCKET, "--prefix", "repo/"]);
    line.extend(["--endpoint", address, "--access-key", s3::USER]);
    line.extend(["--secret-access-key", s3::SECRET]);
    line
}

/// Sets passwords, and puts every cache and configuration into the benchmark's own folder.
fn environment(command: &mut Command, place: &RepositoryPlace) {
    let home = |name: &str| place.home.join(name);
    command
        .env("PATH", &place.path)
        .env("HOME", &place.home)
        .env("XDG_CACHE_HOME", home("cache"))
        .env("XDG_CONFIG_HOME", home("config"))
        .env("TMPDIR", &place.home)
        .env("ONEFOLD_PASSWORD", PASSWORD)
        .env("AWS_ACCESS_KEY_ID", s3::USER)
        .env("AWS_SECRET_ACCESS_KEY", s3::SECRET)
        .env("AWS_REGION", "us-east-1")
        .env("BUPSTASH_REPOSITORY", &place.repo)
        .env("BUPSTASH_KEY", home("key"))
        .env("RESTIC_REPOSITORY", place.repository())
        .env("RESTIC_PASSWORD", PASSWORD)
        .env("RUSTIC_REPOSITORY", &place.repo)
        .env("RUSTIC_PASSWORD", PASSWORD)
        .env("BORG_BASE_DIR", &place.home)
        .env("BORG_PASSPHRASE", PASSWORD)
        .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
        .env("KOPIA_PASSWORD", PASSWORD)
        .env("KOPIA_CONFIG_PATH", home("kopia.config"))
        .env("KOPIA_CACHE_DIRECTORY", home("kopia-cache"))
        .env("KOPIA_LOG_DIR", home("kopia-log"))
        .env("KOPIA_CHECK_FOR_UPDATES", "false");
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
