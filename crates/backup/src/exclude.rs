//! Exclusions of a backup: patterns of the user, ignore files in the tree, marked folders, large files.
//!
//! A pattern without a leading `/` matches at any depth (`*.o`, `target/debug`); a pattern with one begins at the root
//! of the file system. `*` and `?` stay within a component, `**` spans components, braces stand for themselves, a
//! trailing `/` means folders only, a leading `!` takes back an exclusion by an earlier pattern. The last pattern that
//! matches decides. An excluded folder is left out with everything below it. `[!a]` is all but `a` to shells, and
//! allowed in ignore files only: to restic it is one of `!` and `a`, and whichever is meant, the other reading leaves
//! out files that were to be kept. `[^a]` is clear, and allowed everywhere. In brackets no character is escaped.
//!
//! Paths and patterns are bytes. The globs' compiler takes text: `text` makes text of any bytes, one to one.

mod globs;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use globs::Globs;

use crate::meta::Stat;
use crate::{Error, Kind, Result, path};

/// The signature of a CACHEDIR.TAG file (bford.info/cachedir).
pub const CACHEDIR_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Things to leave out of a backup.
#[derive(Clone, Default, Debug)]
pub struct Excludes {
    /// The user's patterns.
    pub patterns: Patterns,
    /// Contents of folders marked by a valid CACHEDIR.TAG.
    pub caches: bool,
    /// Contents of folders that hold a file of this name; where a header is given, only if the file begins with it.
    pub if_present: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Names of files whose lines are patterns for their folder and below, e.g. `.onefoldignore`.
    pub ignore_files: Vec<Vec<u8>>,
    /// Files larger than this, in bytes.
    pub larger_than: Option<u64>,
    /// Folders by (device, inode), under any name: behind links, mounted elsewhere, with names that no pattern can
    /// express.
    pub folders: Vec<(u64, u64)>,
}

impl Excludes {
    /// Whether nothing is ever left out.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
            && !self.caches
            && self.if_present.is_empty()
            && self.ignore_files.is_empty()
            && self.larger_than.is_none()
            && self.folders.is_empty()
    }

    /// Whether `stat` is of one of the folders that are left out under any name.
    pub(crate) fn is_left_out(&self, stat: &Stat) -> bool {
        stat.kind == Kind::Dir && self.folders.contains(&(stat.device, stat.inode))
    }
}

/// A list of patterns, compiled.
#[derive(Clone, Default, Debug)]
pub struct Patterns {
    exact: Globs,
    /// Globs on paths as [`text`]: patterns that are not UTF-8.
    escaped: Globs,
    /// Globs on paths as [`text`] in small letters: patterns that ignore case.
    folded: Globs,
    /// For each rule, whether it begins with `!` and so keeps the paths that it matches.
    is_negated: Vec<bool>,
}

/// Largest number of patterns with wildcards in one list: they take some 60 MB.
const WILD_MAX: usize = 8 << 10;

/// Collects patterns; later ones win.
pub struct PatternsBuilder {
    patterns: Patterns,
    base: String,
    wild_max: usize,
}

impl Default for PatternsBuilder {
    fn default() -> Self {
        Self {
            patterns: Patterns::default(),
            base: String::new(),
            wild_max: WILD_MAX,
        }
    }
}

impl PatternsBuilder {
    /// Makes a builder for paths that begin at `folder` (clean): a pattern that is a whole path with `folder` matches
    /// as it would without.
    pub fn below(folder: &[u8]) -> Self {
        Self {
            base: text(folder).into_owned(),
            ..Self::default()
        }
    }

    /// Adds a pattern as the user or an ignore file gives it; an empty one has no effect.
    ///
    /// # Errors
    /// [`Error::Usage`] with the pattern, and why: it is no valid glob, has brackets that other programs read in
    /// another way, or is one too many with wildcards.
    pub fn add(&mut self, pattern: &[u8], ignore_case: bool) -> Result<()> {
        self.add_as(&text(pattern), ignore_case, false)
    }

