//! `onefold estimate`: figures, little memory, files, hosts.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use crate::everything;
use crate::rig::{Ran, Random, Rig};
use serde_json::Value;

/// Two files that are the same, one that is not, and one folder deep.
fn rig() -> Rig {
    let rig = Rig::empty();
    let mut random = Random(7);
    let (same, other) = (random.bytes(300_000), random.bytes(200_000));
    fs::create_dir_all(rig.path("src/deep")).expect("a folder");
    fs::write(rig.path("src/a"), &same).expect("write");
    fs::write(rig.path("src/deep/b"), &same).expect("write");
    fs::write(rig.path("src/c"), other).expect("write");
    fs::write(rig.path("src/empty"), b"").expect("write");
    rig
}

fn ratios(summary: &Value) -> Vec<f64> {
    let all = summary["estimates"].as_array().expect("estimates").iter();
    all.map(|one| one["ratio"].as_f64().expect("a number"))
        .collect()
}

#[test]
fn every_choice_is_counted_in_one_read_without_a_repository() {
    let rig = rig();
    let ran = rig.run([
        "estimate",
        "src",
        "--chunkers",
        "sieve,fastcdc,fbc",
        "--sizes",
        "4k,8k",
        "--json",
    ]);
    let summary = ran.ends(0).last();
    assert_eq!(summary["files"], 4);
    let ratios = ratios(&summary);
    assert_eq!(ratios.len(), 6);
    // 800 000 bytes, 500 000 of them different; fbc depends on what came before.
    assert!(
        ratios[..4].iter().all(|ratio| (ratio - 1.6).abs() < 1e-9),
        "{ratios:?}"
    );
    let first = &summary["estimates"][0];
    assert_eq!(first["bytes"], 800_000);
    assert_eq!(first["exact"], true);
    assert!(first["ratio_meta"].as_f64() < first["ratio"].as_f64());
}

/// Text-like and random files, small and large ones: they are cut in different ways.
#[test]
fn without_chunkers_it_counts_what_a_new_repository_would_store() {
    let rig = Rig::open();
    let mut random = Random(3);
    rig.write("src/small", &random.bytes(70_000));
    rig.write("src/random", &random.bytes(9_000_000));
    let lines = (0..200_000).map(|n| format!("line {} of {n}\n", n * 7919 % 1013));
    rig.write("src/text", lines.collect::<String>().as_bytes());
    let stored = rig.run(["backup", "src", "--json"]).ends(0).last();
    let config = rig.run(["cat", "config", "--json"]).ends(0).last();
    let counted = rig.run(["estimate", "src", "--json"]).ends(0).last();
    let all = counted["estimates"].as_array().expect("estimates");
    let ours = all.iter().find(|one| {
        (&one["chunker"], &one["size"]) == (&config["chunker"], &config["chunk_bytes_mean"])
    });
    let ours = ours.unwrap_or_else(|| panic!("{counted} of {config}"));
    assert_eq!(
        ours["unique_chunks"], stored["data_blobs"],
        "{ours} of {stored}"
    );
}

