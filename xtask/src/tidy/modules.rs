//! Modules of a package: the names that each file defines and imports, and which file a path leads to.
//!
//! Files are read as words, without a parser: comments, texts and unit tests are left out first. A name that a macro
//! makes is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{files_below, read};

/// Words before the name of an item.
const ITEMS: [&str; 8] = [
    "struct", "enum", "union", "trait", "type", "fn", "const", "static",
];

/// Path of names, such as `crate::store::Entry`, in parts.
pub type Names = Vec<String>;

/// A file of a package, as a module.
pub struct Module {
    pub file: PathBuf,
    /// Code of the file, line by line as it is, without comments, texts and unit tests.
    pub code: String,
    /// Items that the file defines: the word before each, and its name.
    pub items: Vec<(String, String)>,
    /// Paths of `use`, with the name that each gives; `*` for all names.
    imports: Vec<(Names, String)>,
    /// Other paths in the code.
    paths: Vec<Names>,
}

/// The modules of a package by their paths in it; the root has an empty path.
pub struct Modules(BTreeMap<Names, Module>);

impl Modules {
    /// Reads a package's sources, without those that only tests have.
    pub fn of_package(package: &Path) -> Self {
        let source = package.join("src");
        let mut modules = BTreeMap::new();
        for file in files_below(&source, "rs") {
            let below = file.strip_prefix(&source).unwrap_or(&file);
            let mut path: Names = below.with_extension("").iter().map(text_of).collect();
            if path
                .last()
                .is_some_and(|last| ["lib", "main", "mod"].contains(&&**last))
            {
                path.pop();
            }
            modules.insert(path, Module::read(file));
        }
        let texts: Vec<_> = modules
            .iter()
            .map(|(path, it)| (path.clone(), read(&it.file)))
            .collect();
        for (parent, text) in texts {
            let declared = text.split("#[cfg(test)]\nmod ").skip(1);
            for name in declared.filter_map(|rest| rest.split_once(';').map(|(name, _)| name)) {
                let tests = [&parent[..], &[name.to_owned()]].concat();
                modules.retain(|path, _| !path.starts_with(&tests));
            }
        }
        Self(modules)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Names, &Module)> {
        self.0.iter()
    }

    /// Paths of the modules whose items the module at `from` names, itself among them.
    pub fn named_by(&self, from: &Names) -> BTreeSet<Names> {
        let Some(module) = self.0.get(from) else {
            return BTreeSet::new();
        };
        let imported = module.imports.iter().map(|(path, _)| path);
        let all = imported.chain(&module.paths);
        let absolute = all.filter_map(|path| self.absolute(from, path));
        absolute.filter_map(|path| self.home(&path, 0)).collect()
    }

    /// Path of the module that defines the item which the module at `from` calls `name`.
    pub fn home_of(&self, from: &Names, name: &str) -> Option<Names> {
        let path = [&from[..], &[name.to_owned()]].concat();
        self.home(&path, 0)
    }

    /// The path from the package's root on; `None` where it leads out of the package.
    fn absolute(&self, from: &Names, path: &[String]) -> Option<Names> {
        let mut base = from.clone();
        let mut rest = path;
        match &*rest.first()?.clone() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let child = [&base[..], &[first.to_owned()]].concat();
                if !self.0.contains_key(&child) {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|first| first == "super") {
            base.pop()?;
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Path of the module that defines what `path` names, through modules that pass the name on.
    fn home(&self, path: &[String], depth: usize) -> Option<Names> {
        let len = (0..=path.len())
            .rev()
            .find(|len| self.0.contains_key(&path[..*len]))?;
        let (at, rest) = path.split_at(len);
        let (at, module) = self.0.get_key_value(at)?;
        let Some(name) = rest.first().filter(|name| *name != "*") else {
            return Some(at.clone());
        };
        if module.items.iter().any(|(_, item)| item == name) || depth == 9 {
            return Some(at.clone());
        }
        let mut by_name = module.imports.iter().filter(|(_, given)| given == name);
        if let Some((path, _)) = by_name.next() {
            let further = self.absolute(at, path)?;
            return self.home(&[&further[..], &rest[1..]].concat(), depth + 1);
        }
        let all = module.imports.iter().filter(|(_, given)| given == "*");
        let mut homes = all.filter_map(|(path, _)| {
            let folder = self.absolute(at, &path[..path.len() - 1])?;
            self.home(&[&folder[..], rest].concat(), depth + 1)
        });
        let is_here = |home: &Names| self.0[home].items.iter().any(|(_, item)| item == name);
        homes.find(is_here).or_else(|| Some(at.clone()))
    }
}

impl Module {
    fn read(file: PathBuf) -> Self {
        let text = read(&file);
        let code = code_of(
            text.split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default(),
        );
        let words = words(&code);
        let (mut items, mut imports, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while at < words.len() {
            let next = words.get(at + 1).copied().unwrap_or_default();
            if words[at] == "use" {
                at = import(&words, at + 1, &[], &mut imports);
            } else if ITEMS.contains(&words[at]) && is_name(next) {
                items.push((words[at].to_owned(), next.to_owned()));
                at += 1;
            } else if is_name(words[at]) && next == "::" {
                let mut path = vec![words[at].to_owned()];
                while let Some(["::", name]) = words.get(at + 1..at + 3)
                    && is_name(name)
                {
                    path.push((*name).to_owned());
                    at += 2;
                }
                paths.push(path);
            }
            at += 1;
        }
        Self {
            file,
            code,
            items,
            imports,
            paths,
        }
    }
}

fn text_of(part: &std::ffi::OsStr) -> String {
    part.to_string_lossy().into_owned()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads the tree of a `use` from `at` on, below `prefix`; returns where it ends.
fn import(
    words: &[&str],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<(Names, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut given = None;
    while let Some(word) = words.get(at) {
        match *word {
            "{" => {
                while words.get(at).is_some_and(|word| *word != "}") {
                    at = import(words, at + 1, &path, found);
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => {
                given = words.get(at + 1).map(|name| (*name).to_owned());
                at += 1;
            }
            "::" => {}
            "self" if !prefix.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if path.len() > prefix.len() || !prefix.is_empty() && words.get(at - 1) == Some(&"self") {
        let given = given.or_else(|| path.last().cloned()).unwrap_or_default();
        found.push((path, given));
    }
    at
}

/// Names, `::`, and other signs one by one.
fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let len = match first {
            c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        words.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    words
}

/// The text without comments and without what stands in quotes; lines stay lines.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw_quote(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = hashes + 2;
            rest[from..]
                .find(&end)
                .map_or(rest.len(), |at| from + at + end.len())
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\''
            && (rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\''))
        {
            quoted(rest, '\'')
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code
}

/// Number of `#` of a raw text that begins here.
fn raw_quote(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Length of a text in quotes, with them.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_are_no_code() {
        let text = "a // b\n\"c \\\" d\" e r#\"f \" g\"# '\\'' 'h' 'i: j";
        assert_eq!(words(&code_of(text)), ["a", "e", "'", "i", ":", "j"]);
    }

    #[test]
    fn a_tree_of_imports_is_a_list_of_paths() {
        let words = words("use a::{self, b::{c as d, E}, f::*};");
        let mut found = Vec::new();
        import(&words, 1, &[], &mut found);
        let shown: Vec<_> = found
            .iter()
            .map(|(path, given)| (path.join("::"), &**given))
            .collect();
        let shown: Vec<_> = shown
            .iter()
            .map(|(path, given)| (&**path, *given))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", "a"),
                ("a::b::c", "d"),
                ("a::b::E", "E"),
                ("a::f::*", "*")
            ]
        );
    }
}