    /// Adds a pattern that is given as [`text`].
    fn add_as(
        &mut self,
        pattern: &str,
        ignore_case: bool,
        is_from_ignore_file: bool,
    ) -> Result<()> {
        let (is_negated, body) = match pattern.strip_prefix('!') {
            Some(body) => (true, body),
            None => (false, pattern),
        };
        let (body, folders_only) = match body.strip_suffix('/') {
            Some(body) if !body.is_empty() => (body, true),
            _ => (body, false),
        };
        without_doubt(pattern, body, is_from_ignore_file)?;
        let body = &*cleaned(body);
        // A pattern that is empty, or would match everything, is ignored.
        if body.bytes().all(|b| b == b'/') {
            return Ok(());
        }
        let anchored = body.starts_with('/') || is_from_ignore_file && body.contains('/');
        let globs = if anchored {
            let body = format!("/{}", body.trim_start_matches('/'));
            let below = self.below_base(&body, ignore_case).map(str::to_owned);
            [Some(body), below]
        } else {
            [Some(format!("**/{body}")), None]
        };
        let mut globs = globs.into_iter().flatten();
        globs.try_for_each(|glob| {
            self.add_glob((pattern, &glob), ignore_case, folders_only)?;
            self.patterns.is_negated.push(is_negated);
            Ok(())
        })
    }

    /// Returns the rest of an anchored pattern that begins with the base.
    fn below_base<'a>(&self, body: &'a str, ignore_case: bool) -> Option<&'a str> {
        let head = body.get(..self.base.len())?;
        let is_same = if ignore_case {
            head.to_lowercase() == self.base.to_lowercase()
        } else {
            head == self.base
        };
        let rest = &body[head.len()..];
        (is_same && !head.is_empty() && rest.starts_with('/')).then_some(rest)
    }

    fn add_glob(
        &mut self,
        (pattern, glob): (&str, &str),
        ignore_case: bool,
        folders_only: bool,
    ) -> Result<()> {
        let patterns = &mut self.patterns;
        let rule = patterns.is_negated.len() as u32;
        let may_be_wild = patterns.wild() < self.wild_max;
        let (globs, glob) = match ignore_case {
            true => (&mut patterns.folded, Cow::from(glob.to_lowercase())),
            false if pattern.chars().any(stands_for_byte) => (&mut patterns.escaped, glob.into()),
            false => (&mut patterns.exact, glob.into()),
        };
        globs
            .add(&glob, rule, folders_only, may_be_wild)
            .map_err(|why| Error::Usage(format!("pattern {pattern:?}: {why}")))
    }

    /// Compiles the list.
    ///
    /// # Errors
    /// [`Error::Usage`]: the patterns with wildcards are too long together.
    pub fn build(mut self) -> Result<Patterns> {
        let patterns = &mut self.patterns;
        let globs = [
            &mut patterns.exact,
            &mut patterns.escaped,
            &mut patterns.folded,
        ];
        for globs in globs {
            globs.finish().map_err(Error::Usage)?;
        }
        patterns.is_negated.shrink_to_fit();
        Ok(self.patterns)
    }
}

/// Checks brackets. Errors: brackets that other programs read in another way. `is_from_ignore_file`: the pattern is
/// from an ignore file.
fn without_doubt(pattern: &str, body: &str, is_from_ignore_file: bool) -> Result<()> {
    let wrong = |why: &str| Err(Error::Usage(format!("pattern {pattern:?}: {why}")));
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => {
                let first = chars.next();
                let rest = chars.by_ref().take_while(|c| *c != ']');
                let class: Vec<char> = first.into_iter().chain(rest).collect();
                if class.first() == Some(&'!') && !is_from_ignore_file {
                    return wrong(
                        "[!…] is all but these to shells, and these with ! to restic: write [^…] or […!]",
                    );
                }
                if class.contains(&'\\') {
                    return wrong("nothing is escaped in brackets: ] stands first in them, - last");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the pattern without `.` and empty components, and with `..` resolved, as paths are cleaned before they are
/// matched.
fn cleaned(pattern: &str) -> Cow<'_, str> {
    let is_none = |component| matches!(component, "" | "." | "..");
    let mut components = pattern.split('/');
    let first = components.next().filter(|first| !first.is_empty());
    if !first.into_iter().chain(components).any(is_none) {
        return pattern.into();
    }
    let mut kept: Vec<&str> = Vec::new();
    for component in pattern.split('/') {
        match component {
            "." => {}
            "" if !kept.is_empty() => {}
            ".." if kept.last().is_some_and(|last| !last.is_empty()) => drop(kept.pop()),
            _ => kept.push(component),
        }
    }
    kept.join("/").into()
}

/// Makes text of bytes, different texts of different bytes. A byte that is not UTF-8 becomes one of the last 256
/// characters, which have no meaning; so does each byte of these characters themselves. With U+FFFD instead, a pattern
/// would match other files, too.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    let needs_none = |text: &&str| !text.contains(stands_for_byte);
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(needs_none) {
        return text.into();
    }
    let stand_in = |b: &u8| char::from_u32(FIRST_STAND_IN + u32::from(*b)).expect("a character");
    let mut text = String::with_capacity(bytes.len() + 16);
    for piece in bytes.utf8_chunks() {
        for c in piece.valid().chars() {
            if stands_for_byte(c) {
                text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stand_in))
            } else {
                text.push(c)
            }
        }
        text.extend(piece.invalid().iter().map(stand_in));
    }
    text.into()
}

