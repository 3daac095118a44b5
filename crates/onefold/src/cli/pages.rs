//! Tests that each command line of the program in the pages' shell examples parses, so that what a reader copies runs.

use clap::CommandFactory;

use super::Cli;

macro_rules! page {
    ($name:literal) => {
        (
            concat!("docs/", $name, ".md"),
            include_str!(concat!("../../../../docs/", $name, ".md")),
        )
    };
}

/// Pages with shell examples, by name and content.
const PAGES: [(&str, &str); 11] = [
    ("README.md", include_str!("../../../../README.md")),
    page!("backup"),
    page!("copies"),
    page!("estimate"),
    page!("mount"),
    page!("object-storage"),
    page!("repository"),
    page!("restic"),
    page!("restore"),
    page!("schedule"),
    page!("volume"),
];

/// Words after which a command begins.
const BEFORE_A_COMMAND: [&str; 8] = ["", "|", "&&", "||", ";", "do", "sudo", "("];

#[test]
fn examples_of_the_pages_parse() {
    let mut seen = 0;
    for (name, text) in PAGES {
        for line in shell_lines(text) {
            for words in commands(&line) {
                seen += 1;
                let parsed = Cli::command().try_get_matches_from(&words);
                if let Err(error) = parsed {
                    panic!("{name}: {line}\n{words:?}\n{error}");
                }
            }
        }
    }
    assert!(seen >= 40, "only {seen} examples were found");
}

#[test]
fn commands_are_found_in_shell_lines() {
    let line = "tar -c a | onefold backup -e '*.t mp' > log; x=$(onefold stats) || onefold ls \"a b\" # onefold x";
    let expected = [
        vec!["onefold", "backup", "-e", "*.t mp"],
        vec!["onefold", "stats"],
        vec!["onefold", "ls", "a b"],
    ];
    assert_eq!(commands(line), expected);
}

/// Lines of the blocks that are marked `sh`; a line that ends with a backslash, `|` or `&&` goes on in the next.
fn shell_lines(text: &str) -> Vec<String> {
    let mut is_shell = false;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match line.trim() {
            "```sh" => is_shell = true,
            "```" => is_shell = false,
            line if is_shell => match lines.last_mut().filter(|last| last.ends_with('\\')) {
                Some(last) => {
                    last.pop();
                    last.push_str(line);
                }
                None => lines.push(line.to_owned()),
            },
            _ => {}
        }
    }
    lines
}

/// The words of each call of the program in a shell line.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut before = String::new();
    let mut is_in = false;
    for word in words(line) {
        let is_end = matches!(
            word.as_str(),
            "|" | "&&" | "||" | ";" | ")" | ">" | "<" | "&"
        );
        if word == "onefold" && BEFORE_A_COMMAND.contains(&before.as_str()) {
            is_in = true;
            found.push(Vec::new());
        } else if is_end {
            is_in = false;
        }
        if let Some(words) = found.last_mut().filter(|_| is_in) {
            words.push(word.clone());
        }
        before = word;
    }
    found
}

/// Words and operators of a shell line, without quotes and comments.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '#') if word.is_empty() => break,
            (None, ' ' | '|' | '&' | ';' | '(' | ')' | '<' | '>') => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                match words.last_mut() {
                    Some(last) if c != ' ' && c != '(' && last.ends_with(c) && last.len() == 1 => {
                        last.push(c)
                    }
                    _ if c != ' ' => words.push(c.to_string()),
                    _ => {}
                }
            }
            _ => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}
