//! A check that every public item of the chunkers' crate, which is used by itself, has an example in its documentation.
//! Examples run with the tests.
//!
//! An item is public if it stands without indentation in a file that is a public module, or if such a file or `lib.rs`
//! exports it by name. Methods share the example of their type.

use std::path::{Path, PathBuf};

use crate::sources::{read, sources};

/// Adds the items without an example to `amiss`.
pub fn check(root: &Path, amiss: &mut Vec<String>) {
    let source = root.join("crates/chunk/src");
    let top = read(&source.join("lib.rs"));
    let modules: Vec<PathBuf> = top
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(|name| [format!("{name}.rs"), format!("{name}/mod.rs")].map(|file| source.join(file)))
        .filter_map(|files| files.into_iter().find(|file| file.is_file()))
        .collect();
    let texts = modules.iter().map(|path| read(path)).chain([top]);
    let exported: Vec<String> = texts.flat_map(|text| exports(&text)).collect();
    let files = sources(root);
    for path in files.iter().filter(|path| path.starts_with(&source)) {
        let without = without_example(&read(path), |name| {
            modules.contains(path) || exported.iter().any(|exported| exported == name)
        });
        let shown = path.strip_prefix(root).unwrap_or(path).display();
        amiss.extend(
            without
                .iter()
                .map(|name| format!("{shown}: `{name}` is public and has no example")),
        );
    }
}

/// The names that `pub use` lines export.
fn exports(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub use "));
    let names = lines.flat_map(|line| {
        let names = line
            .trim_end_matches(';')
            .rsplit("::")
            .next()
            .unwrap_or_default();
        names
            .trim_matches(['{', '}'])
            .split(", ")
            .map(String::from)
            .collect::<Vec<_>>()
    });
    names.collect()
}

/// Public types, traits and functions without indentation whose comment shows no code.
fn without_example(text: &str, is_public: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut found, mut shows_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("///") {
            shows_code |= line.starts_with("/// ```");
        } else if let Some(name) = item(line) {
            if is_public(name) && !shows_code {
                found.push(name.to_string());
            }
            shows_code = false;
        } else if !line.starts_with("#[") {
            shows_code = false;
        }
    }
    found
}

/// The name of the public type, trait or function whose definition begins on the line.
fn item(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub ")?;
    let item = item.strip_prefix("const ").unwrap_or(item);
    let kinds = ["fn ", "struct ", "enum ", "trait "];
    let name = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_needs_an_example_if_it_is_public() {
        let text = "/// A.\n///\n/// ```\n/// ```\n#[derive(Debug)]\npub struct A {\n}\n/// B.\npub const fn b(c: u8) {}\npub fn d() {}\nfn e() {}\n";
        assert_eq!(without_example(text, |_| true), ["b", "d"]);
        assert_eq!(without_example(text, |name| name == "d"), ["d"]);
        assert_eq!(
            exports("pub use a::{B, c};\npub use d::E;\nuse f::G;\n"),
            ["B", "c", "E"]
        );
    }
}
