//! Pages: their links lead somewhere, and each thing has one word, in pages and in code.

use std::path::Path;

use super::{files_below, read, sources};

/// Pages that must exist.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "FORMAT.md", "CHANGELOG.md"];

pub fn check(root: &Path, amiss: &mut Vec<String>) {
    for page in PAGES {
        if read(&root.join(page)).is_empty() {
            amiss.push(format!("{page} is missing"));
        }
    }
    let pages = files_below(root, "md");
    for page in &pages {
        check_links(root, page, amiss);
    }
    for path in sources(root).iter().chain(&pages) {
        check_words(root, path, amiss);
    }
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
