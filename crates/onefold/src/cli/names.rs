//! Values that are one of a set of names: chunkers, indexes, encryptions. Each has a line of help, which `init --help`
//! and completions show.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use onefold_chunk::knobs::{Knob, Knobs, split};

const CHUNKERS: [(&str, &str); 15] = [
    (
        "sieve-adaptive",
        "sieve, with long chunks where large files look random (the default)",
    ),
    (
        "sieve",
        "By content, short chunks everywhere: for encrypted disks that change",
    ),
    (
        "sieve-threshold",
        "As sieve, often faster, with a wider spread of lengths",
    ),
    (
        "fixed",
        "All of one length; what is inserted makes all behind it new",
    ),
    (
        "whole-file",
        "A chunk for each file: finds copies of whole files only",
    ),
    (
        "context",
        "By type of file, as --chunk-rules of a backup says (PRUNE, 2010)",
    ),
    ("fastcdc", "Xia et al., 2020: gear, with more even lengths"),
    ("gear", "Ddelta, 2014: a rolling hash of few instructions"),
    ("rabin", "LBFS, 2001: Rabin's fingerprints; slow"),
    ("inc-k", "PRUNE, 2010: another rolling hash; slow"),
    ("tttd", "Eshghi and Tang, 2005: two thresholds; slow"),
    (
        "ae",
        "Zhang et al., 2015: by maxima; a change costs more chunks",
    ),
    (
        "ram",
        "Widodo et al., 2017: by maxima, the fastest; finds less",
    ),
    (
        "seqcdc",
        "Udayashankar et al., 2024: by runs that rise; far off the mean on text",
    ),
    (
        "fbc",
        "Lu, 2012: by how often pieces come again; the slowest",
    ),
];

const INDEXES: [(&str, &str); 9] = [
    (
        "strata",
        "Bounded RAM, several programs at once (the default)",
    ),
    (
        "chunkstash",
        "Debnath et al., 2010: all keys in RAM, 9 bytes each; fast",
    ),
    (
        "bloomstore",
        "Lu, 2012: Bloom filters on flash; 1 to 2 bytes of RAM a key",
    ),
    (
        "skimpystash",
        "Debnath et al., 2011: chains on flash; 1 to 2 bytes of RAM a key",
    ),
    (
        "bufferhash",
        "Anand et al., 2010: tables of hashes; 10 bytes of RAM a key",
    ),
    (
        "btree",
        "Zhu et al., 2008: a B-tree with a filter; slow to fill",
    ),
    ("tablets", "PRUNE, 2010: tables by time, for hard disks"),
    (
        "sparse",
        "Lillibridge et al., 2009: of some keys; stores some duplicates again",
    ),
    (
        "ram",
        "Nothing on disk: told of all containers at each start",
    ),
];

const ENCRYPTIONS: [(&str, &str); 2] = [
    (
        "aes256gcm",
        "AES-256-GCM, keyed BLAKE3, Argon2id (the default)",
    ),
    ("none", "For disks that are encrypted already"),
];

const BACKENDS: [(&str, &str); 5] = [
    (
        "log",
        "One log with a journal of its own: survives any crash, a flush is one sync (the default)",
    ),
    (
        "inram",
        "Dmdedup report, 2015: in RAM; a crash loses what was written since the last save or detach",
    ),
    (
        "inram-saved",
        "As inram, saved at each flush, which takes time",
    ),
    (
        "dtb",
        "Dmdedup report, 2015: a hash table on disk behind a cache; after a crash all is lost",
    ),
    (
        "cbt",
        "Dmdedup report, 2015: copy-on-write B-trees in transactions; survives any crash",
    ),
];

const PACKINGS: [(&str, &str); 3] = [
    (
        "auto",
        "As lz4, and where the last 64 chunks of a volume did not shrink only one in eight is tried",
    ),
    ("lz4", "Each new chunk is tried"),
    ("none", "Chunks are stored as they are"),
];

/// Parser of `--packing` of block devices.
pub fn packings() -> PossibleValuesParser {
    parser(&PACKINGS)
}

/// Parser of `--backend` of block devices.
pub fn backends() -> WithKnobs {
    WithKnobs {
        names: parser(&BACKENDS),
        knobs_of: onefold_volume::depot::backends::knobs_of,
    }
}

