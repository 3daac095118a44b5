//! Checks that no compiler does: layers point one way, files stay short and use each other one way, words stay the
//! field's, manifests name only used crates, and documents link to existing files.

mod comments;
mod cycles;
mod dependencies;
mod documents;
mod modules;
mod types;

use std::path::{Path, PathBuf};

use crate::sources::files_below;
pub use crate::sources::{read, root, sources};

/// Largest number of lines in a source file; a longer one should be split by meaning.
const LINES_MAX: usize = 500;

/// Each crate and those of ours that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("io", &[]),
    ("chunk", &[]),
    ("keys", &["io", "chunk"]),
    ("index", &["io", "chunk"]),
    ("papers", &["io", "chunk", "index"]),
    ("store", &["io", "chunk", "index", "keys"]),
    ("remote", &["io", "store"]),
    ("backup", &["io", "chunk", "store"]),
    ("lab", &["io", "chunk"]),
    ("volume", &["io", "chunk", "index", "keys"]),
    ("export", &["io", "volume"]),
    ("mount", &["io", "chunk", "store", "backup"]),
    (
        "onefold",
        &[
            "io", "chunk", "index", "papers", "store", "remote", "backup", "lab", "volume",
            "export", "mount",
        ],
    ),
];

/// Crates that may have unsafe code, with a reason at each place.
const UNSAFE: &[&str] = &["io", "chunk"];

/// Names of files that say nothing about their content.
const EMPTY_NAMES: &[&str] = &[
    "utils.rs",
    "util.rs",
    "common.rs",
    "helpers.rs",
    "manager.rs",
    "misc.rs",
];

/// Runs all checks and lists all faults.
pub fn run() -> Result<(), String> {
    println!("── tidy");
    let root = root();
    let mut amiss = Vec::new();
    for (name, _) in LAYERS {
        check_layer(&root, name, &mut amiss);
        check_unsafe(&root, name, &mut amiss);
    }
    for path in sources(&root) {
        check_source(&root, &path, &mut amiss);
    }
    comments::check(&root, &mut amiss);
    cycles::check(&root, &mut amiss);
    types::check(&root, &mut amiss);
    check_formats(&root, &mut amiss);
    check_dead_files(&root, &mut amiss);
    dependencies::check(&root, &mut amiss);
    documents::check(&root, &mut amiss);
    crate::examples::check(&root, &mut amiss);
    if amiss.is_empty() {
        Ok(())
    } else {
        Err(format!("tidy:\n  {}", amiss.join("\n  ")))
    }
}

/// Folders of the workspace's packages.
fn packages(root: &Path) -> Vec<PathBuf> {
    let mut packages: Vec<_> = ["bench", "fuzz", "xtask"]
        .map(|name| root.join(name))
        .into();
    let crates = LAYERS
        .iter()
        .map(|(name, _)| root.join("crates").join(name));
    packages.extend(crates);
    packages
}

/// Checks a ratchet: a number that may only fall. Where it does not hold, the counted things are listed.
fn hold(what: &str, found: usize, most: usize, listed: &[String], amiss: &mut Vec<String>) {
    if found > most {
        let list = listed.join("\n    ");
        amiss.push(format!("{found} {what}, at most {most}:\n    {list}"));
    }
}

fn check_layer(root: &Path, name: &str, amiss: &mut Vec<String>) {
    let manifest = read(&root.join("crates").join(name).join("Cargo.toml"));
    let normal = manifest
        .split("[dev-dependencies]")
        .next()
        .unwrap_or_default();
    let allowed = LAYERS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(&[][..], |(_, allowed)| allowed);
    for line in normal.lines() {
        let Some(import) = line
            .strip_prefix("onefold-")
            .and_then(|rest| rest.split([' ', '.', '=']).next())
        else {
            continue;
        };
        if !allowed.contains(&import) {
            amiss.push(format!(
                "crates/{name} imports onefold-{import}: layers point the other way"
            ));
        }
    }
}

fn check_unsafe(root: &Path, name: &str, amiss: &mut Vec<String>) {
    let source = root.join("crates").join(name).join("src");
    let top = read(&source.join("lib.rs")) + &read(&source.join("main.rs"));
    if !UNSAFE.contains(&name) && !top.contains("#![forbid(unsafe_code)]") {
        amiss.push(format!("crates/{name} does not forbid unsafe code"));
    }
}

fn check_source(root: &Path, path: &Path, amiss: &mut Vec<String>) {
    let text = read(path);
    let shown = path.strip_prefix(root).unwrap_or(path).display();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        amiss.push(format!("{shown}: {lines} lines, at most {LINES_MAX}"));
    }
    if !text.starts_with("//!") {
        amiss.push(format!("{shown}: does not begin with what it is (//!)"));
    }
    if path
        .file_name()
        .is_some_and(|name| EMPTY_NAMES.iter().any(|empty| name == *empty))
    {
        amiss.push(format!("{shown}: a name that says nothing"));
    }
    // Spelled in parts, so that this file does not find itself.
    for word in [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ig", "nore"),
        concat!("dbg", "!("),
        concat!("FIX", "ME"),
    ] {
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(word))
        {
            amiss.push(format!(
                "{shown}:{}: {word} in \"{}\"",
                number + 1,
                line.trim()
            ));
        }
    }
}

/// Checks that every magic in the code stands in FORMAT.md and in a golden file.
fn check_formats(root: &Path, amiss: &mut Vec<String>) {
    let format = read(&root.join("FORMAT.md"));
    let magics = magics(root);
    for (path, magic) in &magics {
        let shown = magic.escape_ascii().to_string();
        let known = shown.trim_end_matches("\\x00");
        if !format.contains(known) {
            amiss.push(format!("{}: {shown} is not in FORMAT.md", path.display()));
        }
    }
    crate::golden::check(root, &magics, amiss);
}

/// The magics of frames and blocks in the code, with their files.
fn magics(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for path in sources(root) {
        let shown = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
        let is_ours = shown.starts_with("crates");
        if !is_ours || !shown.components().any(|part| part.as_os_str() == "src") {
            continue;
        }
        for prefix in ["1F", "OF"] {
            for (at, start) in read(&path).match_indices(&format!("*b\"{prefix}")) {
                let text = read(&path);
                let literal = text[at + start.len() - prefix.len()..].split('"').next();
                let literal = literal.unwrap_or_default();
                let magic = literal.replace("\\0", "\0").replace("\\n", "\n");
                found.push((shown.clone(), magic.into_bytes()));
            }
        }
    }
    found
}

/// Checks that every source file is a module of its crate: another file has `mod` with its name.
fn check_dead_files(root: &Path, amiss: &mut Vec<String>) {
    let all = sources(root);
    let package = |path: &Path| {
        let parts = path.strip_prefix(root).unwrap_or(path).components();
        parts.take(2).collect::<PathBuf>()
    };
    for path in &all {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = match &*stem {
            "lib" | "main" | "build" => continue,
            "mod" => path.parent().and_then(Path::file_name),
            _ => path.file_stem(),
        };
        let name = name.unwrap_or_default().to_string_lossy();
        let is_root = ["examples", "benches", "bin", "tests"].iter().any(|kind| {
            let parent = path.parent().and_then(Path::file_name);
            parent.is_some_and(|parent| parent == *kind)
        });
        let mut beside = all.iter().filter(|other| package(other) == package(path));
        let line = format!("mod {name};");
        if !is_root && !beside.any(|other| read(other).contains(&line)) {
            let shown = path.strip_prefix(root).unwrap_or(path).display();
            amiss.push(format!("{shown}: no file says `{line}`"));
        }
    }
}
