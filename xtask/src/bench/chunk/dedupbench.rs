//! The programs of dedup-bench (Udayashankar et al.), where they are there: what they say, beside our figures.

use std::path::Path;
use std::process::Command;

/// Runs `dedup.exe` in `folder` on `data` with each of the configurations that its authors published for chunks of 8 KB.
pub fn run(folder: &Path, data: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let folder = folder.canonicalize().map_err(failed)?;
    let data = data.canonicalize().map_err(failed)?;
    let configurations = std::fs::read_dir(folder.join(CONFIGURATIONS)).map_err(failed)?;
    let mut paths: Vec<_> = configurations
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        let mut command = Command::new(folder.join("dedup.exe"));
        let output = command.arg(&data).arg(&path).current_dir(&folder).output();
        let output = output.map_err(failed)?;
        println!("\ndedup-bench {}: {}", path.display(), output.status);
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

const CONFIGURATIONS: &str = "config_8kb_fast25";
