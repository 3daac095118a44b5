//! Repositories whose chunker goes by types of files.

use crate::rig::Rig;

/// A repository with the chunker "context", and 1.5 MB of one line again and again, as a text and as what calls itself
/// encrypted.
fn rig() -> Rig {
    let rig = Rig::empty();
    rig.run(["init", "--encryption", "none", "--chunker", "context"])
        .ends(0);
    rig.write("s/text.age", "all is well\n".repeat(125_000).as_bytes());
    rig
}

fn added(rig: &Rig, rules: &[&str]) -> (u64, u64) {
    let args = ["backup", "s", "--force", "--json"];
    let ran = rig.run(args.iter().chain(rules)).ends(0).last();
    let number = |name: &str| ran[name].as_u64().expect("a number");
    (number("data_blobs"), number("data_added_packed"))
}

#[test]
fn types_are_cut_and_packed_as_the_table_says() {
    let rig = rig();
    let (chunks, packed) = added(&rig, &[]);
    // A mebibyte, the rest, nothing compressed.
    assert_eq!(chunks, 2);
    assert!(packed > 1_400_000, "{packed} bytes");
    rig.write("s/text.txt", &vec![b'a'; 1 << 20]);
    let (_, packed) = added(&rig, &[]);
    assert!(packed < 20_000, "{packed} bytes");
    rig.run(["check", "--read-data"]).ends(0);
    let restored = rig.restored("latest", "s");
    assert_eq!(restored.len(), 2);
}

#[test]
fn rules_come_above_the_table() {
    let rig = rig();
    rig.write("rules", b"fixed compress age # they only call it so\n");
    let (chunks, packed) = added(&rig, &["--chunk-rules", "rules"]);
    // Pieces of a fixed size repeat after three times that.
    assert!(chunks <= 4, "{chunks} chunks");
    assert!(packed < 20_000, "{packed} bytes");
    rig.write("wrong", b"\nfixed x\n");
    let ran = rig.run(["backup", "s", "--chunk-rules", "wrong"]).ends(2);
    assert!(ran.err.contains("wrong: line 2: \"x\""), "{}", ran.err);
    rig.run(["backup", "s", "--chunk-rules", "none"]).ends(1);
    let other = Rig::open();
    other.write("rules", b"");
    other.write("s/f", b"x");
    let ran = other.run(["backup", "s", "--chunk-rules", "rules"]);
    assert!(
        ran.err.contains("this repository's is \"sieve-adaptive\""),
        "{}",
        ran.err
    );
    assert_ne!(ran.code, Some(0));
}
