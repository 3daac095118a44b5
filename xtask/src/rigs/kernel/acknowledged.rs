//! Files that the guest has told of: each must be there after a power cut as it was synced last, or as it was meant to
//! become next.

use std::collections::BTreeMap;

/// Mark of a file that was removed, in the place of its digest.
const REMOVED: &str = "-";
/// Length of a SHA-256 in hexadecimal digits.
const DIGEST_CHARS: usize = 64;

/// Files by name.
#[derive(Default)]
pub struct Acknowledged {
    files: BTreeMap<String, FileDigest>,
    /// Number of the files that were synced, counted anew by [`begin`](Self::begin).
    pub synced: usize,
}

/// A file's content as a digest, or [`REMOVED`].
#[derive(Default)]
struct FileDigest {
    synced: Option<String>,
    /// The next content, which may have reached the disk before it was synced.
    intended: Option<String>,
}

impl Acknowledged {
    /// Counts synced files anew.
    pub fn begin(&mut self) {
        self.synced = 0;
    }

    /// Takes a word of the guest: `SYNCED` or `INTENDED`, with a name and a digest. A line that the power cut has
    /// shortened says nothing.
    pub fn hear(&mut self, word: &str, rest: &str) {
        let Some((name, digest)) = rest.trim_end().split_once(' ') else {
            return;
        };
        if digest != REMOVED && digest.len() != DIGEST_CHARS {
            return;
        }
        let file = self.files.entry(name.to_owned()).or_default();
        match word {
            "SYNCED" => {
                file.synced = Some(digest.to_owned());
                file.intended = None;
                self.synced += 1;
            }
            "INTENDED" => file.intended = Some(digest.to_owned()),
            _ => {}
        }
    }

    /// Compares with the digests that were found, as `sha256sum` prints them. What was found counts as synced from then
    /// on.
    ///
    /// # Errors
    /// Names the files that were lost, with what they should be.
    pub fn compare(&mut self, found: &str) -> Result<(), String> {
        let found: BTreeMap<&str, &str> = found
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(digest, name)| (name.trim_start_matches("./"), digest))
            .collect();
        let mut lost = Vec::new();
        for (name, file) in &self.files {
            let is = found.get(name.as_str()).copied().unwrap_or(REMOVED);
            let is_allowed = |digest: &Option<String>| digest.as_deref() == Some(is);
            let is_unknown = file.synced.is_none();
            if !is_unknown && !is_allowed(&file.synced) && !is_allowed(&file.intended) {
                let synced = file.synced.as_deref().unwrap_or_default();
                lost.push(format!("{name} is {is}, and was synced as {synced}"));
            }
        }
        self.files = found
            .into_iter()
            .map(|(name, digest)| {
                let synced = Some(digest.to_owned());
                let intended = None;
                (name.to_owned(), FileDigest { synced, intended })
            })
            .collect();
        if lost.is_empty() {
            Ok(())
        } else {
            Err(lost.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest that ends with `last`.
    fn digest(last: u8) -> String {
        format!("{last:064}")
    }

    fn found(files: &[(&str, u8)]) -> String {
        let line = |(name, last): &(&str, u8)| format!("{}  ./{name}\n", digest(*last));
        files.iter().map(line).collect()
    }

    fn heard(words: &[(&str, &str, u8)]) -> Acknowledged {
        let mut files = Acknowledged::default();
        for (word, name, last) in words {
            files.hear(word, &format!("{name} {}", digest(*last)));
        }
        files
    }

    #[test]
    fn a_synced_file_must_be_there_as_it_was_or_was_meant_to_become() {
        let words = [("SYNCED", "a", 1), ("SYNCED", "b", 2), ("INTENDED", "b", 3)];
        for (files, is_well) in [
            (&[("a", 1), ("b", 2)][..], true),
            (&[("a", 1), ("b", 3), ("other", 9)], true),
            (&[("a", 1), ("b", 1)], false),
            (&[("a", 3), ("b", 2)], false),
            (&[("b", 2)], false),
        ] {
            let compared = heard(&words).compare(&found(files));
            assert_eq!(compared.is_ok(), is_well, "{files:?} {compared:?}");
        }
    }

    #[test]
    fn a_file_that_was_removed_stays_away() {
        let mut files = heard(&[("SYNCED", "a", 1)]);
        files.hear("INTENDED", "a -");
        assert!(files.compare(&found(&[])).is_ok());
        let mut files = heard(&[("SYNCED", "a", 1)]);
        files.hear("SYNCED", "a -");
        assert!(files.compare(&found(&[("a", 1)])).is_err());
    }

    #[test]
    fn a_line_that_was_cut_short_says_nothing_and_a_new_file_may_be_anything() {
        let mut files = Acknowledged::default();
        files.hear("SYNCED", "a 0123");
        files.hear("SYNCED", "b");
        files.hear("INTENDED", &format!("c {}", digest(4)));
        assert_eq!(files.synced, 0);
        assert!(files.compare(&found(&[("a", 1)])).is_ok());
        // The answer found there is known now.
        assert!(files.compare(&found(&[("a", 2)])).is_err());
    }
}
