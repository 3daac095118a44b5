//! Snapshots that `forget` keeps and drops, and its messages.

use std::fs;

use serde_json::{Value, json};

use crate::rig::{Rig, files, id_of};
use crate::wait::Opens;

/// Snapshots of these times, oldest first; an empty one is now.
fn snapshots_of(rig: &Rig, times: &[&str]) -> Vec<String> {
    rig.write("s/a", b"x");
    let back_up = |time: &&str| {
        let mut args = vec!["backup", "s", "--json"];
        if !time.is_empty() {
            args.extend(["--time", time]);
        }
        id_of(&rig.run(args).ends(0))
    };
    times.iter().map(back_up).collect()
}

/// The one series of a dry run: which ids are kept, and why.
fn judged(rig: &Rig, rules: &[&str]) -> (Vec<String>, Value) {
    let args = ["forget", "--dry-run", "--json"];
    let ran = rig.run(args.iter().chain(rules)).ends(0);
    let series = ran.last()[0].clone();
    let kept = series["keep"].as_array().expect("a list").iter();
    let kept = kept.map(|one| one["id"].as_str().expect("an id").to_owned());
    let matches = series["reasons"].as_array().expect("a list").iter();
    (
        kept.collect(),
        matches.map(|one| one["matches"].clone()).collect(),
    )
}

#[test]
fn a_snapshot_of_the_future_makes_no_other_old() {
    let rig = Rig::open();
    let ids = snapshots_of(&rig, &["2020-01-01", "2021-01-01", "", "2140-01-01"]);
    let (kept, why) = judged(&rig, &["--keep-within", "1y6m"]);
    assert_eq!(kept, [ids[3].as_str(), &ids[2]]);
    assert_eq!(why, json!([["within 1y6m"], ["within 1y6m"]]));
}

#[test]
fn the_oldest_of_a_span_is_kept() {
    let rig = Rig::open();
    let times = [
        "2026-03-01T10:00:00",
        "2026-03-01T11:00:00",
        "2026-03-01T12:00:00",
    ];
    let ids = snapshots_of(&rig, &times);
    let (kept, why) = judged(&rig, &["--keep-within-daily", "7d"]);
    assert_eq!(kept, [ids[2].as_str(), &ids[0]]);
    assert_eq!(
        why,
        json!([["daily within 7d"], ["oldest daily within 7d"]])
    );
}

#[test]
fn to_keep_none_is_no_way_to_drop_everything() {
    let rig = Rig::open();
    snapshots_of(&rig, &["2026-03-01", "2026-03-02"]);
    for rule in [
        ["--keep-last", "0"],
        ["--keep-daily", "0"],
        ["--keep-within", "0h"],
        ["--keep-within-daily", "0y0d"],
    ] {
        let args = ["forget", "--unsafe-allow-remove-all"];
        rig.run(args.into_iter().chain(rule)).ends(2);
        rig.run(["forget"].into_iter().chain(rule)).ends(2);
    }
    assert_eq!(rig.snapshots().len(), 2);
}

#[test]
fn an_empty_keep_tag_keeps_those_without_tags() {
    let rig = Rig::open();
    let plain = snapshots_of(&rig, &["2026-03-01"]);
    rig.run(["backup", "s", "--tag", "a"]).ends(0);
    let (kept, why) = judged(&rig, &["--keep-tag", ""]);
    assert_eq!(kept, plain);
    assert_eq!(why, json!([["has no tags"]]));
}

#[test]
fn what_a_look_at_the_space_meets_does_not_undo_what_was_dropped() {
    let rig = Rig::open();
    let ids = snapshots_of(
        &rig,
        &["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"],
    );
    let folder = rig.repo().join("containers");
    for container in files(&folder).keys() {
        fs::write(folder.join(container), b"").expect("ours");
    }
    let ran = rig.run(["forget", &ids[0]]).ends(0);
    assert!(ran.err.contains("is not known"), "{}", ran.err);
    let ran = rig.run(["forget", "--keep-last", "2", "--json"]).ends(0);
    assert_eq!(ran.err, "", "nobody asked for a look");
    assert_eq!(rig.snapshots(), ids[2..]);
    rig.run(["forget", &ids[2], "--dry-run"]).ends(13);
}

