//! `--record`: makes a trace by chunking real data, folder after folder: the lookups that backups of these folders
//! would make.

use std::path::{Path, PathBuf};

use onefold_chunk::{Fingerprint, by_name};
use onefold_io::{Dir, FileDir};
use onefold_papers::workload::TraceWriter;
use onefold_store::InitOptions;

use super::Error;

/// Writes the fingerprints of all regular files below `folders`, in the order of their names, to the new file `trace`.
pub fn run(trace: &Path, folders: &[PathBuf]) -> Result<(), Error> {
    let folder = trace.parent().filter(|path| !path.as_os_str().is_empty());
    let name = trace.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("the trace needs a name")?;
    let dir = FileDir::create(folder.unwrap_or(Path::new(".")))?;
    let mut recorder = Recorder {
        of_backups: InitOptions::new("", 0),
        writer: TraceWriter::new(dir.create(name)?),
        chunks: 0,
        bytes: 0,
    };
    for folder in folders {
        recorder.record(folder)?;
        println!(
            "{}: {} chunks, {} MiB so far",
            folder.display(),
            recorder.chunks,
            recorder.bytes >> 20
        );
    }
    Ok(recorder.writer.finish()?)
}

struct Recorder {
    /// Chunker and mean of a new repository by default.
    of_backups: InitOptions,
    writer: TraceWriter,
    chunks: u64,
    bytes: u64,
}

impl Recorder {
    fn record(&mut self, path: &Path) -> Result<(), Error> {
        let kind = path.symlink_metadata()?;
        if kind.is_dir() {
            let entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
            let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
            paths.sort();
            return paths.iter().try_for_each(|path| self.record(path));
        }
        if !kind.is_file() {
            return Ok(());
        }
        let file = std::fs::read(path)?;
        let InitOptions {
            chunker,
            chunk_bytes_mean,
            ..
        } = &self.of_backups;
        let mut chunker = by_name(chunker, *chunk_bytes_mean as usize, None)?;
        let (mut at, mut written) = (0, Ok(()));
        chunker.cuts(&file, true, &mut |length| {
            let key = Fingerprint::of(&file[at..at + length]);
            at += length;
            self.chunks += 1;
            if written.is_ok() {
                written = self.writer.push(&key);
            }
        });
        self.bytes += file.len() as u64;
        Ok(written?)
    }
}
