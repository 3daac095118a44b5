//! A list of globs with their rules. Globs without wildcards, and extensions, are in sorted tables: long lists consist
//! of them, and take little more RAM than their text that way. The other globs are compiled together.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, Glob, GlobBuilder, GlobSet};

/// RAM of one compiled glob, in bytes: 7 KB were measured.
const WILD_BYTES: usize = 8 << 10;

/// Globs, each with the number of its rule.
#[derive(Clone, Default, Debug)]
pub(super) struct Globs {
    /// Globs that match whole paths.
    whole: Literals,
    /// Globs that match the end of a path, behind a `/`.
    tails: Literals,
    /// Globs that match the end of a name, from its last dot on.
    extensions: Literals,
    wild: Wild,
}

impl Globs {
    /// Adds a glob of `rule`, which must be greater than those added before. Errors: why it is no glob, or that it is
    /// one too many with wildcards.
    pub fn add(
        &mut self,
        glob: &str,
        rule: u32,
        folders_only: bool,
        may_be_wild: bool,
    ) -> Result<(), String> {
        let (literals, text) = match glob.strip_prefix("**/") {
            Some(tail) if is_literal(tail) => (&mut self.tails, tail),
            Some(tail) if is_extension(tail) => (&mut self.extensions, &tail[1..]),
            None if is_literal(glob) => (&mut self.whole, glob),
            _ if may_be_wild => return self.wild.add(glob, marked(rule, folders_only)),
            _ => return Err("too many before it have wildcards".into()),
        };
        literals.add(text.as_bytes(), rule, folders_only);
        Ok(())
    }

    /// Compiles the globs, once all are added. Errors: they are too long to be compiled together.
    pub fn finish(&mut self) -> Result<(), String> {
        let literals = [&mut self.whole, &mut self.tails, &mut self.extensions];
        literals.into_iter().for_each(Literals::finish);
        self.wild.finish()
    }

    /// Number of globs with wildcards.
    pub fn wild(&self) -> usize {
        self.wild.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        let literals = [&self.whole, &self.tails, &self.extensions];
        literals.iter().all(|all| all.all.is_empty()) && self.wild() == 0
    }

    /// Heap bytes of the globs, about.
    pub fn heap_bytes(&self) -> usize {
        let literals = [&self.whole, &self.tails, &self.extensions];
        let literals = literals.map(|all| all.text.len() + size_of_val(&all.all[..]));
        literals.into_iter().sum::<usize>() + self.wild() * WILD_BYTES
    }

    /// Returns the last rule that matches; rules for folders only count for folders.
    pub fn last(&self, path: &[u8], is_dir: bool) -> Option<u32> {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let dot = name.iter().rposition(|b| *b == b'.');
        let extension = dot.and_then(|dot| self.extensions.last(&name[dot..], is_dir));
        self.whole
            .last(path, is_dir)
            .max(self.tail(path, is_dir))
            .max(extension)
            .max(self.wild.last(path, is_dir))
    }

    fn tail(&self, path: &[u8], is_dir: bool) -> Option<u32> {
        if self.tails.all.is_empty() {
            return None;
        }
        let starts = (0..path.len()).rev().filter(|at| path[*at] == b'/');
        let starts = starts.map(|slash| slash + 1).chain([0]);
        let starts = starts.take(self.tails.components_max);
        let rules = starts.map(|start| self.tails.last(&path[start..], is_dir));
        rules.max().flatten()
    }
}

/// A glob's bytes, as a range in a longer string, and its rule.
#[derive(Clone, Copy, Debug)]
struct GlobSpan {
    start: u32,
    len: u32,
    rule: u32,
}

impl GlobSpan {
    /// Appends to `bytes` by calling `append`, and returns the place of the new bytes. Patterns are below 4 GiB.
    fn of(bytes: &mut Vec<u8>, rule: u32, append: impl FnOnce(&mut Vec<u8>)) -> Self {
        let start = bytes.len();
        append(bytes);
        let short = |n: usize| u32::try_from(n).expect("lists of patterns are shorter");
        Self {
            start: short(start),
            len: short(bytes.len() - start),
            rule,
        }
    }

