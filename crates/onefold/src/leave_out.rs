//! Options about paths to leave out, for all verbs that read files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use onefold_backup::exclude::{Excludes, PatternsBuilder};

use crate::error::{Error, Result};
use crate::out::Out;
use crate::{human, patterns};

/// Options about paths to leave out.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Leaving out")]
pub struct LeaveOut {
    /// Paths to leave out: a name or glob (*, ?, **, [a-z]) at any depth, or from the root with a leading /
    /// (repeatable; the last match decides, ! takes back; patterns of --iexclude count behind those of --exclude, and
    /// those of files behind both). A path that is given itself is read whatever the patterns say of it
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,

    /// Like --exclude, but case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<OsString>,

    /// Patterns from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<OsString>,

    /// Like --exclude-file, but case does not matter
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<OsString>,

    /// Contents of folders with a CACHEDIR.TAG
    #[arg(long)]
    pub exclude_caches: bool,

    /// Contents of folders that hold this file, if it begins with the header
    #[arg(long, value_name = "NAME[:HEADER]")]
    pub exclude_if_present: Vec<OsString>,

    /// Files larger than this
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub exclude_larger_than: Option<u64>,

    /// Files of this name hold patterns for their folder and below, as .gitignore does
    #[arg(long, value_name = "NAME")]
    pub ignore_file: Vec<OsString>,

    /// Leave out other file systems than those of the paths given
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
}

impl LeaveOut {
    /// Returns the exclusions for the walk, and the patterns in the user's words.
    pub fn excludes(&self, out: &Out) -> Result<(Excludes, Vec<Vec<u8>>)> {
        let mut builder = PatternsBuilder::default();
        let given = [&self.exclude[..], &self.iexclude];
        let files = [&self.exclude_file[..], &self.iexclude_file];
        let words = patterns::add_all(&mut builder, given, files, out)?;
        let if_present = self.exclude_if_present.iter();
        let ignore_files = self.ignore_file.iter();
        let excludes = Excludes {
            patterns: builder.build()?,
            caches: self.exclude_caches,
            if_present: if_present
                .map(|spec| if_present_of(spec))
                .collect::<Result<_>>()?,
            ignore_files: ignore_files.map(|name| name.as_bytes().to_vec()).collect(),
            larger_than: self.exclude_larger_than,
            folders: Vec::new(),
        };
        Ok((excludes, words))
    }
}

fn if_present_of(spec: &OsStr) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let bytes = spec.as_bytes();
    let (name, header) = match bytes.iter().position(|b| *b == b':') {
        Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
        None => (bytes, None),
    };
    match name {
        b"" => Err(Error::Usage(
            "--exclude-if-present names no file: NAME or NAME:HEADER".into(),
        )),
        name => Ok((name.to_vec(), header)),
    }
}