#[test]
fn a_table_a_csv_and_a_picture() {
    let rig = rig();
    let ran = rig.run([
        "estimate",
        "src",
        "--csv",
        "out.csv",
        "--plot",
        "out.svg",
        "--chunkers",
        "sieve",
        "--sizes",
        "8k,16k",
    ]);
    let ran = ran.ends(0);
    assert!(ran.out.contains("1.600"), "{}", ran.out);
    let csv = fs::read_to_string(rig.path("out.csv")).expect("the CSV");
    assert_eq!(csv.lines().count(), 3);
    assert!(
        csv.lines()
            .nth(1)
            .expect("a line")
            .starts_with("sieve,8192,800000,")
    );
    let svg = fs::read_to_string(rig.path("out.svg")).expect("the picture");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    rig.run(["estimate", "src", "--plot", "out.html"]).ends(0);
    let page = fs::read_to_string(rig.path("out.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("<table>"));
}

#[test]
fn hosts_are_counted_together() {
    let rig = rig();
    rig.run(["estimate", "src/a", "src/c", "--save", "one"])
        .ends(0);
    rig.run(["estimate", "src/deep", "--save", "two"]).ends(0);
    let merged = rig
        .run(["estimate", "--merge", "one", "two", "--json"])
        .ends(0)
        .last();
    let whole = rig.run(["estimate", "src", "--json"]).ends(0).last();
    assert_eq!(merged["estimates"], whole["estimates"]);
    // How many files the hosts read is not kept.
    assert!(merged["files"].is_null(), "{merged}");
    let words = rig.run(["estimate", "--merge", "one", "two"]).ends(0).out;
    assert!(!words.contains(" in "), "{words}");
    let piped = rig
        .command(["estimate", "--merge", "two", "-", "--json"])
        .stdin(fs::File::open(rig.path("one")).expect("open"))
        .output();
    let piped = Ran::from(piped.expect("runs")).ends(0).last();
    assert_eq!(piped["estimates"], whole["estimates"]);
    rig.run(["estimate", "--stdin", "--merge", "-"]).ends(2);
    fs::write(rig.path("two"), b"something else").expect("write");
    // No repository is damaged by that.
    let ran = rig.run(["estimate", "--merge", "one", "two"]).ends(1);
    assert!(ran.err.contains("two holds no estimate"), "{}", ran.err);
    assert!(!ran.err.contains("repair"), "{}", ran.err);
}

#[test]
fn little_ram_makes_a_sketch_with_an_error_bar() {
    let rig = rig();
    let more = Random(8).bytes(6_000_000);
    fs::write(rig.path("src/more"), &more).expect("write");
    fs::write(rig.path("src/again"), &more).expect("write");
    // The default chunker would make long chunks of this random-looking data, so few that all fit into the RAM.
    let chunker = ["--chunkers", "sieve"];
    let args = [
        &["estimate", "src", "--sizes", "512", "--ram", "8k"],
        &chunker[..],
    ]
    .concat();
    let small = rig.run([&args[..], &["--json"]].concat());
    let one = &small.ends(0).last()["estimates"][0];
    assert_eq!(one["exact"], false);
    let number = |name: &str| one[name].as_f64().expect("a number");
    let bar = number("ratio_error");
    assert!(
        bar > 0.0 && (number("ratio") - 12.8 / 6.5).abs() < 1.5 * bar,
        "{one}"
    );
    let table = rig.run(&args).ends(0);
    let shown = table.out.contains('±') && table.out.contains("by sketch");
    assert!(shown, "{}", table.out);
}

#[test]
fn what_makes_no_sense_is_2() {
    let rig = rig();
    for args in [
        &["estimate"][..],
        &["estimate", "src", "--chunkers", "cheese"],
        &["estimate", "src", "--stdin"],
        &["estimate", "src", "--sizes", "100"],
        &["estimate", "src", "--sample", "64"],
        &["estimate", "src", "--csv", "-", "--plot", "-"],
        &["estimate", "src", "--csv", "-", "--json"],
    ] {
        rig.run(args).ends(2);
    }
    rig.run(["estimate", "nowhere"]).ends(1);
    // Before the data is read, which may take hours.
    let ran = rig.run(["estimate", "src", "--csv", "no/folder"]).ends(1);
    assert!(ran.out.is_empty(), "{}", ran.out);
}

#[test]
fn a_file_named_by_a_dash_is_standard_output_and_holds_nothing_else() {
    let rig = rig();
    for (flag, name) in [("--csv", "a.csv"), ("--plot", "a.svg")] {
        let ran = rig.run(["estimate", "src", flag, "-"]).ends(0);
        rig.run(["estimate", "src", flag, name]).ends(0);
        let file = fs::read_to_string(rig.path(name)).expect("the file");
        assert_eq!(ran.out, file, "{flag}");
    }
    let output = rig.command(["estimate", "src", "--parquet", "-"]).output();
    let bytes = output.expect("runs").stdout;
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert!(!rig.path("-").exists());
}

#[test]
fn any_chunker_of_the_list_can_be_asked() {
    let rig = rig();
    for name in onefold_chunk::names() {
        let args = [
            "estimate",
            "src",
            "--chunkers",
            name,
            "--sizes",
            "8k,16k",
            "--json",
        ];
        let summary = rig.run(args).ends(0).last();
        let ratios = ratios(&summary);
        assert_eq!(
            ratios.len(),
            if *name == "whole-file" { 1 } else { 2 },
            "{name}"
        );
        assert!(
            ratios.iter().all(|ratio| *ratio > 1.5),
            "{name}: {ratios:?}"
        );
    }
}

#[test]
fn what_a_backup_would_leave_out_is_left_out() {
    let rig = rig();
    rig.write("src/.skip", b"c\n");
    fs::write(
        rig.path("src/deep/CACHEDIR.TAG"),
        b"Signature: 8a477f597d28d172789f06886806bc55",
    )
    .expect("write");
    for (args, bytes) in [
        (&["--exclude", "c", "--exclude", ".skip"][..], 600_043),
        (&["--exclude-caches", "--exclude", ".skip"], 500_043),
        (&["--ignore-file", ".skip", "--iexclude", "DEEP"], 300_002),
        (&["--exclude-larger-than", "250000"], 200_045),
    ] {
        let ran = rig.run([&["estimate", "src", "--json"], args].concat());
        assert_eq!(
            ran.ends(0).last()["estimates"][0]["bytes"],
            bytes,
            "{args:?}"
        );
    }
}

#[test]
fn standard_input_is_one_file_and_parquet_holds_the_figures() {
    use std::io::Write;
    let rig = rig();
    let mut command = rig.command(["estimate", "--stdin", "--parquet", "out.parquet", "--json"]);
    let piped = std::process::Stdio::piped;
    let mut child = command
        .stdin(piped())
        .stdout(piped())
        .spawn()
        .expect("start");
    let mut bytes = fs::read(rig.path("src/a")).expect("read");
    bytes.extend_from_within(..);
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&bytes)
        .expect("write");
    let done = child.wait_with_output().expect("its end");
    assert!(done.status.success());
    let text = String::from_utf8(done.stdout).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&last["files"], &last["estimates"][0]["bytes"]),
        (&1.into(), &600_000.into())
    );
    let parquet = fs::read(rig.path("out.parquet")).expect("the file");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn holes_are_neither_read_nor_counted() {
    let rig = Rig::empty();
    rig.write("src/disk", &Random(1).bytes(100_000));
    let file = fs::File::options()
        .write(true)
        .open(rig.path("src/disk"))
        .expect("open");
    file.set_len(4 << 30).expect("a hole");
    let end = Random(2).bytes(50_000);
    file.write_all_at(&end, 3 << 30).expect("data behind it");
    fs::File::create(rig.path("src/hole"))
        .and_then(|file| file.set_len(1 << 30))
        .expect("nothing but a hole");
    let args = ["estimate", "src", "--chunkers", "sieve,whole-file"];
    let summary = rig.run([&args[..], &["--json"]].concat()).ends(0).last();
    assert_eq!(summary["files"], 2);
    for estimate in summary["estimates"].as_array().expect("estimates") {
        let bytes = estimate["bytes"].as_u64().expect("a number");
        // Whole blocks of the file system.
        assert!((150_000..300_000).contains(&bytes), "{estimate}");
        assert_eq!(estimate["ratio"], 1.0);
    }
}

