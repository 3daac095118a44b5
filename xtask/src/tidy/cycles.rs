//! Ratchet of cycles: files of one package that name items of each other in a circle.
//!
//! A file may use the heads of the folders in which it lies (`a.rs` for `a/b.rs`), since these hold what a folder
//! shares. Any other way back is part of a cycle: two files that only make sense together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::modules::{Modules, Names};
use super::{hold, packages};

/// Cycles whose files lie in one folder or are its head: lower it after mending some.
const WITHIN_MAX: usize = 2;
/// Cycles that go across folders.
const ACROSS_MAX: usize = 0;
/// Files that lie in some cycle.
const FILES_MAX: usize = 19;

pub fn check(root: &Path, amiss: &mut Vec<String>) {
    let (mut within, mut across, mut files) = (Vec::new(), Vec::new(), 0);
    for package in packages(root) {
        let modules = Modules::of_package(&package);
        for cycle in cycles(&used(&modules)) {
            files += cycle.len();
            let shown = package.strip_prefix(root).unwrap_or(&package).display();
            let names: Vec<_> = cycle.iter().map(|path| path.join("::")).collect();
            let line = format!("{shown}: {}", names.join(", "));
            if is_within_a_folder(&cycle) {
                within.push(line)
            } else {
                across.push(line)
            }
        }
    }
    hold(
        "cycles of files within a folder",
        within.len(),
        WITHIN_MAX,
        &within,
        amiss,
    );
    hold(
        "cycles of files across folders",
        across.len(),
        ACROSS_MAX,
        &across,
        amiss,
    );
    let all = [within, across].concat();
    hold("files in cycles", files, FILES_MAX, &all, amiss);
}

/// For each file those that it uses, without itself and the heads of its folders.
fn used(modules: &Modules) -> BTreeMap<Names, BTreeSet<Names>> {
    let of = |from: &Names| {
        let mut named = modules.named_by(from);
        named.retain(|to| !from.starts_with(to));
        named
    };
    modules
        .iter()
        .map(|(path, _)| (path.clone(), of(path)))
        .collect()
}

/// Groups of files of which each leads to all others.
fn cycles(used: &BTreeMap<Names, BTreeSet<Names>>) -> Vec<Vec<Names>> {
    let reached: BTreeMap<&Names, BTreeSet<&Names>> = used
        .keys()
        .map(|from| (from, reached_from(from, used)))
        .collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::<&Names>::new();
    for from in used.keys().filter(|from| reached[from].contains(from)) {
        if !seen.contains(from) {
            let is_mutual = |to: &&&Names| reached[**to].contains(from);
            let cycle: Vec<&Names> = reached[from].iter().filter(is_mutual).copied().collect();
            seen.extend(&cycle);
            found.push(cycle.into_iter().cloned().collect());
        }
    }
    found
}

/// Files that the uses from `from` on lead to; `from` itself if they lead back.
fn reached_from<'a>(
    from: &Names,
    used: &'a BTreeMap<Names, BTreeSet<Names>>,
) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Names> = used[from].iter().collect();
    while let Some(path) = open.pop() {
        if reached.insert(path) {
            open.extend(&used[path]);
        }
    }
    reached
}

fn is_within_a_folder(cycle: &[Names]) -> bool {
    let folder = |path: &Names| path[..path.len().saturating_sub(1)].to_vec();
    let mut folders = cycle.iter().flat_map(|path| [folder(path), path.clone()]);
    folders.any(|one| cycle.iter().all(|path| *path == one || folder(path) == one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_lead_to_each_other_are_one_cycle() {
        let names = |path: &str| path.split("::").map(str::to_owned).collect::<Names>();
        let uses = [
            ("a::b", "a::c"),
            ("a::c", "d"),
            ("d", "a::b"),
            ("e", "d"),
            ("f", "g"),
            ("g", "f"),
        ];
        let mut used = BTreeMap::<Names, BTreeSet<Names>>::new();
        for (from, to) in uses {
            used.entry(names(from)).or_default().insert(names(to));
        }
        let found = cycles(&used);
        assert_eq!(
            found,
            [
                vec![names("a::b"), names("a::c"), names("d")],
                vec![names("f"), names("g")]
            ]
        );
        assert!(!is_within_a_folder(&found[0]) && is_within_a_folder(&found[1]));
        assert!(is_within_a_folder(&[names("a"), names("a::b")]));
    }
}
