//! Limits of the engine `log`: RAM beside its budget, and time to open after a kill. The program that measures is an
//! example of the crate `volume`, built for release.

use std::process::Command;

use super::VolumeArgs;
use crate::report;

/// Measures RAM with a map of random chunks that fill the data device.
pub fn ram(args: &VolumeArgs) -> Result<(), String> {
    let ram_mib = args.ram_mib.to_string();
    run(args, &["ram", &args.chunks.to_string(), &ram_mib])
}

/// Measures the time to open a depot whose log has its largest length.
pub fn recovery(args: &VolumeArgs) -> Result<(), String> {
    run(
        args,
        &["recovery", &args.mib.to_string(), &args.chunks.to_string()],
    )
}

/// Measures what packing saves and costs, in process.
pub fn packing(args: &VolumeArgs) -> Result<(), String> {
    println!("{}", report::machine_line(&report::machine()));
    let tree = args.tree.as_ref().map(|tree| tree.display().to_string());
    let tree = tree.unwrap_or_default();
    let numbers = [args.mib.to_string(), args.rounds.to_string()];
    if example("packing", args, &[&tree, &numbers[0], &numbers[1]])? {
        Ok(())
    } else {
        Err("packing could not be measured".into())
    }
}

fn run(args: &VolumeArgs, what: &[&str]) -> Result<(), String> {
    println!("{}", report::machine_line(&report::machine()));
    if example("log_limits", args, what)? {
        Ok(())
    } else {
        Err("the limit is not kept".into())
    }
}

/// Runs an example of the crate `volume`, built for release, in the folder to measure; returns whether it succeeds.
pub fn example(name: &str, args: &VolumeArgs, more: &[&str]) -> Result<bool, String> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "--package", "onefold-volume"]);
    command.args(["--example", name, "--"]);
    let status = command.arg(&args.folder).args(more).status();
    Ok(status.map_err(|error| format!("cargo: {error}"))?.success())
}
