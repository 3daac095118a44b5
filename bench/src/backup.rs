//! `cargo xtask bench backup`: onefold and its peers, in alternation, on the same data, the same disk, in one run.
//!
//! Each program starts with an empty repository and goes through the stages in order. Before each stage dirty pages are
//! written and the page cache is dropped. Wall, CPU and peak RSS are the command's own with all its children; CPU of
//! other processes meanwhile is shown, so that a disturbed figure is recognised. Restores are compared with their
//! source byte by byte in the first round.

mod aside;
mod compare;
mod generations;
pub(super) mod measure;
mod rates;
mod results;
mod s3;
mod sets;
mod tools;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use aside::AsideTrees;
use measure::Measured;
use results::{Results, Timing};
use tools::{HOW_TO_GET_PEERS, RepositoryPlace, STAGES, TOOLS, Tool, ToolStage};

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = HOW_TO_GET_PEERS)]
pub struct BackupArgs {
    /// Folder for data sets and repositories, on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    data: PathBuf,
    /// Size of the sets; 1 is about 2 GB each.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of the unique bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sets to use: D1 (many small files), D2 (disk images), D3 (unique bytes), D4 (tar streams).
    #[arg(long, value_delimiter = ',', default_values = sets::NAMES)]
    sets: Vec<String>,
    /// Tools to run, as the table names them. Default: all installed ones except onefold-max.
    #[arg(long, alias = "only", value_delimiter = ',')]
    tools: Vec<String>,
    /// Stages to measure: first, same, reread, reread-cached, restore, check, prune. The first is always run.
    #[arg(long, value_delimiter = ',')]
    stages: Vec<String>,
    /// Where repositories lie: in a folder, or in a bucket of a server on loopback.
    #[arg(long, value_enum, default_value_t = On::Folder)]
    on: On,
    /// With `--on s3`, in the place of stages: so many days of a changing tree, backed up by a machine with its index
    /// and by machines that know the catalogs' hooks alone.
    #[arg(long, value_name = "DAYS")]
    generations: Option<u32>,
    /// Rounds; figures are medians.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// A folder with peers, searched before PATH.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// The program to measure. Default: this workspace's, built for release.
    #[arg(long)]
    onefold: Option<PathBuf>,
    /// Figures of earlier runs on this machine to show beside, as written by --json.
    #[arg(long)]
    with: Vec<PathBuf>,
    /// File for all figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// File for the table as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Don't compare restored trees with their source.
    #[arg(long)]
    no_compare: bool,
    /// Build the sets, measure nothing.
    #[arg(long)]
    build_only: bool,
}

/// Where repositories lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum On {
    /// In a folder on the disk to measure.
    Folder,
    /// In a bucket of versitygw, whose folder is on that disk.
    S3,
}

/// Runs the benchmark and prints its table.
pub fn run(args: &BackupArgs) -> Result<(), String> {
    let bench = Bench::new(args)?;
    if let Some(days) = args.generations {
        return generations::run(days, args.seed, &bench.data, &bench.path);
    }
    let mut results = Results::new(args.scale, args.seed, &args.with)?;
    let mut folders = Vec::new();
    for name in &args.sets {
        let plan = sets::Plan {
            data: &bench.data,
            scale: args.scale,
            seed: args.seed,
        };
        folders.push((name.as_str(), sets::build(name, &plan)?));
    }
    if args.build_only {
        return Ok(());
    }
    if !measure::drop_caches() {
        println!("not root: the page cache stays; all figures are those of a warm cache");
        results.cold = false;
    }
    for (name, folder) in &folders {
        let set = Set::open(name, folder)?;
        for round in 0..args.repeat {
            bench.rates(&set, &mut results);
            for tool in &bench.tools {
                bench.life(tool, &set, round, &mut results);
                bench.write(&results)?;
            }
        }
    }
    println!("{}", results.report());
    bench.write(&results)
}

struct Bench<'a> {
    args: &'a BackupArgs,
    data: PathBuf,
    aside: AsideTrees,
    path: OsString,
    tools: Vec<Tool>,
    stages: Vec<ToolStage>,
}