    fn of_what<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

/// Highest bit of a rule's number: the rule is for folders only.
const FOLDERS_ONLY: u32 = 1 << 31;

fn marked(rule: u32, folders_only: bool) -> u32 {
    rule | if folders_only { FOLDERS_ONLY } else { 0 }
}

fn counting(marked: u32, is_dir: bool) -> Option<u32> {
    (is_dir || marked & FOLDERS_ONLY == 0).then_some(marked & !FOLDERS_ONLY)
}

/// Sorted texts; for each text the last rule, and the last rule that is not for folders only.
#[derive(Clone, Default, Debug)]
struct Literals {
    text: Vec<u8>,
    all: Vec<GlobSpan>,
    components_max: usize,
}

impl Literals {
    fn add(&mut self, text: &[u8], rule: u32, folders_only: bool) {
        let components = 1 + text.iter().filter(|b| **b == b'/').count();
        self.components_max = self.components_max.max(components);
        let append = |out: &mut Vec<u8>| out.extend_from_slice(text);
        let place = GlobSpan::of(&mut self.text, marked(rule, folders_only), append);
        self.all.push(place);
    }

    fn finish(&mut self) {
        let text = &self.text;
        let is_of_folders = |place: &GlobSpan| counting(place.rule, false).is_none();
        let rule = |place: &GlobSpan| counting(place.rule, true);
        // Among equal texts, the one with the last rule comes first.
        self.all.sort_unstable_by(|a, b| {
            let texts = a.of_what(text).cmp(b.of_what(text));
            texts.then(rule(b).cmp(&rule(a)))
        });
        self.all.dedup_by(|later, kept| {
            let is_same = later.of_what(text) == kept.of_what(text);
            is_same && (!is_of_folders(kept) || is_of_folders(later))
        });
        self.all.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    fn last(&self, text: &[u8], is_dir: bool) -> Option<u32> {
        let first = self
            .all
            .partition_point(|place| place.of_what(&self.text) < text);
        let same = self.all[first..].iter().take(2);
        same.take_while(|place| place.of_what(&self.text) == text)
            .find_map(|place| counting(place.rule, is_dir))
    }
}

/// Globs with wildcards.
#[derive(Clone, Default, Debug)]
struct Wild {
    /// Globs that are not compiled yet.
    globs: Vec<Glob>,
    set: GlobSet,
    rules: Vec<u32>,
}

impl Wild {
    fn add(&mut self, glob: &str, rule: u32) -> Result<(), String> {
        let glob = compiled(glob).map_err(|e| e.kind().to_string())?;
        self.globs.push(glob);
        self.rules.push(rule);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let globs = std::mem::take(&mut self.globs);
        self.set = GlobSet::new(&globs).map_err(|e| {
            let why = e.kind();
            format!(
                "{} patterns with wildcards are too many or too long: {why}",
                globs.len()
            )
        })?;
        Ok(())
    }

    fn last(&self, path: &[u8], is_dir: bool) -> Option<u32> {
        if self.rules.is_empty() {
            return None;
        }
        let candidate = Candidate::new(Path::new(OsStr::from_bytes(path)));
        let matching = self.set.matches_candidate(&candidate).into_iter().rev();
        matching
            .map(|i| self.rules[i])
            .find_map(|rule| counting(rule, is_dir))
    }
}

/// Compiles one glob with the library.
pub(super) fn compiled(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(&as_compiled(glob))
        .literal_separator(true)
        .backslash_escape(true)
        .build()
}

/// Returns the glob in the compiler's form: braces stand for themselves, as in gitignore and restic, and brackets never
/// match a `/`.
fn as_compiled(glob: &str) -> String {
    let mut compiled = String::with_capacity(glob.len());
    let mut chars = glob.chars().peekable();
    while let Some(c) = chars.next() {
        if matches!(c, '{' | '}') {
            compiled.push('\\');
        }
        compiled.push(c);
        match c {
            '\\' => compiled.extend(chars.next()),
            '[' => {
                let negation = chars.next_if(|c| matches!(c, '!' | '^'));
                compiled.extend(negation);
                // The first character in brackets may be a bracket itself.
                compiled.extend(chars.next());
                for c in chars.by_ref() {
                    if c == ']' {
                        compiled.push_str(if negation.is_some() { "/]" } else { "]" });
                        break;
                    }
                    compiled.push(c);
                }
            }
            _ => {}
        }
    }
    compiled
}

/// Whether every character of the glob stands for itself.
fn is_literal(glob: &str) -> bool {
    !glob.is_empty() && !glob.contains(['*', '?', '[', '\\'])
}

/// Whether the glob is `*`, a dot, and a text with neither a dot nor a `/`.
fn is_extension(glob: &str) -> bool {
    let rest = glob.strip_prefix("*.");
    rest.is_some_and(|rest| is_literal(rest) && !rest.contains(['.', '/']))
}
