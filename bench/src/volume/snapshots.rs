//! How long a snapshot, a clone and their deletion take while fio writes to the volume, process start included.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::VolumeArgs;
use super::fio::{Load, LoadTarget};
use super::transport::{build, median};
use xtask::serving::TestServer;

/// Seconds that each may take.
const GOAL_SECONDS: f64 = 0.1;

const LOADS: [Load; 2] = [
    Load {
        name: "random writes 4k QD32",
        rw: "randwrite",
        bytes: 4096,
        depth: 32,
    },
    Load {
        name: "writes in order 1 MiB QD4",
        rw: "write",
        bytes: 1 << 20,
        depth: 4,
    },
];

/// Prints medians and longest times beside the goal.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    let program = match &args.onefold {
        Some(program) => program.clone(),
        None => build()?,
    };
    let folder = tempfile::tempdir_in(&args.folder).map_err(|error| error.to_string())?;
    let server = TestServer::depot(&program, args.mib, folder.path())?;
    let depot = folder.path().join("depot").display().to_string();
    for load in LOADS {
        let times = under(&load, args, &server.uri, &program, &depot)?;
        for (what, mut times) in times {
            let longest = times.iter().copied().fold(0.0, f64::max);
            let middle = median(&mut times);
            let judged = if middle <= GOAL_SECONDS {
                "kept"
            } else {
                "MISSED"
            };
            println!(
                "{middle:7.3} s  (at most {longest:.3})  {what} under {}  goal {GOAL_SECONDS}: {judged}",
                load.name
            );
        }
    }
    Ok(())
}

type Times = Vec<(&'static str, Vec<f64>)>;

fn under(
    load: &Load,
    args: &VolumeArgs,
    uri: &str,
    program: &Path,
    depot: &str,
) -> Result<Times, String> {
    let seconds = args.seconds.max(2) * 3;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| load.run(&LoadTarget::Uri(uri), args.mib, seconds, args.seed));
        let (mut snapshots, mut clones, mut deletions) = (Vec::new(), Vec::new(), Vec::new());
        let mut round = 0;
        std::thread::sleep(std::time::Duration::from_secs(1));
        while !writing.is_finished() {
            round += 1;
            let (snapshot, clone) = (format!("{depot}@s{round}"), format!("{depot}:c{round}"));
            snapshots.push(timed(program, &["snapshot", &snapshot])?);
            clones.push(timed(program, &["clone", &snapshot, &clone])?);
            deletions.push(timed(program, &["snapshot", "--delete", &snapshot])?);
            deletions.push(timed(program, &["delete", &clone, "--yes"])?);
        }
        writing
            .join()
            .map_err(|_| "fio's thread ended".to_owned())??;
        Ok(vec![
            ("snapshot", snapshots),
            ("clone", clones),
            ("delete", deletions),
        ])
    })
}

fn timed(program: &Path, arguments: &[&str]) -> Result<f64, String> {
    let started = Instant::now();
    let mut command = Command::new(program);
    let output = command.args(["-q", "volume"]).args(arguments).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(started.elapsed().as_secs_f64())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