/// A data set. Its tree is renamed for stages that need another path, and back.
struct Set<'a> {
    name: &'a str,
    tree: PathBuf,
    again: PathBuf,
}

impl<'a> Set<'a> {
    fn open(name: &'a str, folder: &Path) -> Result<Self, String> {
        let set = Self {
            name,
            tree: folder.join("tree"),
            again: folder.join("again"),
        };
        set.back()?;
        Ok(set)
    }

    /// Renames the tree back where a stage was interrupted.
    fn back(&self) -> Result<(), String> {
        for name in ["cold", "cached"] {
            if self.again.join(name).exists() {
                self.rename(&self.again.join(name), &self.tree)?;
            }
        }
        let _ = std::fs::remove_dir(&self.again);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), String> {
        std::fs::rename(from, to).map_err(|error| format!("{}: {error}", from.display()))
    }
}

impl<'a> Bench<'a> {
    fn new(args: &'a BackupArgs) -> Result<Self, String> {
        std::fs::create_dir_all(&args.data).map_err(|error| error.to_string())?;
        let data = std::fs::canonicalize(&args.data).map_err(|error| error.to_string())?;
        let mut bench = Self {
            args,
            aside: AsideTrees::new(&data)?,
            data,
            path: OsString::new(),
            tools: Vec::new(),
            stages: chosen(&args.stages, STAGES)?,
        };
        bench.path = bench.search_path()?;
        for tool in TOOLS {
            let asked = args.tools.iter().any(|name| name == tool.name);
            if args.on == On::S3 && !tool.knows_s3() {
                continue;
            }
            if asked || (args.tools.is_empty() && tool.name != "onefold-max") {
                if find_program(tool.program, &bench.path).is_absolute() {
                    bench.tools.push(*tool)
                } else {
                    println!("{}: {} is not there", tool.name, tool.program)
                }
            }
        }
        for name in &args.tools {
            if !TOOLS.iter().any(|tool| tool.name == name) {
                return Err(format!("there is no tool {name}"));
            }
        }
        Ok(bench)
    }

    /// PATH, with our own program and the peers' folder in front.
    fn search_path(&self) -> Result<OsString, String> {
        let ours = |tool: &Tool| {
            let asked = self.args.tools.iter().any(|name| name == tool.name);
            tool.is_ours() && (asked || self.args.tools.is_empty())
        };
        let mut folders = Vec::new();
        if let Some(program) = &self.args.onefold {
            let program = std::fs::canonicalize(program).map_err(|error| error.to_string())?;
            if !program.ends_with("onefold") {
                // Peers and our program are started by name, through PATH.
                let what = "is to be named onefold, in a folder of its own";
                return Err(format!("{} {what}", program.display()));
            }
            folders.extend(program.parent().map(Path::to_path_buf));
        } else if TOOLS.iter().any(ours) && !self.args.build_only {
            xtask::program::cargo(&["build", "--release", "--package", "onefold"])?;
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
            folders.extend(std::fs::canonicalize(Path::new(&target).join("release")));
        }
        folders.extend(self.args.peers.clone());
        folders.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        std::env::join_paths(folders).map_err(|error| error.to_string())
    }

    /// Runs one tool through all stages, in a repository of its own that is removed at the end.
    fn life(&self, tool: &Tool, set: &Set<'_>, round: u32, results: &mut Results) {
        let work = self.data.join("run");
        let _ = std::fs::remove_dir_all(&work);
        let done = self.stages(tool, set, round, &work, results);
        if let Err(error) = set.back().and(done) {
            println!("{} {}: {error}", set.name, tool.name);
            results.failed(set.name, tool.name, &error);
        }
        let _ = std::fs::remove_dir_all(&work);
    }

