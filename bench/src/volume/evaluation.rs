//! Figures and tables of the Dmdedup report. The program that measures is an example of the crate `volume`.

use std::path::PathBuf;
use std::process::Command;

use super::VolumeArgs;
use super::transport::build;

/// Figures and tables of the report to measure, and how.
#[derive(clap::Args, Clone, Debug)]
pub struct EvaluationArgs {
    /// Figures of the Dmdedup report to measure on models of its devices, as `4.1,4.2`; `all` for all but 6.4, which
    /// mounts file systems as root.
    #[arg(long, value_delimiter = ',')]
    pub figure: Vec<String>,
    /// Tables of the report: 4.1 likewise; 2.1 as root; 4.2 on the disk of `--folder`, as root.
    #[arg(long, value_delimiter = ',')]
    pub table: Vec<String>,
    /// Measure Figures 4.1 to 4.3 on the disk of `--folder` instead, with a device of `--mib`, for `--seconds` at most
    /// each, in `--rounds` rounds.
    #[arg(long)]
    pub real: bool,
    /// Part of the report's device of 146 GB. Default: 1/128.
    #[arg(long)]
    pub scale: Option<f64>,
    /// The report's sizes: hours, and 10 GB of RAM.
    #[arg(long)]
    pub full: bool,
    /// The setup of Figures 4.1 to 4.3 of this name, or all whose name contains it, beside the raw device.
    #[arg(long)]
    pub only: Option<String>,
    /// A folder of versions of a source tree, each a folder. Default: versions of this repository.
    #[arg(long)]
    pub trees: Option<PathBuf>,
    /// Files of the file server of Figure 6.4 and Table 2.1, and loops of its load.
    #[arg(long, default_value_t = 10_000)]
    pub files: u64,
    /// Traits of the report's metadata that `cbt` is given for Figures 6.1 to 6.4: `nodes`, `cache`, `writes`,
    /// `reads`.
    #[arg(long, value_delimiter = ',')]
    pub like: Vec<String>,
    /// A folder for the figures as SVG files.
    #[arg(long)]
    pub plots: Option<PathBuf>,
    /// Print tables as Markdown.
    #[arg(long)]
    pub markdown: bool,
}

impl EvaluationArgs {
    /// Whether nothing of the report is wanted.
    pub fn is_empty(&self) -> bool {
        self.figure.is_empty() && self.table.is_empty()
    }

    /// Whether the times of this machine count, as they do not on models.
    pub fn is_timed(&self) -> bool {
        self.real || self.table.iter().any(|name| name == "4.2")
    }
}

/// Runs the program.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    let wanted = &args.evaluation;
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "onefold-volume"]);
    if wanted.is_timed() {
        command.arg("--release");
    }
    command.args(["--example", "evaluation", "--"]);
    for (option, values) in [
        ("--figure", &wanted.figure),
        ("--table", &wanted.table),
        ("--like", &wanted.like),
    ] {
        command.args(values.iter().flat_map(|value| [option, value]));
    }
    for (option, path) in [("--trees", &wanted.trees), ("--plots", &wanted.plots)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    for (option, is_given) in [
        ("--real", wanted.real),
        ("--full", wanted.full),
        ("--markdown", wanted.markdown),
    ] {
        command.args(is_given.then_some(option));
    }
    if let Some(only) = &wanted.only {
        command.arg("--only").arg(only);
    }
    if let Some(scale) = wanted.scale {
        command.arg("--scale").arg(scale.to_string());
    }
    if wanted.table.iter().any(|name| name == "4.2") {
        let program = match &args.onefold {
            Some(program) => program.clone(),
            None => build()?,
        };
        command.arg("--onefold").arg(program);
    }
    command.arg("--folder").arg(&args.folder);
    for (option, number) in [
        ("--mib", args.mib),
        ("--seconds", args.seconds.into()),
        ("--rounds", args.rounds as u64),
        ("--seed", args.seed),
        ("--files", wanted.files),
    ] {
        command.arg(option).arg(number.to_string());
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the evaluation: {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
