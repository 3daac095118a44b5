//! The data sets, built once from public packages and kept: D1 many small files, D2 disk images, D3 unique bytes, D4
//! tar streams.
//!
//! A set is a folder `<name>` (or `<name>@<scale>`) that holds one folder `tree`. The file `built` beside it means that
//! it is complete.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onefold_io::Random;

/// Names of all sets.
pub const NAMES: &[&str] = &["D1", "D2", "D3", "D4"];

/// D1's and D4's packages: successive releases of a big source tree, about 22,000 files and 120 MB each.
const RELEASES: &[&str] = &[
    "10.6.0", "10.7.0", "11.0.0", "11.1.0", "11.2.0", "11.3.0", "11.4.0", "11.5.0", "11.6.0",
    "11.7.0", "11.8.0", "11.9.0", "11.10.0", "11.11.0", "11.12.0", "11.13.0", "12.0.0", "12.1.0",
    "12.2.0", "12.3.0",
];

/// D2's packages: version in the first generation, and in the second.
const INSTALLED: &[(&str, &str, &str)] = &[
    ("numpy", "2.1.3", "2.2.0"),
    ("matplotlib", "3.9.2", "3.9.2"),
    ("pandas", "2.2.2", "2.2.3"),
    ("pyarrow", "17.0.0", "18.0.0"),
    ("ansible", "11.0.0", "11.1.0"),
    ("llvmlite", "0.43.0", "0.43.0"),
    ("botocore", "1.35.50", "1.35.90"),
    ("sympy", "1.13.3", "1.13.3"),
    ("opencv-python-headless", "4.10.0.84", "4.10.0.84"),
    ("scikit-learn", "1.5.2", "1.6.0"),
    ("playwright", "1.48.0", "1.48.0"),
    ("scipy", "1.14.1", "1.15.0"),
    ("polars", "1.10.0", "1.12.0"),
    ("tensorflow-cpu", "2.18.0", "2.18.0"),
    ("jaxlib", "0.4.34", "0.4.34"),
    ("pyside6-essentials", "6.8.0", "6.8.0"),
    ("plotly", "5.24.1", "5.24.1"),
    ("duckdb", "1.1.2", "1.1.3"),
    ("ruff", "0.7.0", "0.8.0"),
];

const IMAGE_BYTES: f64 = 2.1e9;
/// Share of an image that is filled.
const IMAGE_FILL: f64 = 0.85;
const UNIQUE_BYTES: f64 = 2.1e9;
const UNIQUE_FILE_BYTES: u64 = 64 << 20;
const STREAMS: f64 = 10.0;

/// Place and size of the sets.
pub struct Plan<'a> {
    /// Folder of all sets and of the packages they are made from.
    pub data: &'a Path,
    /// Scale of the sizes; 1.0 for the full size.
    pub scale: f64,
    /// Seed of the unique bytes.
    pub seed: u64,
}

/// Builds the set unless it exists; returns the folder that holds `tree`.
pub fn build(name: &str, plan: &Plan<'_>) -> Result<PathBuf, String> {
    let folder = match plan.scale {
        1.0 => plan.data.join(name),
        scale => plan.data.join(format!("{name}@{scale}")),
    };
    if folder.join("built").exists() {
        return Ok(folder);
    }
    println!("building {}", folder.display());
    let _ = std::fs::remove_dir_all(&folder);
    let tree = folder.join("tree");
    let done = match name {
        "D1" => make_dir(&tree).and_then(|()| releases(&tree, plan)),
        "D2" => make_dir(&tree).and_then(|()| images(&folder, &tree, plan)),
        "D3" => make_dir(&tree).and_then(|()| unique(&tree, plan)),
        "D4" => make_dir(&tree).and_then(|()| streams(&folder, &tree, plan)),
        _ => Err("there is no such set; see --help".to_string()),
    };
    done.map_err(|error| format!("{name}: {error}"))?;
    std::fs::write(folder.join("built"), plan.seed.to_string()).map_err(text)?;
    Ok(folder)
}

fn releases(tree: &Path, plan: &Plan<'_>) -> Result<(), String> {
    let count = (RELEASES.len() as f64 * plan.scale).round().max(1.0) as usize;
    for version in RELEASES.iter().cycle().take(count.min(RELEASES.len())) {
        unpack(&wheel("ansible", version, plan)?, &tree.join(version))?;
    }
    Ok(())
}

