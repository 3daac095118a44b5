//! Ratchets of types: how many lines a type has over all its files, and how many names stand for several types.

use std::collections::BTreeMap;
use std::path::Path;

use super::modules::{Modules, Names};
use super::{hold, packages};

/// Lines of the `impl` blocks of one type, over all files, from which on it counts as large.
const LARGE_LINES: usize = 500;
/// Number of large types: lower it after splitting one.
const LARGE_MAX: usize = 9;
/// Lines of the largest type.
const LINES_MAX: usize = 1_344;

/// Names that mean the same thing in each module that has one.
const CONVENTIONAL: [&str; 4] = ["Args", "Error", "Options", "Result"];
/// Names that several types have: lower it after naming some for their roles.
const DOUBLED_MAX: usize = 17;

pub fn check(root: &Path, amiss: &mut Vec<String>) {
    let mut types = Vec::new();
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for package in packages(root) {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        let modules = Modules::of_package(&package);
        let lines = impl_lines(&modules);
        types.extend(lines.into_iter().map(|((home, name_of_type), lines)| {
            (
                lines,
                format!("{name}::{}::{name_of_type}", home.join("::")),
            )
        }));
        for (path, module) in modules.iter() {
            let is_type = |word: &str| ["struct", "enum", "union", "trait"].contains(&word);
            for (_, item) in module.items.iter().filter(|(word, _)| is_type(word)) {
                let place = format!("{name}::{}", path.join("::"));
                places.entry(item.clone()).or_default().push(place);
            }
        }
    }
    types.sort();
    types.reverse();
    let shown = |(lines, name): &(usize, String)| format!("{lines} {name}");
    let large: Vec<_> = types
        .iter()
        .filter(|(lines, _)| *lines >= LARGE_LINES)
        .map(shown)
        .collect();
    let what = format!("types of {LARGE_LINES} lines or more");
    hold(&what, large.len(), LARGE_MAX, &large, amiss);
    let largest = types.first().map_or(0, |(lines, _)| *lines);
    hold(
        "lines of the largest type",
        largest,
        LINES_MAX,
        &large,
        amiss,
    );
    places.retain(|name, places| places.len() > 1 && !CONVENTIONAL.contains(&&**name));
    let doubled: Vec<_> = places
        .iter()
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    hold(
        "names of several types",
        doubled.len(),
        DOUBLED_MAX,
        &doubled,
        amiss,
    );
}

/// Lines of the `impl` blocks of each type, which its module and name tell.
fn impl_lines(modules: &Modules) -> BTreeMap<(Names, String), usize> {
    let mut all = BTreeMap::new();
    for (path, module) in modules.iter() {
        let mut lines = module.code.lines();
        while let Some(line) = lines.next() {
            if !(line.starts_with("impl ")
                || line.starts_with("impl<")
                || line.starts_with("unsafe impl"))
            {
                continue;
            }
            let mut header = line.to_owned();
            let mut count = 1;
            let is_over = |line: &str| line.starts_with('}') || line.trim_end().ends_with("{}");
            let mut is_in_header = !line.contains('{');
            let mut last = line;
            while !is_over(last) {
                let Some(next) = lines.next() else { break };
                count += 1;
                last = next;
                if is_in_header {
                    header += next;
                    is_in_header = !next.contains('{');
                }
            }
            if let Some(name) = type_of(&header)
                && let Some(home) = modules.home_of(path, &name)
            {
                *all.entry((home, name)).or_default() += count;
            }
        }
    }
    all
}

/// The name of the type that an `impl` block is of: the last of its path, without parameters.
fn type_of(header: &str) -> Option<String> {
    let header = header.split('{').next()?.split(" where").next()?;
    let mut depth = 0;
    let mut outer = String::new();
    let mut before = ' ';
    for c in header.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            c if depth == 0 => outer.push(c),
            _ => {}
        }
        before = c;
    }
    let of = outer.split("impl").nth(1)?;
    let of = of.rsplit_once(" for ").map_or(of, |(_, name)| name);
    let last = of
        .trim()
        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .next()?;
    (!last.is_empty()).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::type_of;

    #[test]
    fn an_impl_names_its_type() {
        for (header, name) in [
            ("impl Writer {", "Writer"),
            (
                "impl<'a, T: Fn(u8) -> u8> Trait<T> for super::Seen<'a, T> {",
                "Seen",
            ),
            ("unsafe impl Send for Ring {}", "Ring"),
            ("impl Trait for &mut Place where Place: Sized {", "Place"),
        ] {
            assert_eq!(type_of(header).as_deref(), Some(name), "{header}");
        }
    }
}