    fn stages(
        &self,
        tool: &Tool,
        set: &Set<'_>,
        round: u32,
        work: &Path,
        results: &mut Results,
    ) -> Result<(), String> {
        let log = work.join("log");
        std::fs::create_dir_all(work.join("home")).map_err(|error| error.to_string())?;
        let server = match self.args.on {
            On::Folder => None,
            On::S3 => Some(s3::S3Server::start(&work.join("server"))?),
        };
        let place = RepositoryPlace {
            repo: match &server {
                Some(server) => server.bucket.join("repo"),
                None => work.join("repo"),
            },
            s3: server.as_ref().map(|server| server.address.clone()),
            home: work.join("home"),
            path: self.path.clone(),
        };
        measure::run(tool.init(&place), &log)?;
        let mut life = Life {
            tool,
            set,
            aside: &self.aside,
            place,
            log,
            label: "first",
            source: set.tree.clone(),
        };
        let compare = round == 0 && !self.args.no_compare;
        for (name, stage) in STAGES {
            let is_of_s3 = *stage == ToolStage::Second && self.args.on != On::S3;
            if is_of_s3
                || !tool.can(*stage)
                || (*stage != ToolStage::First && !self.stages.contains(stage))
            {
                continue;
            }
            if let Some(server) = &server {
                server.take_requests();
            }
            let taken = life.stage(name, *stage, &work.join("restored"), compare)?;
            let requests = server.as_ref().map(s3::S3Server::take_requests);
            let row = Timing::new(
                set.name,
                tool.name,
                name,
                taken,
                &life.place.repo,
                &life.place.home,
            );
            let row = row.with_requests(requests);
            println!("{}", row.line());
            if let Some(warning) = row.warning() {
                println!("{warning}");
            }
            results.rows.push(row);
        }
        Ok(())
    }

    /// Measures the disk's own rates, as rows of a tool of its own.
    fn rates(&self, set: &Set<'_>, results: &mut Results) {
        let before = results.rows.len();
        measure::drop_caches();
        let (walked, files) = rates::walk(&set.tree, 8);
        results
            .rows
            .push(Timing::rate(set.name, "metadata, 8 at a time", walked, 0));
        let [eight, one, past, added] = results::READERS;
        for (name, threads) in [(eight, 8), (one, 1)] {
            measure::drop_caches();
            let (took, bytes) = rates::read(&files, threads);
            results.rows.push(Timing::rate(set.name, name, took, bytes));
        }
        // With a tree of small files this would be a benchmark of opening them.
        if files.len() < 1000 {
            let (took, bytes) = rates::fingerprint(&files);
            let name = "fingerprint, cached";
            results.rows.push(Timing::rate(set.name, name, took, bytes));
            // the best number of threads for each, as measured
            for (name, threads, look) in
                [(past, 4, (|_| ()) as fn(&[u8])), (added, 8, rates::add_up)]
            {
                measure::drop_caches();
                if let Some((took, bytes)) = rates::read_past_cache(&files, threads, look) {
                    results.rows.push(Timing::rate(set.name, name, took, bytes));
                }
            }
        }
        for row in &results.rows[before..] {
            println!("{}", row.line());
        }
    }

    fn write(&self, results: &Results) -> Result<(), String> {
        let write = |path: &Option<PathBuf>, text: String| match path {
            Some(path) => {
                std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
            }
            None => Ok(()),
        };
        write(&self.args.json, results.json())?;
        write(&self.args.markdown, results.markdown())
    }
}

/// The state of a repository during its stages.
struct Life<'a> {
    tool: &'a Tool,
    set: &'a Set<'a>,
    aside: &'a AsideTrees,
    place: RepositoryPlace,
    log: PathBuf,
    /// Name and source of the latest snapshot.
    label: &'static str,
    source: PathBuf,
}