fn images(folder: &Path, tree: &Path, plan: &Plan<'_>) -> Result<(), String> {
    let stage = folder.join("stage");
    let bytes = IMAGE_BYTES * plan.scale;
    let mut held = Vec::new();
    for (package, first, second) in INSTALLED {
        let (used, _) = super::measure::disk_usage(&stage);
        if used as f64 > bytes * IMAGE_FILL * 0.9 {
            break;
        }
        let place = stage.join(package);
        unpack(&wheel(package, first, plan)?, &place)?;
        if blocks(&stage) as f64 > bytes * IMAGE_FILL {
            std::fs::remove_dir_all(&place).map_err(text)?;
            continue;
        }
        held.push((package, first, second));
    }
    image(&stage, &tree.join("generation-1.img"), bytes as u64)?;
    for (package, first, second) in held {
        if first != second {
            let place = stage.join(package);
            std::fs::remove_dir_all(&place).map_err(text)?;
            unpack(&wheel(package, second, plan)?, &place)?;
        }
    }
    image(&stage, &tree.join("generation-2.img"), bytes as u64)?;
    std::fs::remove_dir_all(&stage).map_err(text)
}

fn blocks(folder: &Path) -> u64 {
    super::measure::disk_usage(folder).1
}

fn image(stage: &Path, path: &Path, bytes: u64) -> Result<(), String> {
    let file = File::create(path).map_err(text)?;
    file.set_len(bytes).map_err(text)?;
    let id = "6f6e6566-6f6c-4000-8000-000000000001";
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-U", id, "-E"]);
    command.arg(format!("hash_seed={id},root_owner=0:0"));
    command.arg("-d").arg(stage).arg(path);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    quiet(command)
}

fn unique(tree: &Path, plan: &Plan<'_>) -> Result<(), String> {
    let files = (UNIQUE_BYTES * plan.scale / UNIQUE_FILE_BYTES as f64).round();
    let mut random = Random(plan.seed);
    for number in 0..files.max(1.0) as u64 {
        let file = File::create(tree.join(format!("{number:03}.bin"))).map_err(text)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        for _ in 0..UNIQUE_FILE_BYTES / 8 {
            file.write_all(&random.next().to_le_bytes()).map_err(text)?;
        }
        file.flush().map_err(text)?;
    }
    Ok(())
}

fn streams(folder: &Path, tree: &Path, plan: &Plan<'_>) -> Result<(), String> {
    let count = (STREAMS * plan.scale).round().max(2.0) as usize;
    for version in RELEASES.iter().take(count) {
        let stage = folder.join("stage").join(format!("ansible-{version}"));
        unpack(&wheel("ansible", version, plan)?, &stage)?;
        let mut command = Command::new("tar");
        command.args(["--sort=name", "--owner=0", "--group=0", "-cf"]);
        command.arg(tree.join(format!("ansible-{version}.tar")));
        command.arg("-C").arg(folder.join("stage")).arg(".");
        quiet(command)?;
        std::fs::remove_dir_all(&stage).map_err(text)?;
    }
    std::fs::remove_dir_all(folder.join("stage")).map_err(text)
}

/// The package's wheel, downloaded unless it exists.
fn wheel(package: &str, version: &str, plan: &Plan<'_>) -> Result<PathBuf, String> {
    let wheels = plan.data.join("wheels");
    make_dir(&wheels)?;
    let begin = format!("{}-{version}-", package.replace('-', "_").to_lowercase());
    let find = || {
        let mut entries = std::fs::read_dir(&wheels).ok()?.flatten();
        let found = entries.find(|entry| {
            let name = entry.file_name().to_string_lossy().to_lowercase();
            name.replace('-', "_").starts_with(&begin.replace('-', "_"))
        });
        found.map(|entry| entry.path())
    };
    if let Some(path) = find() {
        return Ok(path);
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
    command
        .args(["--only-binary", ":all:", "--dest"])
        .arg(&wheels);
    command.arg(format!("{package}=={version}"));
    quiet(command)?;
    find().ok_or_else(|| format!("{package}=={version}: the download has no wheel"))
}

fn unpack(wheel: &Path, place: &Path) -> Result<(), String> {
    make_dir(place)?;
    let mut command = Command::new("python3");
    command.args(["-m", "zipfile", "-e"]).arg(wheel).arg(place);
    quiet(command)
}

fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn quiet(mut command: Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