#[test]
fn so_many_hours_days_weeks_months_and_years_are_kept() {
    let rig = Rig::open();
    let times = [
        "2024-12-31T23:30:00",
        "2025-06-01T10:00:00",
        "2026-02-01T10:00:00",
        "2026-02-10T10:00:00",
        "2026-02-10T10:30:00",
        "2026-02-10T11:00:00",
    ];
    let ids = snapshots_of(&rig, &times);
    for (rule, count, kept_ones) in [
        ("--keep-hourly", "2", &[5, 4][..]),
        ("--keep-daily", "2", &[5, 2]),
        ("--keep-weekly", "3", &[5, 2, 1]),
        ("--keep-monthly", "2", &[5, 1]),
        ("--keep-yearly", "3", &[5, 1, 0]),
        ("--keep-last", "2", &[5, 4]),
    ] {
        let (kept, _) = judged(&rig, &[rule, count]);
        let expected: Vec<_> = kept_ones.iter().map(|at| ids[*at].clone()).collect();
        assert_eq!(kept, expected, "{rule}");
    }
}

#[test]
fn all_of_a_filter_may_be_dropped_and_are_told_by_series() {
    let rig = Rig::open();
    snapshots_of(&rig, &["2026-03-01", "2026-03-02"]);
    let args = ["forget", "--unsafe-allow-remove-all", "--path"];
    let path = rig.path("s").into_os_string();
    let args: Vec<_> = args.map(Into::into).into_iter().chain([path]).collect();
    let ran = rig.run(args.iter().chain([&"--json".into()])).ends(0);
    let told = ran.last();
    assert_eq!(told[0]["keep"], json!([]));
    assert_eq!(told[0]["remove"].as_array().map(Vec::len), Some(2));
    assert_eq!(rig.snapshots().len(), 0);
}

#[test]
fn the_newest_are_those_of_each_group() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for (time, tag) in [
        ("2026-03-01", "a"),
        ("2026-03-02", "b"),
        ("2026-03-03", "a"),
    ] {
        rig.run(["backup", "s", "--tag", tag, "--time", time])
            .ends(0);
    }
    let shown = |args: &[&str]| {
        let args = ["snapshots", "--json", "--latest", "1"].iter().chain(args);
        rig.run(args).ends(0).last()
    };
    let all = shown(&[]);
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(all[0]["tags"], json!(["a"]));
    let groups = shown(&["--group-by", "tags"]);
    let tags = [0, 1].map(|group: usize| &groups[group]["snapshots"][0]["tags"]);
    assert_eq!(tags, [&json!(["a"]), &json!(["b"])]);
    assert_eq!(groups[0]["snapshots"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_snapshot_of_the_future_is_a_parent_only_where_there_is_no_other() {
    let rig = Rig::open();
    let ids = snapshots_of(&rig, &["2140-01-01", "", ""]);
    let all = rig.run(["snapshots", "--json"]).ends(0).last();
    let parent_of = |id: &String| {
        let mut all = all.as_array().expect("a list").iter();
        let named = all.find(|one| one["id"] == id.as_str()).expect("listed");
        named["parent"].clone()
    };
    assert_eq!(parent_of(&ids[1]), ids[0].as_str());
    assert_eq!(parent_of(&ids[2]), ids[1].as_str());
}

#[test]
fn to_forget_waits_for_who_changes_tags() {
    let rig = Rig::open();
    snapshots_of(&rig, &["2026-03-01", "2026-03-02"]);
    rig.run(["tag", "--add", "x", "latest"]).ends(0);
    let lock = fs::File::open(rig.repo().join("locks/snapshots")).expect("a lock");
    lock.lock().expect("free");
    let tries = Opens::of(&rig.repo().join("locks/snapshots"));
    let mut forgetting = rig.command(["forget", "--keep-last", "1"]).spawn();
    let forgetting = forgetting.as_mut().expect("starts");
    tries.wait_for_a_second_try();
    assert_eq!(forgetting.try_wait().expect("waits"), None);
    assert_eq!(rig.snapshots().len(), 2);
    lock.unlock().expect("ours");
    assert_eq!(forgetting.wait().expect("ends").code(), Some(0));
    assert_eq!(rig.snapshots().len(), 1);
}
