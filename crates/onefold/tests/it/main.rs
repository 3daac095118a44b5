//! The real program, run as users run it.
//!
//! `ONEFOLD_TEST_SCALE` (default 1) says how often the loops repeat: kills, and seconds of many processes at once.
//! Seeds are printed.
#![forbid(unsafe_code)]

mod archives;
mod below;
mod bucket;
mod bucket_alone;
mod bucket_cache;
mod bucket_signals;
mod bucket_tls;
mod completions;
mod context;
mod copies;
mod damage;
mod devices;
mod environment;
mod estimate;
mod everything;
mod exits;
#[path = "../../../remote/tests/it/fake/mod.rs"]
#[allow(dead_code, reason = "the tests of remote use all of it")]
mod fake;
mod first_steps;
mod full;
mod group;
mod holes;
mod hurt;
mod index_dir;
mod indexes;
mod input;
mod json;
mod kill;
mod knobs;
mod lacking;
mod later;
mod latest;
mod logs;
mod messages;
mod missing_folders;
#[path = "../../../backup/tests/it/mount.rs"]
mod mount;
mod mounted;
mod moved_sources;
mod no_file;
mod odd_names;
mod other_mounts;
mod others_repositories;
mod owners;
mod patterns;
mod promises;
mod refused;
mod remedies;
mod restic_fields;
mod restic_flags;
mod restic_objects;
mod restoring;
mod retention;
mod rig;
#[path = "../../../io/tests/it/scale.rs"]
mod scale;
mod signals;
mod sketch;
mod sleepers;
mod special_sources;
mod stalling;
mod story;
mod tar;
mod terminal;
mod together;
mod tty;
mod unread_attributes;
mod unreadable;
#[path = "../../../io/tests/it/untested.rs"]
mod untested;
#[path = "../../../remote/tests/it/versitygw.rs"]
mod versitygw;
mod volume;
mod volume_care;
mod volume_claim;
mod volume_dump;
mod volume_encryption;
mod volume_hints;
mod volume_metadata;
mod volume_rigs;
mod volume_snapshots;
mod wait;
mod with_lock;

// The fake server makes entity tags with it.
use md5 as _;
