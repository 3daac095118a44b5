//! Types of files and the way each is cut.

use crate::{cuts, random};
use onefold_chunk::context::{Choice, Context, Cut, Rules, WHOLE_BYTES_MAX};
use onefold_chunk::{Chunker, StreamHints, by_name};
use proptest::prelude::*;

const fn choice(cut: Cut, is_compressible: bool) -> Choice {
    Choice {
        cut,
        is_compressible,
    }
}

const WHOLE: Choice = choice(Cut::Whole, false);
const ZIP: Choice = Choice::USUAL;
const DATABASE: Choice = choice(Cut::Fixed, true);

fn tar_head() -> Vec<u8> {
    let mut head = vec![0; 512];
    head[257..265].copy_from_slice(b"ustar\x0000");
    head
}

#[test]
fn extension_and_content_tell_the_type() {
    let rules = Rules::default();
    let (jpeg, png) = (
        &b"\xff\xd8\xff\xe0\0\x10JFIF"[..],
        &b"\x89PNG\r\n\x1a\n"[..],
    );
    let sqlite = b"SQLite format 3\0";
    for (extension, head, expected) in [
        // Extension and content agree.
        (Some(&b"jpg"[..]), jpeg, WHOLE),
        (Some(b"JPG"), jpeg, WHOLE),
        (Some(b"db"), sqlite, DATABASE),
        // There is no extension, or an unknown one.
        (None, png, WHOLE),
        (None, &tar_head(), choice(Cut::Tar, true)),
        (None, b"PK\x03\x04", ZIP),
        (Some(b"dat"), b"\x1f\x8b\x08", WHOLE),
        // The extension contradicts the content.
        (Some(b"txt"), jpeg, WHOLE),
        (Some(b"jpg"), b"dear diary", Choice::USUAL),
        (Some(b"jar"), b"#!/bin/sh", Choice::USUAL),
        // Only the extension tells the type.
        (Some(b"age"), b"age-encryption.org", WHOLE),
        (Some(b"sqfs"), b"hsqs", choice(Cut::Content, false)),
        (Some(b"mdf"), b"\x01\x0f", DATABASE),
        // Neither tells the type.
        (Some(b"rs"), b"fn main() {}", Choice::USUAL),
        (Some(b"\xff\xfe"), b"", Choice::USUAL),
        (None, b"", Choice::USUAL),
    ] {
        assert_eq!(rules.choose(extension, head), expected, "{extension:?}");
    }
}

#[test]
fn rules_come_before_all_else() {
    let rules = Rules::with(
        "# mine\nfixed as-is jpg .RS\n\ncontent compress bin\ntar compress bin # changed my mind",
    )
    .expect("well-formed");
    let jpeg = b"\xff\xd8\xff\xe0";
    assert_eq!(rules.choose(Some(b"rs"), b""), choice(Cut::Fixed, false));
    assert_eq!(rules.choose(Some(b"bin"), jpeg), choice(Cut::Tar, true));
    // A rule holds for a type that the content shows, too.
    assert_eq!(rules.choose(None, jpeg), choice(Cut::Fixed, false));
    assert_eq!(rules.choose(Some(b"zip"), b"PK\x03\x04"), ZIP);
    for (text, line) in [
        ("round as-is x", 1),
        ("\nwhole x", 2),
        ("whole as-is a\nwhole", 2),
    ] {
        assert_eq!(Rules::with(text).expect_err("wrong").line, line, "{text}");
    }
}

#[test]
fn names_give_extensions() {
    for (name, expected) in [
        (&b"a.tar.gz"[..], Some(&b"gz"[..])),
        (b".bashrc", None),
        (b"a", None),
        (b"", None),
        (b"a.", Some(b"")),
    ] {
        assert_eq!(StreamHints::of(name, b"").extension, expected);
    }
}

#[test]
fn each_stream_is_cut_as_its_type_wants() {
    let mut context = Context::new(4096, None, Default::default());
    let mut lengths = |name: &[u8], data: &[u8]| {
        context.begin(&StreamHints::of(name, data));
        let mut all = Vec::new();
        context.cuts(data, true, &mut |length| all.push(length));
        all
    };
    let data = random(1, WHOLE_BYTES_MAX + 10);
    let usual = cuts(by_name("sieve", 4096, None).expect("a name"), &data);
    assert_eq!(lengths(b"a.age", &data), [WHOLE_BYTES_MAX, 10]);
    assert_eq!(lengths(b"a.mdf", &data)[..3], [4096; 3]);
    assert_eq!(lengths(b"a.txt", &data), usual);
    assert_eq!(lengths(b"a.mp4", &data), usual);
    let key = [3; 32];
    let keyed = cuts(by_name("sieve", 4096, Some(&key)).expect("a name"), &data);
    assert_eq!(
        cuts(Context::new(4096, Some(&key), Default::default()), &data),
        keyed
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_bytes_are_refused(extension: Option<Vec<u8>>, head: Vec<u8>, text: String) {
        let _ = Rules::with(&text);
        Rules::default().choose(extension.as_deref(), &head);
    }
}