/// Returns a line of help for each parameter of a backend of block devices, with its default.
pub fn backend_knobs_help() -> String {
    let mut help = String::from("Parameters of backends, as NAME:key=value,…\n");
    for (name, _) in BACKENDS {
        add_knobs(
            &mut help,
            name,
            onefold_volume::depot::backends::knobs_of(name),
        );
    }
    help
}

/// Parser of `--chunker`.
pub fn chunkers() -> WithKnobs {
    WithKnobs {
        names: parser(&CHUNKERS),
        knobs_of: onefold_chunk::knobs_of,
    }
}

/// Parser of `--index`.
pub fn indexes() -> WithKnobs {
    WithKnobs {
        names: parser(&INDEXES),
        knobs_of: knobs_of_index,
    }
}

fn knobs_of_index(name: &str) -> &'static [Knob] {
    let kind = onefold_papers::KINDS.iter().find(|kind| kind.name == name);
    kind.map_or(&[], |kind| kind.knobs)
}

/// Returns a line of help for each parameter of a chunker and of an index, with the paper's default.
pub fn knobs_help() -> String {
    let mut help = String::from(
        "Parameters of chunkers and indexes, as NAME:key=value,… Shown are the papers' own values:\n",
    );
    let chunkers = CHUNKERS.map(|(name, _)| (name, onefold_chunk::knobs_of(name)));
    let indexes = INDEXES.map(|(name, _)| (name, knobs_of_index(name)));
    for (name, knobs) in chunkers.into_iter().chain(indexes) {
        add_knobs(&mut help, name, knobs);
    }
    help
}

fn add_knobs(help: &mut String, name: &str, knobs: &[Knob]) {
    for knob in knobs {
        let shown = format!("{name}:{}={}", knob.key, knob.default);
        *help += &format!("  {shown}\n          {}; {}\n", knob.about, knob.values);
    }
}

/// Parser of one of some names, or of `NAME:key=value,…` with parameters that the name has.
#[derive(Clone)]
pub struct WithKnobs {
    names: PossibleValuesParser,
    knobs_of: fn(&str) -> &'static [Knob],
}

impl TypedValueParser for WithKnobs {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let text = value.to_string_lossy();
        let (name, knobs) = split(&text);
        self.names.parse_ref(command, arg, OsStr::new(name))?;
        if text.ends_with(':') {
            let what = format!(
                "{text}: nothing stands behind the colon: write {name}, or {name}:key=value\n"
            );
            return Err(clap::Error::raw(ErrorKind::ValueValidation, what).with_cmd(command));
        }
        let parsed = Knobs::parse(name, knobs, (self.knobs_of)(name));
        parsed.map_err(|error| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).with_cmd(command)
        })?;
        Ok(text.into_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.names.possible_values()
    }
}

/// Parser of `--encryption`.
pub fn encryptions() -> PossibleValuesParser {
    parser(&ENCRYPTIONS)
}

fn parser(names: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    let values = names.iter();
    PossibleValuesParser::new(values.map(|(name, help)| PossibleValue::new(*name).help(*help)))
}

#[cfg(test)]
mod tests {
    use onefold_papers::KINDS;
    use onefold_store::Encryption;

    use super::*;

    fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_names_are_those_that_the_engine_knows() {
        let shown = |names: &[(&'static str, &'static str)]| sorted(names.iter().map(|one| one.0));
        assert_eq!(
            shown(&CHUNKERS),
            sorted(onefold_chunk::names().iter().copied())
        );
        let indexes = KINDS.iter().map(|kind| kind.name);
        assert_eq!(shown(&INDEXES), sorted(indexes.chain(["ram"])));
        for (name, _) in BACKENDS {
            let kind = onefold_volume::depot::config::EngineKind::by_name(name);
            assert_eq!(kind.expect("one").name(), name);
        }
        for (name, _) in PACKINGS {
            let compression = onefold_volume::Compression::by_name(name);
            assert_eq!(compression.expect("one").name(), name);
        }
        for (name, _) in ENCRYPTIONS {
            assert_eq!(Encryption::by_name(name).expect("one").name(), name);
        }
    }

    #[test]
    fn the_defaults_are_said_to_be_those() {
        let defaults = onefold_store::InitOptions::new(String::new(), 0);
        let is_first = |names: &[(&str, &str)], name: &str| {
            names[0].0 == name && names[0].1.ends_with("(the default)")
        };
        assert!(is_first(&CHUNKERS, &defaults.chunker));
        assert!(is_first(&INDEXES, &defaults.index));
        assert!(is_first(&ENCRYPTIONS, defaults.encryption.name()));
    }
}
