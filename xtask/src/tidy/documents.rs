//! Pages: their links lead somewhere, the first ones stay short, and each thing has one word, in pages and in code.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{files_below, read, sources};

/// Pages that must exist.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "FORMAT.md", "CHANGELOG.md"];

/// Pages that a newcomer reads first, and the number of words that each may have.
const WORDS_MAX: [(&str, usize); 2] = [("README.md", 1_500), ("ARCHITECTURE.md", 4_000)];

/// Number of rows that the glossary of ARCHITECTURE.md may have.
const GLOSSARY_ROWS_MAX: usize = 60;

pub fn check(root: &Path, amiss: &mut Vec<String>) {
    for page in PAGES {
        if read(&root.join(page)).is_empty() {
            amiss.push(format!("{page} is missing"));
        }
    }
    for (page, words_max) in WORDS_MAX {
        let words = read(&root.join(page)).split_whitespace().count();
        if words > words_max {
            amiss.push(format!(
                "{page} has {words} words, at most {words_max}: details go to docs/"
            ));
        }
    }
    check_glossary(&read(&root.join("ARCHITECTURE.md")), &sources(root), amiss);
    let pages = files_below(root, "md");
    for page in &pages {
        check_links(root, page, amiss);
    }
    for path in sources(root).iter().chain(&pages) {
        check_words(root, path, amiss);
    }
}

/// Checks that the glossary is short, and that some source defines each type in its second column.
fn check_glossary(architecture: &str, sources: &[PathBuf], amiss: &mut Vec<String>) {
    let rows: Vec<&str> = glossary(architecture).collect();
    if rows.is_empty() || rows.len() > GLOSSARY_ROWS_MAX {
        amiss.push(format!(
            "the glossary of ARCHITECTURE.md has {} rows, at most {GLOSSARY_ROWS_MAX}",
            rows.len()
        ));
    }
    let defined: HashSet<String> = sources
        .iter()
        .flat_map(|path| defined_types(&read(path)))
        .collect();
    for name in rows.into_iter().flat_map(named_types) {
        if !defined.contains(name) {
            amiss.push(format!(
                "the glossary of ARCHITECTURE.md names {name}, which no source defines: enter its new name"
            ));
        }
    }
}

/// The rows of the glossary, without its heading.
fn glossary(architecture: &str) -> impl Iterator<Item = &str> {
    let lines = architecture.lines();
    lines
        .skip_while(|line| !line.starts_with("| word |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
}

/// Names of types in the second cell of a row, without their modules.
fn named_types(row: &str) -> impl Iterator<Item = &str> {
    let cell = row.split(" | ").nth(1).unwrap_or_default();
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter_map(|name| name.rsplit("::").next())
}

/// Names of the types that a source defines.
fn defined_types(text: &str) -> Vec<String> {
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let is_definition = |word: &str| matches!(word, "struct" | "enum" | "trait" | "type");
    let pairs = words.windows(2).filter(|pair| is_definition(pair[0]));
    pairs.map(|pair| pair[1].to_string()).collect()
}

/// Checks that the files to which a page links exist, relative to its own folder, and the headings in them.
fn check_links(root: &Path, page: &Path, amiss: &mut Vec<String>) {
    let shown = page.strip_prefix(root).unwrap_or(page).display();
    let text = read(page);
    for (at, start) in text.match_indices("](") {
        let link = text[at + start.len()..]
            .split(')')
            .next()
            .unwrap_or_default();
        if link.contains("://") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => page.to_path_buf(),
            _ => page.parent().unwrap_or(root).join(file),
        };
        if !target.exists() {
            amiss.push(format!("{shown} links to {file}, which is not there"));
        } else if !heading.is_empty() && !headings(&read(&target)).contains(&heading.to_string()) {
            amiss.push(format!("{shown} links to {link}: no such heading"));
        }
    }
}

/// A page's headings as links name them: small letters, hyphens for spaces, punctuation left out.
fn headings(text: &str) -> Vec<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles
        .map(|line| line.trim_start_matches('#').trim().to_lowercase())
        .map(|title| {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            title.chars().filter(kept).collect::<String>()
        })
        .map(|title| title.replace(' ', "-"))
        .collect()
}

/// Checks for synonyms of ARCHITECTURE.md's words.
fn check_words(root: &Path, path: &Path, amiss: &mut Vec<String>) {
    // Spelled in parts, so that this file does not find itself.
    let words = [
        concat!("struct Bl", "ob"),
        concat!("struct Sl", "ab"),
        concat!("fn bl", "ob"),
        concat!("fn sl", "ab"),
    ];
    let text = read(path);
    for word in words.iter().filter(|word| text.contains(**word)) {
        let shown = path.strip_prefix(root).unwrap_or(path).display();
        amiss.push(format!("{shown}: holds \"{word}\""));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{check_glossary, defined_types};

    #[test]
    fn a_word_whose_type_is_gone_is_told() {
        let page =
            "| word | type | meaning |\n|---|---|---|\n| pages | `documents::Gone` | none |\n";
        let source = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tidy/comments.rs"));
        let mut amiss = Vec::new();
        check_glossary(page, std::slice::from_ref(&source), &mut amiss);
        assert_eq!(amiss.len(), 1, "{amiss:?}");
        let mut amiss = Vec::new();
        check_glossary(&page.replace("Gone", "Ratchet"), &[source], &mut amiss);
        assert_eq!(amiss, Vec::<String>::new());
    }

    #[test]
    fn definitions_of_types_are_found() {
        let text = "pub(crate) struct One<T> { a: T }\nenum Two {}\npub trait Three: Send {}";
        assert_eq!(defined_types(text), ["One", "Two", "Three"]);
    }
}