#[test]
fn files_are_read_wherever_they_lie_and_keep_their_times_of_access() {
    let rig = Rig::empty();
    fs::create_dir(rig.path("src")).expect("a folder");
    everything::deep(&rig.path("src/deep"));
    rig.write("src/file", b"some bytes");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let times = fs::FileTimes::new().set_accessed(old);
    let file = fs::File::options().write(true).open(rig.path("src/file"));
    file.and_then(|file| file.set_times(times)).expect("times");
    let summary = rig.run(["estimate", "src", "--json"]).ends(0).last();
    assert_eq!(
        (&summary["files"], &summary["error_count"]),
        (&2.into(), &0.into())
    );
    assert_eq!(summary["estimates"][0]["bytes"], 18);
    let about = fs::metadata(rig.path("src/file")).expect("metadata");
    assert_eq!(about.accessed().expect("a time"), old);
}

#[test]
fn a_file_with_several_names_is_counted_once() {
    let rig = Rig::empty();
    rig.write("src/a", &Random(7).bytes(300_000));
    for name in ["src/b", "src/c"] {
        fs::hard_link(rig.path("src/a"), rig.path(name)).expect("a link");
    }
    let summary = rig.run(["estimate", "src", "--json"]).ends(0).last();
    let first = &summary["estimates"][0];
    assert_eq!(first["bytes"], 300_000, "{summary}");
    assert_eq!(first["ratio"], 1.0, "{summary}");
    assert_eq!(summary["files"], 3);
}
