//! Golden files: bytes of earlier versions must be readable for ever and written in the same way today, and FORMAT.md
//! must show their real content.
//!
//! The crates' tests named `golden…` compare, and write where they are told to bless. FORMAT.md has a comment for each
//! example that names a file and the meaning of its bytes; the listing under it is made from the file's bytes.
//!
//! ```text
//! <!-- golden crates/store/testdata/v1-passing/condemned
//! 8 magic
//! * the rest
//! -->
//! (the listing, fenced)
//! <!-- /golden -->
//! ```
//!
//! A line is a number of bytes and their meaning; `*` stands for the bytes left before the following lines, `-n` skips
//! n bytes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that have golden files.
const CRATES: &[&str] = &[
    "onefold-io",
    "onefold-index",
    "onefold-papers",
    "onefold-store",
    "onefold-backup",
    "onefold-lab",
    "onefold-volume",
    "onefold",
];

const BEGIN: &str = "<!-- golden ";
const END: &str = "<!-- /golden -->";
/// Bytes in a line of a listing.
const LINE_BYTES: usize = 16;
/// Longest field in bytes that is shown whole; longer ones are shown by their first line.
const FIELD_BYTES_MAX: usize = 64;

/// Checks golden files and the examples of FORMAT.md, or writes them anew.
pub fn run(bless: bool) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet"]);
    CRATES.iter().for_each(|name| {
        command.args(["-p", name]);
    });
    command.args(["--tests", "golden"]);
    if bless {
        command.env("ONEFOLD_BLESS", "1");
    }
    println!("── golden tests");
    let status = command.status().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(
            "golden tests failed: `cargo xtask golden --bless` writes the files anew, for a new format version".into(),
        );
    }
    let path = crate::sources::root().join("FORMAT.md");
    let text = crate::sources::read(&path);
    let (made, amiss) = render_all(&crate::sources::root(), &text);
    if !amiss.is_empty() {
        return Err(amiss.join("\n  "));
    }
    if made == text {
        return Ok(());
    }
    if !bless {
        return Err(
            "FORMAT.md shows other bytes than the golden files hold: `cargo xtask golden --bless`"
                .into(),
        );
    }
    std::fs::write(&path, made).map_err(|error| error.to_string())
}

/// Adds faults of the golden files and of FORMAT.md's examples to `amiss`, as far as files alone show them.
pub fn check(root: &Path, magics: &[(PathBuf, Vec<u8>)], amiss: &mut Vec<String>) {
    let text = crate::sources::read(&root.join("FORMAT.md"));
    let (made, wrong) = render_all(root, &text);
    amiss.extend(wrong);
    if made != text {
        amiss.push("FORMAT.md: a listing differs from its golden file".into());
    }
    let golden = golden_files(root);
    for (path, magic) in magics {
        let shown = magic.escape_ascii();
        let holds = |bytes: &Vec<u8>| bytes.windows(magic.len()).any(|found| found == magic);
        if !golden.iter().any(holds) {
            amiss.push(format!("{}: no golden file holds {shown}", path.display()));
        }
    }
}

/// The contents of all files in `crates/*/testdata`.
fn golden_files(root: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let crates = std::fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<_> = crates.map(|entry| entry.path().join("testdata")).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.extend(std::fs::read(path)),
            }
        }
    }
    found
}

/// The text with every listing made anew, and the listings that cannot be made.
fn render_all(root: &Path, text: &str) -> (String, Vec<String>) {
    let (mut out, mut amiss) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let Some((head_bytes, end)) = rest[at..]
            .find("-->\n")
            .zip(rest[at..].find(END))
            .map(|(head, end)| (head + 4, at + end))
        else {
            amiss.push(format!("FORMAT.md: \"{BEGIN}\" without its end"));
            break;
        };
        let head = &rest[at..at + head_bytes];
        out += &rest[..at + head_bytes];
        match listing(root, head) {
            Ok(listing) => {
                let _ = write!(out, "```\n{listing}```\n{END}");
            }
            Err(error) => {
                amiss.push(format!("FORMAT.md: {error}"));
                out += &rest[at + head_bytes..end + END.len()];
            }
        }
        rest = &rest[end + END.len()..];
    }
    (out + rest, amiss)
}

/// The listing for the comment `head`.
fn listing(root: &Path, head: &str) -> Result<String, String> {
    let mut lines = head
        .trim_start_matches(BEGIN)
        .trim_end_matches("-->\n")
        .lines();
    let path = lines.next().unwrap_or_default().trim();
    let bytes = std::fs::read(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    let fields: Vec<(&str, &str)> = lines
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let known: usize = fields
        .iter()
        .filter_map(|(count, _)| count.trim_start_matches('-').parse::<usize>().ok())
        .sum();
    let (mut out, mut at) = (String::new(), 0);
    for (count, what) in fields {
        let len = match count.trim_start_matches('-') {
            "*" => bytes.len().saturating_sub(known),
            count => count
                .parse()
                .map_err(|_| format!("{path}: \"{count} {what}\" is no field"))?,
        };
        let field = bytes
            .get(at..at + len)
            .ok_or_else(|| format!("{path} ends within \"{what}\""))?;
        if count.starts_with('-') {
            let _ = writeln!(out, "      … {len} bytes: {what}");
        } else {
            show(&mut out, at, field, what)
        }
        at += len;
    }
    if at != bytes.len() {
        return Err(format!(
            "{path}: {} bytes at its end are not explained",
            bytes.len() - at
        ));
    }
    Ok(out)
}

fn show(out: &mut String, at: usize, field: &[u8], what: &str) {
    let shown = if field.len() > FIELD_BYTES_MAX {
        LINE_BYTES
    } else {
        field.len()
    };
    for (number, line) in field[..shown].chunks(LINE_BYTES).enumerate() {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let what = if number == 0 { what } else { "" };
        let line = format!(
            "{:04x}  {:47}  {what}",
            at + number * LINE_BYTES,
            hex.join(" ")
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if shown < field.len() {
        let _ = writeln!(out, "      … {} more bytes", field.len() - shown);
    }
}
