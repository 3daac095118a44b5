//! Words of users on the command line, and a text in a depot's folder. The program is no library, so its files that read such words are modules here as
//! well: they need nothing else of it.

#[path = "../../../crates/onefold/src/verbs/volume/hints_file.rs"]
mod hints_file;
#[path = "../../../crates/onefold/src/human.rs"]
#[allow(dead_code)]
mod human;
#[path = "../../../crates/onefold/src/spec.rs"]
mod spec;
#[path = "../../../crates/onefold/src/when.rs"]
#[allow(dead_code)]
mod when;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use onefold_volume::hints::HintKind;

use self::hints_file::HintsFile;
use super::Target;

/// The golden file.
const HINTS: &[u8] = include_bytes!("../../../crates/onefold/testdata/depot-hints-1");

pub fn targets() -> Vec<Target> {
    vec![
        Target::new(
            "onefold/time",
            words(&[
                "2026-02-03 04:05:06",
                "03.02.2026 04:05",
                "2026-02-03T04:05:06.000000007+01:00",
                "2026-02-03 05:05:06 +0100",
            ]),
            |bytes| {
                if let Ok(time) = when::parse(&text(bytes)) {
                    let shown = when::rfc3339(time);
                    assert_eq!(when::parse(&shown), Ok(time), "{shown} is another time");
                    when::local(time);
                }
            },
        ),
        Target::new(
            "onefold/size",
            words(&["1.5 GiB", "65536", "64k", "2.5%", "1h30m5s"]),
            |bytes| {
                let text = text(bytes);
                if let Ok(size) = human::parse_bytes(&text) {
                    human::bytes(size);
                }
                if let Ok(share) = human::parse_percent(&text) {
                    assert!((0.0..=1.0).contains(&share), "{share} of one");
                }
                if let Ok(duration) = human::parse_duration(&text) {
                    human::duration(duration);
                }
            },
        ),
        Target::new(
            "onefold/spec",
            words(&["latest:/a/../b:c/", "0abc", "a, b,,c"]),
            |bytes| {
                if let Ok(spec) = spec::Spec::read(OsStr::from_bytes(bytes)) {
                    let is_clean = spec.path.is_empty() || spec.path.starts_with(b"/");
                    assert!(is_clean, "{:?} of {:?}", spec.path, spec.words);
                    assert!(spec.snapshot.is_ascii(), "{:?}", spec.snapshot);
                }
                let tags = spec::tag_list(&text(bytes));
                assert!(!tags.iter().any(|tag| tag.contains(',')), "{tags:?}");
            },
        ),
        Target::new("onefold/hints", vec![HINTS.to_vec()], |bytes| {
            let mut all = HintsFile::decode(bytes);
            assert_eq!(HintsFile::decode(&all.encode()), all, "written otherwise");
            let before = all.of_volume("main");
            all.set("vm", &HintKind::ALL);
            assert_eq!(all.of_volume("main"), before, "hints of another volume");
            assert!(all.set("vm", &[]), "the volume had hints");
        }),
    ]
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
