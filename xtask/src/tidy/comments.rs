//! Ratchets of comments: limits on bad lines in all sources, which may only fall.

use std::path::{Path, PathBuf};

use super::{read, sources};

/// Largest width of a comment line: comments are read beside code and in terminals.
const COLUMNS_MAX: usize = 120;

/// Words that lean on the name below: a comment that begins with one of them has no subject of its own.
const LEANING: [&str; 7] = ["Of", "So", "What", "Who", "Whose", "That", "It"];

/// A kind of bad comment line, and the number of such lines that all sources may have: lower it after mending some.
struct Ratchet {
    what: &'static str,
    is_bad: fn(&str) -> bool,
    lines_max: usize,
}

const RATCHETS: [Ratchet; 2] = [
    Ratchet {
        what: "of more than 120 columns",
        is_bad: is_wide,
        lines_max: 60,
    },
    Ratchet {
        what: "that begin with Of, So, What, Who, Whose, That or It",
        is_bad: leans,
        lines_max: 0,
    },
];

fn is_wide(line: &str) -> bool {
    line.trim_start().starts_with("//") && line.chars().count() > COLUMNS_MAX
}

fn leans(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else {
        return false;
    };
    let text = comment.strip_prefix(['/', '!']).unwrap_or(comment);
    let first = text.trim_start().split_once(' ').map(|(first, _)| first);
    first.is_some_and(|first| LEANING.contains(&first))
}

/// Checks each ratchet, and names the worst file of one that does not hold.
pub fn check(root: &Path, amiss: &mut Vec<String>) {
    let texts: Vec<(PathBuf, String)> = sources(root)
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .collect();
    for Ratchet {
        what,
        is_bad,
        lines_max,
    } in RATCHETS
    {
        let bad_in = |(path, text): &(PathBuf, String)| {
            let bad = text.lines().filter(|line| is_bad(line)).count();
            (bad, path.clone())
        };
        let all: Vec<(usize, PathBuf)> = texts.iter().map(bad_in).collect();
        let bad: usize = all.iter().map(|(bad, _)| bad).sum();
        if bad > lines_max {
            let (most, path) = all.iter().max().expect("there are sources");
            let shown = path.strip_prefix(root).unwrap_or(path).display();
            amiss.push(format!(
                "{bad} comment lines {what}, at most {lines_max}; {most} in {shown}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_without_a_subject_are_known_by_their_first_word() {
        for line in ["/// What it is.", "    // Of these, one.", "//! It is so."] {
            assert!(leans(line), "{line}");
        }
        for line in ["/// Whether it is.", "What is it?", "// Items of it", "//"] {
            assert!(!leans(line), "{line}");
        }
    }
}