const FIRST_STAND_IN: u32 = 0x10_ff00;

fn stands_for_byte(c: char) -> bool {
    u32::from(c) >= FIRST_STAND_IN
}

/// Whether a pattern can match no path, since a `..` in it leads above its beginning.
pub fn leads_out(pattern: &[u8]) -> bool {
    let pattern = text(pattern);
    let body = pattern.strip_prefix('!').unwrap_or(&pattern);
    cleaned(body).split('/').any(|component| component == "..")
}

/// Whether a text begins with the mark of UTF-16: then none of its lines is a useful pattern.
pub fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Returns a line without ASCII blanks around it; a blank at the end stays if a backslash escapes it, as in gitignore:
/// names may end with a blank.
pub fn without_blanks(line: &[u8]) -> &[u8] {
    without_end_blanks(line).trim_ascii_start()
}

fn without_end_blanks(line: &[u8]) -> &[u8] {
    let bare = line.trim_ascii_end();
    let backslashes = bare.iter().rev().take_while(|byte| **byte == b'\\').count();
    let is_blank = matches!(line.get(bare.len()), Some(b' ' | b'\t'));
    &line[..bare.len() + usize::from(is_blank && backslashes % 2 == 1)]
}

/// Gives the patterns in a file, one per line, with line numbers from 1 on. Blanks around them, empty lines, comments
/// (`#`), and the encoding mark with which some editors begin a file are left out.
pub fn pattern_lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').map(without_blanks);
    let numbered = (1..).zip(lines);
    numbered.filter(|(_, line)| !line.is_empty() && line[0] != b'#')
}

/// Gives the lines of a [`text`] that are not empty and do not begin with `#`, without blanks at their ends, and
/// without the encoding mark with which some editors begin a file.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines()
        .map(|line| &line[..without_end_blanks(line.as_bytes()).len()])
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Patterns {
    /// Compiles patterns; case matters.
    ///
    /// # Errors
    /// Errors of [`add`](PatternsBuilder::add), at the first that fails, and of [`build`](PatternsBuilder::build).
    pub fn new<S: AsRef<[u8]>>(patterns: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut builder = PatternsBuilder::default();
        patterns
            .into_iter()
            .try_for_each(|pattern| builder.add(pattern.as_ref(), false))?;
        builder.build()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.is_negated.is_empty()
    }

    /// Returns whether `path` (absolute) itself matches: `Some(true)` excludes it, `Some(false)` keeps it because of a
    /// `!`, `None` means that no pattern matches.
    pub fn decide(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let mut last = self.exact.last(path, is_dir);
        if !self.escaped.is_empty() {
            last = last.max(self.escaped.last(text(path).as_bytes(), is_dir));
        }
        if !self.folded.is_empty() {
            let small = text(path).to_lowercase();
            last = last.max(self.folded.last(small.as_bytes(), is_dir));
        }
        Some(!self.is_negated[last? as usize])
    }

    fn globs(&self) -> [&Globs; 3] {
        [&self.exact, &self.escaped, &self.folded]
    }

    /// Number of patterns with wildcards.
    fn wild(&self) -> usize {
        self.globs().iter().map(|globs| globs.wild()).sum()
    }

    /// Heap bytes of the list, about.
    fn heap_bytes(&self) -> usize {
        let globs = self.globs().into_iter().map(Globs::heap_bytes);
        globs.sum::<usize>() + self.is_negated.len()
    }

    /// Whether `path` or a folder above it matches, for callers that do not walk from the top.
    pub fn covers(&self, path: &[u8], is_dir: bool) -> bool {
        let above = path
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, b)| **b == b'/')
            .any(|(at, _)| self.decide(&path[..at], true) == Some(true));
        above || self.decide(path, is_dir) == Some(true)
    }
}