impl Life<'_> {
    fn stage(
        &mut self,
        name: &'static str,
        stage: ToolStage,
        target: &Path,
        compare: bool,
    ) -> Result<Measured, String> {
        match stage {
            ToolStage::First | ToolStage::Same => self.backup(name, &self.set.tree.clone()),
            ToolStage::Second => self.second(name),
            ToolStage::Reread => self.moved(name, false),
            ToolStage::RereadCached => self.moved(name, true),
            ToolStage::Restore => self.restore(target, compare),
            ToolStage::Check => self.measure(self.tool.check(&self.place)),
            ToolStage::Prune => {
                self.backup("part", &self.part()?)?;
                self.measure(self.tool.prune(&self.place, "part")?)
            }
        }
    }

    fn measure(&self, commands: Vec<std::process::Command>) -> Result<Measured, String> {
        measure::drop_caches();
        measure::run(commands, &self.log)
    }

    fn backup(&mut self, label: &'static str, source: &Path) -> Result<Measured, String> {
        let taken = self.measure(self.tool.backup(&self.place, source, label))?;
        (self.label, self.source) = (label, source.to_path_buf());
        Ok(taken)
    }

    /// Backs up as another machine would that was never here: with no cache, under another path.
    fn second(&mut self, label: &'static str) -> Result<Measured, String> {
        let home = self.place.home.with_file_name("second-home");
        std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let first = std::mem::replace(&mut self.place.home, home);
        let connected = measure::run(self.tool.connect(&self.place), &self.log);
        let taken = connected.and_then(|_| self.moved(label, false));
        self.place.home = first;
        taken
    }

    /// Brings the repository, the tool's own cache, and its program into the page cache.
    fn warm(&self, commands: &[Command]) {
        let programs = commands.iter().map(|command| command.get_program().into());
        let mut files: Vec<PathBuf> = programs.collect();
        for root in [&self.place.repo, &self.place.home] {
            files.append(&mut rates::walk(root, 8).1);
        }
        rates::read(&files, 8);
    }

    /// Backs up under a path that the tool has not seen: the tree is moved there and back, so that its files do not
    /// change.
    fn moved(&mut self, label: &'static str, cached: bool) -> Result<Measured, String> {
        let set = self.set;
        let path = if cached {
            set.again.join("cached")
        } else {
            set.again.join("cold")
        };
        std::fs::create_dir_all(&set.again).map_err(|error| error.to_string())?;
        set.rename(&set.tree, &path)?;
        let commands = self.tool.backup(&self.place, &path, label);
        let (mut source_bytes, mut cached_bytes) = (0, None);
        if cached {
            self.warm(&commands);
            let (_, files) = rates::walk(&path, 8);
            rates::read(&files, 8);
            (source_bytes, cached_bytes) = rates::cached(&files);
        } else {
            measure::drop_caches();
        }
        let taken = measure::run(commands, &self.log).map(|taken| Measured {
            source_bytes,
            cached_bytes,
            ..taken
        });
        set.rename(&path, &set.tree)?;
        std::fs::remove_dir(&set.again).map_err(|error| error.to_string())?;
        (self.label, self.source) = (label, path);
        taken
    }

    fn restore(&self, target: &Path, compare: bool) -> Result<Measured, String> {
        self.aside.make_ready()?;
        std::fs::create_dir_all(target).map_err(|error| error.to_string())?;
        let taken = self.measure(self.tool.restore(&self.place, self.label, target)?)?;
        if compare {
            let restored = compare::restored_root(&self.source, target);
            compare::same_trees(&self.set.tree, &restored)
                .map_err(|error| format!("restored otherwise: {error}"))?;
        }
        self.aside.put(target)?;
        Ok(taken)
    }

    /// The second entry of the tree: one release, image, file or stream.
    fn part(&self) -> Result<PathBuf, String> {
        let entries = std::fs::read_dir(&self.set.tree).map_err(|error| error.to_string())?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let second = paths.into_iter().nth(1);
        Ok(second.unwrap_or_else(|| self.set.tree.clone()))
    }
}

/// The values with the names that were asked for, or all values.
fn chosen<T: Copy>(asked: &[String], all: &[(&str, T)]) -> Result<Vec<T>, String> {
    if asked.is_empty() {
        return Ok(all.iter().map(|(_, value)| *value).collect());
    }
    let find = |name: &String| {
        let found = all.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("there is no {name}"))
    };
    asked.iter().map(find).collect()
}

/// The program's path in `path`, or its bare name.
fn find_program(name: &str, path: &OsStr) -> PathBuf {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .and_then(|file| std::path::absolute(file).ok())
        .unwrap_or(PathBuf::from(name))
}
