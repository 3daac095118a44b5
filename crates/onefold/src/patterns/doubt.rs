//! Patterns that cannot match what they seem to mean: those that wait for a shell to replace something, and those that
//! begin at a current folder, which patterns do not have. Names may have a `~` or a `$` (`*~`, `.~lock*`,
//! `$RECYCLE.BIN`): these cause no warning.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use onefold_backup::exclude::leads_out;

use crate::{out, paths};

/// Source of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PatternSource {
    /// The command line: the user may think of the current folder.
    Typed,
    /// A file of patterns.
    InFile,
}

/// Returns what is wrong with the pattern, and what to write instead.
pub fn doubt(pattern: &[u8], given: PatternSource) -> Option<String> {
    doubt_where(pattern, given, &|name| {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    })
}

/// Does the same; `variable` returns the value of a variable that is set.
fn doubt_where(
    pattern: &[u8],
    given: PatternSource,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let text = String::from_utf8_lossy(pattern);
    let (keeps, body) = match text.strip_prefix('!') {
        Some(body) => ("!", body),
        None => ("", &*text),
    };
    let shown = out::safe(&text);
    let what = if let Some(rest) = body.strip_prefix("~/") {
        let home = variable("HOME").unwrap_or_else(|| "/home/…".into());
        format!(
            "nothing puts your home folder in place of the ~: write {keeps}{home}/{rest}, or {keeps}./{body} if a folder is called ~"
        )
    } else if let Some(name) = unreplaced(body, variable) {
        let home = variable("HOME").filter(|_| name == "HOME");
        let value = match home {
            Some(home) => text.replace("${HOME}", &home).replace("$HOME", &home),
            None => "its value".into(),
        };
        format!(
            "nothing puts the value of the variable {name} in place of its name: write {value}, or [$] for a $ if something is called so"
        )
    } else if leads_out(pattern) {
        let whole = match given {
            PatternSource::Typed => paths::absolute(OsStr::from_bytes(body.as_bytes())).ok(),
            PatternSource::InFile => None,
        };
        let whole = whole.map_or("the whole path".into(), |path| paths::shown(&path));
        let anywhere = match body.rsplit("..").next().map(|rest| rest.trim_matches('/')) {
            Some(rest) if !rest.is_empty() => {
                format!(", or {keeps}{rest} for what is called so at any depth")
            }
            _ => String::new(),
        };
        format!(
            "it matches nothing, since patterns know no current folder: write {keeps}{whole}{anywhere}"
        )
    } else if given == PatternSource::InFile && is_quoted(body) {
        "quotes count as part of the name in a file of patterns: leave them out".into()
    } else {
        return None;
    };
    Some(format!("the pattern {shown}: {}", out::safe(&what)))
}

/// Returns the variable that a shell would have replaced: one that is a component of its own and is set, or that looks
/// like a variable with something behind it; or a `${NAME}` anywhere. `$RECYCLE.BIN` and `Outer$Inner.class` are names.
fn unreplaced<'a>(body: &'a str, variable: &dyn Fn(&str) -> Option<String>) -> Option<&'a str> {
    let mut rest = body;
    while let Some(at) = rest.find('$') {
        let is_escaped = rest[..at].ends_with(['\\', '[']);
        let is_first = at == 0 || rest[..at].ends_with('/');
        rest = &rest[at + 1..];
        if is_escaped {
            continue;
        }
        if let Some(braced) = rest.strip_prefix('{') {
            let end = braced.find('}').unwrap_or(0);
            if is_name(&braced[..end]) {
                return Some(&braced[..end]);
            }
            continue;
        }
        let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
        let is_loud = !name.bytes().any(|b| b.is_ascii_lowercase());
        let seems_set = variable(name).is_some() || is_loud && !below.is_empty();
        if is_first && is_name(name) && seems_set {
            return Some(name);
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !text.is_empty() && text.bytes().all(is_part) && !text.as_bytes()[0].is_ascii_digit()
}

/// Whether quotes stand around something that is more than a name.
fn is_quoted(body: &str) -> bool {
    ['"', '\''].into_iter().any(|quote| {
        let inner = body.strip_prefix(quote);
        let inner = inner.and_then(|inner| inner.strip_suffix(quote));
        inner.is_some_and(|inner| inner.contains(['*', '?', '[', '/']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pattern: &str, given: PatternSource) -> Option<String> {
        let variable = |name: &str| (name == "HOME" || name == "user").then(|| "/h/ann".into());
        doubt_where(pattern.as_bytes(), given, &variable)
    }

    #[test]
    fn what_a_shell_would_have_put_in_is_told_with_what_to_write() {
        for (pattern, part) in [
            ("~/x/*.o", "write /h/ann/x/*.o, or ./~/x/*.o"),
            ("!~/x", "write !/h/ann/x, or !./~/x"),
            ("$HOME/x", "write /h/ann/x, or [$]"),
            ("!${HOME}/x", "write !/h/ann/x, or"),
            ("$HOME", "write /h/ann, or"),
            ("/home/$user/x", "variable user"),
            ("$XDG_CACHE_HOME/x", "variable XDG_CACHE_HOME"),
            ("/a/x${VAR}y", "variable VAR"),
            ("../x", "write the whole path, or x for"),
            ("a/../../x/y", "or x/y for"),
            ("!../x", "or !x for"),
            ("..", "write the whole path"),
            ("\"*.tmp\"", "quotes"),
            ("'/a/b c'", "quotes"),
        ] {
            let text = said(pattern, PatternSource::InFile).unwrap_or_else(|| panic!("{pattern}"));
            assert!(text.contains(part), "{pattern}: {text}");
            assert!(
                text.starts_with(&format!("the pattern {pattern}: ")),
                "{text}"
            );
        }
        let typed = said("/../x", PatternSource::Typed).expect("told");
        assert!(typed.contains("write /x, or"), "{typed}");
    }

    #[test]
    fn names_with_such_characters_are_let_pass() {
        for pattern in [
            "~",
            "~*",
            "*~",
            ".~lock*",
            "~$*.docx",
            "~tmp/x",
            "a/~/x",
            "./~/x",
            "[~]/x",
            "\\~/x",
            "$RECYCLE.BIN",
            "$Recycle.Bin/",
            "$AVG/",
            "$Extend/x",
            "$WINDOWS.~BT/x",
            "*$py.class",
            "Outer$Inner.class",
            "[$]HOME/x",
            "\\$HOME/x",
            "[$]{VAR}",
            "${project.build}",
            "${}",
            "${",
            "$",
            "$/x",
            "a$HOME/x",
            "./x",
            "x",
            "a/../x",
            "/a/b/../c",
            "...",
            "..x",
            "x/..y",
            "\"Heroes\"",
            "a\"",
            "\"",
            "!x",
        ] {
            assert_eq!(said(pattern, PatternSource::InFile), None, "{pattern}");
        }
    }
}
