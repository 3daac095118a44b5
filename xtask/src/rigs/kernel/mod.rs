//! Rigs `kernel` and `kernel-power`: a depot below a kernel that has nbd and ublk, which this host's need not have. A
//! guest in QEMU attaches it by each way, with three file systems; dm-vdo stores the same tree; and its power is cut.
//!
//! ```text
//! disk.img ◀─ [nbdkit, a volatile cache] ◀─ QEMU ◀─ ext4 of the guest
//!                                           ◀─ onefold ◀─ ublk | nbd | FUSE, loop ◀─ ext4 | xfs | btrfs
//! ```
//!
//! Debian alone: the kernel comes from its backports, some 100 MB that are kept in the user's cache folder.

mod guest;
mod power;

use std::path::Path;

use serde_json::Value;

use self::guest::Guest;
use super::steps::Steps;

/// Ways to the kernel, as `attach --via` names them.
const WAYS: [&str; 3] = ["ublk", "nbd", "fuse"];

/// Runs all ways to the kernel, and dm-vdo: the number of failed steps.
pub fn run(program: &Path) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let guest = Guest::prepare(program, folder.path())?;
    println!("   {}", guest.version());
    let case = format!("faults,{}", WAYS.join(","));
    let disk = guest.disk("disk.img", 4)?;
    let words = guest.boot(&case, &[disk])?.tell(&mut steps);
    print_faults(&words);
    let disk = guest.disk("disk.img", 4)?;
    let case = format!("transports,{}", WAYS.join(","));
    let words = guest.boot(&case, &[disk])?.tell(&mut steps);
    print_transports(&words);
    let disks = [
        guest.disk("disk.img", 4)?,
        guest.disk("vdo.img", 8)?,
        guest.tree(TREE_MIB)?,
    ];
    let words = guest.boot("vdo,fuse", &disks)?.tell(&mut steps);
    print_vdo(&words);
    Ok(steps.failed)
}

/// Cuts the guest's power `rounds` times: the number of failed steps.
pub fn run_power(program: &Path, rounds: u32) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let guest = Guest::prepare(program, folder.path())?;
    println!("   {}", guest.version());
    power::run(&guest, folder.path(), rounds, &mut steps)?;
    Ok(steps.failed)
}

/// Words of the guest that are JSON.
fn values<'a>(words: &'a [(String, String)], wanted: &'a str) -> impl Iterator<Item = Value> + 'a {
    let wanted = words.iter().filter(move |(word, _)| word == wanted);
    wanted.filter_map(|(_, rest)| serde_json::from_str(rest).ok())
}

/// One row for each way and file system: what the kernel was told of the device, and which requests came.
fn print_transports(words: &[(String, String)]) {
    let columns = [
        "reads",
        "writes",
        "nodedup_writes/metadata",
        "flushes",
        "discards",
        "write_zeroes",
    ];
    println!("\n   way   file system  FUA  {}", columns.join("  "));
    for row in values(words, "TABLE") {
        let count = |column: &&str| {
            let stats = &row["stats"];
            let count = stats.pointer(&format!("/{column}")).and_then(Value::as_u64);
            format!(
                "{:>1$}",
                count.map_or("-".into(), |n| n.to_string()),
                column.len()
            )
        };
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        println!(
            "   {:4}  {:11}  {:>3}  {}",
            text("way"),
            text("file_system"),
            row["fua"],
            columns.iter().map(count).collect::<Vec<_>>().join("  ")
        );
    }
    println!();
}

/// One line for each way: how the device grew, and the most memory that its process took.
fn print_faults(words: &[(String, String)]) {
    for (word, rest) in words {
        match (word.as_str(), rest.split_once(' ')) {
            ("GROWN", Some((way, how))) => println!("   {way:4}  grows {how}"),
            ("MEMORY", Some((way, kib))) => {
                println!("   {way:4}  memory of its process, at most: {kib} KiB")
            }
            _ => {}
        }
    }
}

/// Blocks of 4 KiB that dm-vdo and a depot have stored of one tree.
fn print_vdo(words: &[(String, String)]) {
    for row in values(words, "VDO") {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let tree = number(&row["tree_bytes"]);
        let depot = number(&row["stats"]["stored_bytes"]) / BLOCK;
        println!(
            "\n   a tree of {:.1} MiB on ext4    blocks of 4 KiB  ratio",
            tree / MIB
        );
        let rows = [
            ("dm-vdo, compression on", number(&row["blocks"])),
            ("onefold, packing auto", depot),
        ];
        for (name, blocks) in rows {
            println!(
                "   {name:30} {blocks:15.0}  {:5.2}",
                tree / (blocks * BLOCK)
            );
        }
        println!();
    }
}

/// Size of the tree that dm-vdo and a depot store, in MiB as `du` counts them.
const TREE_MIB: u32 = 170;
const BLOCK: f64 = 4096.0;
const MIB: f64 = (1 << 20) as f64;
