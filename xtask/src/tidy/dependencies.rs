//! Manifests: a crate depends on the crates that its sources name, docs/dependencies.md gives a reason for each, and
//! the workspace lists only used ones.

use std::path::Path;

use super::{files_below, read};

pub fn check(root: &Path, amiss: &mut Vec<String>) {
    let mut packages: Vec<_> = ["bench", "fuzz", "rivals", "xtask"]
        .map(|name| root.join(name))
        .into();
    let crates = std::fs::read_dir(root.join("crates"));
    packages.extend(
        crates
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    packages.sort();
    let reasons = read(&root.join("docs/dependencies.md"));
    let mut taken = Vec::new();
    for package in &packages {
        let shown = package.strip_prefix(root).unwrap_or(package).display();
        for dependency in dependencies(&read(&package.join("Cargo.toml"))) {
            let Dependency { name, for_tests } = &dependency;
            if !is_named(package, name, *for_tests) {
                let part = if *for_tests { "dev-" } else { "" };
                amiss.push(format!(
                    "{shown}: no source names {name} of its [{part}dependencies]"
                ));
            }
            let is_foreign = !for_tests && !name.starts_with("onefold-");
            if package.starts_with(root.join("crates")) && is_foreign && !says_why(&reasons, name) {
                amiss.push(format!(
                    "docs/dependencies.md does not say why {shown} takes {name}"
                ));
            }
            taken.push(dependency.name);
        }
    }
    for Dependency { name, .. } in dependencies(&read(&root.join("Cargo.toml"))) {
        if !taken.contains(&name) {
            amiss.push(format!("Cargo.toml: no crate takes {name}"));
        }
    }
}

#[derive(Debug, PartialEq)]
struct Dependency {
    name: String,
    for_tests: bool,
}

/// The entries of a manifest under headings that end with `dependencies`.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut heading = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            heading = line.trim_matches(['[', ']']);
        } else if let Some((key, _)) = line.split_once('=')
            && heading.ends_with("dependencies")
            && !line.starts_with('#')
        {
            found.push(Dependency {
                name: key.trim().to_string(),
                for_tests: heading.ends_with("dev-dependencies"),
            });
        }
    }
    found
}

/// Whether the first cell of some row of a table lists the name.
fn says_why(reasons: &str, name: &str) -> bool {
    let rows = reasons.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" |").next())
        .any(|cell| cell.split(", ").any(|listed| listed == name))
}

fn is_named(package: &Path, name: &str, for_tests: bool) -> bool {
    let folders: &[&str] = if for_tests {
        &["src", "tests", "examples", "benches"]
    } else {
        &["src"]
    };
    let name = name.replace('-', "_");
    let sources = folders
        .iter()
        .flat_map(|folder| files_below(&package.join(folder), "rs"));
    sources.into_iter().any(|path| {
        let text = read(&path);
        let beside = path.parent().unwrap_or(package);
        let mut elsewhere = modules_elsewhere(&text).map(|module| read(&beside.join(module)));
        names(&text, &name) || elsewhere.any(|text| names(&text, &name))
    })
}

/// Files of other crates that are modules of this one, too.
fn modules_elsewhere(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start);
    lines.filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

/// Whether code, not a comment, has the name as the first part of a path.
fn names(text: &str, name: &str) -> bool {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter().any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let begins = !line[..at].ends_with(is_part);
            let rest = &line[at + name.len()..];
            begins && (rest.starts_with("::") || rest.starts_with(';') || rest.starts_with(" as "))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{Dependency, dependencies, modules_elsewhere, names, says_why};

    #[test]
    fn what_a_manifest_lists_is_found_under_its_headings() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\n# why\nb-c = { workspace = true }\n\
                        [dev-dependencies]\nd = \"1\"\n[features]\nstd = []\n";
        let expected = [("b-c", false), ("d", true)].map(|(name, for_tests)| Dependency {
            name: name.to_string(),
            for_tests,
        });
        assert_eq!(dependencies(manifest), expected);
    }

    #[test]
    fn a_name_counts_as_a_path_and_not_in_a_comment_or_a_longer_name() {
        assert!(names("use zstd::bulk;", "zstd"));
        assert!(names("    (zstd::compress)(1)", "zstd"));
        assert!(!names("// zstd::bulk", "zstd"));
        assert!(!names("let zstd = 1;", "zstd"));
        assert!(!names("not_zstd::bulk()", "zstd"));
    }

    #[test]
    fn a_file_of_another_crate_that_is_a_module_here_is_looked_at() {
        let text = "mod a;\n#[path = \"../../b/src/c.rs\"]\nmod c;\n";
        assert_eq!(
            modules_elsewhere(text).collect::<Vec<_>>(),
            ["../../b/src/c.rs"]
        );
    }

    #[test]
    fn a_row_says_why_for_each_name_in_its_first_cell() {
        let table = "| crate | why |\n|---|---|\n| serde, serde_json | JSON, by zstd |\n";
        assert!(says_why(table, "serde") && says_why(table, "serde_json"));
        assert!(!says_why(table, "zstd") && !says_why(table, "json"));
    }
}