impl Patterns {
    /// Returns the decision about `path` or, where no pattern matches it, about the nearest folder above it that one
    /// matches.
    pub fn decide_nearest(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let mut decision = self.decide(path, is_dir);
        let mut above = path::split(path).0;
        while decision.is_none() && !above.is_empty() {
            decision = self.decide(above, true);
            above = path::split(above).0;
        }
        decision
    }
}

/// Largest number of patterns with wildcards in the ignore files of a folder and those above it: they take some 8 MB,
/// and several folders are open at once.
const IGNORED_WILD_MAX: usize = 1 << 10;

/// Largest number of lines of an ignore file that are reported one by one because they are no patterns.
const PASSED_OVER_TOLD: usize = 100;

/// The patterns of one ignore file. `above` is the file that is asked next: an earlier one of the same folder, or the
/// last one of a folder above.
#[derive(Debug)]
pub struct IgnoreFile {
    above: Option<Arc<IgnoreFile>>,
    base_len: usize,
    patterns: Patterns,
    /// Bytes of this file and those above.
    text_bytes: usize,
    /// Number of patterns with wildcards, in this file and those above.
    wild: usize,
}

impl IgnoreFile {
    /// Compiles an ignore file in `folder`: as in gitignore, a `/` within a pattern anchors it to the folder. Returns
    /// also why lines were skipped.
    ///
    /// # Errors
    /// Errors of [`build`](PatternsBuilder::build). A line that is no pattern is no error.
    pub fn new(
        above: Option<Arc<IgnoreFile>>,
        folder: &[u8],
        bytes: &[u8],
    ) -> Result<(Arc<Self>, Vec<Error>)> {
        let wild_above = above.as_ref().map_or(0, |above| above.wild);
        let mut builder = PatternsBuilder {
            wild_max: IGNORED_WILD_MAX - wild_above,
            ..PatternsBuilder::default()
        };
        let mut passed_over = Vec::new();
        let mut untold = 0;
        for line in lines(&text(bytes)) {
            match builder.add_as(line, false, true) {
                Ok(()) => {}
                Err(why) if passed_over.len() < PASSED_OVER_TOLD => passed_over.push(why),
                Err(_) => untold += 1,
            }
        }
        if untold > 0 {
            passed_over.push(Error::Usage(format!("and so are {untold} others")));
        }
        let patterns = builder.build()?;
        let ignore = Self {
            base_len: folder.len(),
            wild: wild_above + patterns.wild(),
            patterns,
            text_bytes: bytes.len() + Self::text_bytes(above.as_deref()),
            above,
        };
        Ok((Arc::new(ignore), passed_over))
    }

    /// Bytes of a folder's ignore files and of those of the folders above it.
    pub fn text_bytes(ignore: Option<&Self>) -> usize {
        ignore.map_or(0, |ignore| ignore.text_bytes)
    }

    /// Heap bytes of this file's own patterns.
    pub fn heap_bytes(&self) -> usize {
        self.patterns.heap_bytes()
    }

    /// Whether `path` is left out: of the ignore files with a matching pattern the deepest decides, and of one
    /// folder's the last.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        match self.patterns.decide(&path[self.base_len..], is_dir) {
            Some(decision) => decision,
            None => self
                .above
                .as_ref()
                .is_some_and(|above| above.excludes(path, is_dir)),
        }
    }
}
