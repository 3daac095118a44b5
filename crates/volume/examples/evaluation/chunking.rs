//! Figures 2.2, 2.4 and 2.5: deduplication ratios of versions of a source tree, in fixed chunks, variable ones, and
//! whole files.
//!
//! The report took 40 Linux kernels. Here it is the folders in `--trees`, each a version, or 40 versions of this
//! repository, evenly spaced over its history, which everybody has who can run this.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use onefold_chunk::fixed::Fixed;
use onefold_chunk::{Chunker, Fingerprint, by_name};
use tempfile::TempDir;

use crate::findings::{Findings, Ratio, parallel};
use crate::micro::range;
use crate::paper;
use crate::{Args, Error};

/// Versions of this repository.
const VERSIONS: usize = 40;
const SIZES: [usize; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
/// Bytes of a tar's header, and its borders as tar has them.
const TAR_BYTES: usize = 512;

/// Files of all versions, in order.
type Files = Vec<Vec<u8>>;

/// How files are cut.
#[derive(Clone, Copy, Debug)]
enum Cutting {
    Fixed(usize),
    Variable(usize),
    Whole,
    /// All files in a tar with borders of so many bytes, in fixed chunks of 4 KiB.
    Tar(usize),
}

impl Cutting {
    fn ratio(self, files: &Files) -> Result<Ratio, Error> {
        let (group, label) = match self {
            Self::Fixed(size) => ("fixed chunks", shown(size)),
            Self::Variable(mean) => ("variable chunks (Rabin), mean asked", shown(mean)),
            Self::Whole => ("whole files", "whole".into()),
            Self::Tar(border) => ("a tar in fixed chunks of 4 KiB, borders", shown(border)),
        };
        let ratio = match self {
            Self::Fixed(size) => cut(files, &mut Fixed::new(size)),
            Self::Variable(mean) => cut(files, &mut *by_name("rabin", mean, None)?),
            Self::Whole => whole(files),
            Self::Tar(border) => cut(&vec![tar(files, border)], &mut Fixed::new(4096)),
        };
        let group = group.to_owned();
        Ok(Ratio {
            group,
            label,
            ratio,
        })
    }
}

fn shown(bytes: usize) -> String {
    match bytes {
        1024.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Figure 2.2: fixed chunks and whole files.
pub fn fixed(args: &Args) -> Result<Findings, Error> {
    let cuttings: Vec<_> = SIZES.into_iter().map(Cutting::Fixed).collect();
    let mut found = Findings::new("2.2", "Ratio of fixed chunks and whole files");
    found.ratios = measure(args, &[&cuttings[..], &[Cutting::Whole]].concat())?;
    let whole = found.ratios.last().map(|one| (one.ratio, one.ratio));
    found.add(paper::WHOLE_FILES, whole);
    let falls = falls(&found.ratios[..SIZES.len()]);
    found.add(paper::FIXED_FALL, falls);
    Ok(found)
}

/// Figure 2.4: variable chunks.
pub fn variable(args: &Args) -> Result<Findings, Error> {
    let cuttings: Vec<_> = SIZES.into_iter().map(Cutting::Variable).collect();
    let mut found = Findings::new("2.4", "Ratio of variable chunks");
    found.ratios = measure(args, &cuttings)?;
    let falls = falls(&found.ratios);
    found.add(paper::VARIABLE_FALL, falls);
    Ok(found)
}

/// Figure 2.5: variable chunks, fixed chunks, whole files; and the tars of Figure 4.3.
pub fn compared(args: &Args) -> Result<Findings, Error> {
    let cuttings = [
        Cutting::Variable(4096),
        Cutting::Fixed(4096),
        Cutting::Whole,
        Cutting::Tar(TAR_BYTES),
        Cutting::Tar(4096),
    ];
    let mut found = Findings::new("2.5", "Ratio of variable chunks, fixed ones, whole files");
    found.ratios = measure(args, &cuttings)?;
    let most = found.ratios[0].ratio / found.ratios[1].ratio;
    found.add(paper::VARIABLE_MOST, Some((most, most)));
    Ok(found)
}

fn falls(ratios: &[Ratio]) -> Option<(f64, f64)> {
    range(ratios.windows(2).map(|pair| pair[1].ratio / pair[0].ratio))
}

fn measure(args: &Args, cuttings: &[Cutting]) -> Result<Vec<Ratio>, Error> {
    let files = match &args.trees {
        Some(trees) => read(trees)?,
        None => read(own_versions()?.path())?,
    };
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files, {} MiB", files.len(), bytes >> 20);
    parallel(cuttings, |cutting| cutting.ratio(&files))
}

fn cut(files: &Files, chunker: &mut dyn Chunker) -> f64 {
    let (mut unique, mut bytes) = (HashMap::new(), 0);
    for file in files {
        let mut at = 0;
        chunker.cuts(file, true, &mut |len| {
            unique.insert(Fingerprint::of(&file[at..at + len]), len);
            at += len;
        });
        bytes += file.len();
    }
    bytes as f64 / unique.values().sum::<usize>().max(1) as f64
}

fn whole(files: &Files) -> f64 {
    let unique: HashMap<_, _> = (files.iter())
        .map(|file| (Fingerprint::of(file), file.len()))
        .collect();
    let bytes: usize = files.iter().map(Vec::len).sum();
    bytes as f64 / unique.values().sum::<usize>().max(1) as f64
}

/// One tar of all files. Headers differ, as times and versions in names do.
fn tar(files: &Files, border: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for (number, file) in (1u64..).zip(files) {
        all.extend_from_slice(&number.to_le_bytes());
        all.resize((all.len() - 8 + TAR_BYTES).next_multiple_of(border), 0);
        all.extend_from_slice(file);
        all.resize(all.len().next_multiple_of(border), 0);
    }
    all
}

/// Files below a folder, in the order of their names.
fn read(folder: &Path) -> Result<Files, Error> {
    let mut files = Vec::new();
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.extend(read(&entry.path())?);
        } else if kind.is_file() {
            files.push(std::fs::read(entry.path())?);
        }
    }
    Ok(files)
}

/// Versions of this repository, as git keeps them, a folder each.
pub fn own_versions() -> Result<TempDir, Error> {
    let commits = git(&["rev-list", "--first-parent", "--reverse", "HEAD"])?;
    let commits = String::from_utf8(commits)?;
    let commits: Vec<&str> = commits.lines().collect();
    let folder = tempfile::tempdir()?;
    for version in 0..VERSIONS {
        let at = (version + 1) * commits.len() / VERSIONS - 1;
        let place = folder.path().join(format!("{version:02}"));
        std::fs::create_dir(&place)?;
        let tar = folder.path().join("tar");
        let commit = commits.get(at).ok_or("too short a history: name --trees")?;
        std::fs::write(&tar, git(&["archive", commit])?)?;
        let mut command = Command::new("tar");
        let status = command
            .arg("-xf")
            .arg(&tar)
            .arg("-C")
            .arg(&place)
            .status()?;
        if !status.success() {
            return Err(format!("tar: {status}").into());
        }
        std::fs::remove_file(&tar)?;
    }
    Ok(folder)
}

fn git(args: &[&str]) -> Result<Vec<u8>, Error> {
    let output = Command::new("git").args(args).output()?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("git: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_at_borders_of_chunks_are_found_again_and_others_are_not() {
        let file = |seed| onefold_io::Random(seed).bytes(40_000);
        let files = vec![file(1), file(2), file(1), file(2)];
        assert_eq!(whole(&files), 2.0);
        assert_eq!(cut(&files, &mut Fixed::new(4096)), 2.0);
        let ratio = |border| cut(&vec![tar(&files, border)], &mut Fixed::new(4096));
        assert!(ratio(4096) > 1.6, "{}", ratio(4096));
        assert!(ratio(512) < ratio(4096), "{}", ratio(512));
    }
}
