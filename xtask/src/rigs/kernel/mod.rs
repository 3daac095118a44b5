//! Rigs `kernel` and `kernel-power`: a depot below a kernel that has nbd and ublk, which this host's need not have. A
//! guest in QEMU attaches it by each way, with three file systems; dm-vdo stores the same tree; and its power is cut.
//!
//! ```text
//! disk.img ◀─ [nbdkit, a volatile cache] ◀─ QEMU ◀─ ext4 of the guest
//!                                           ◀─ onefold ◀─ ublk | nbd | FUSE, loop ◀─ ext4 | xfs | btrfs
//! ```
//!
//! Debian alone: the kernel comes from its backports, some 100 MB that are kept in the user's cache folder.

mod acknowledged;
mod guest;
mod power;
mod running;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use self::guest::Guest;
use super::fuse::RigFileSystem;
use super::steps::Steps;

/// Ways to the kernel, as `attach --via` names them.
const WAYS: [&str; 3] = ["ublk", "nbd", "fuse"];
/// File systems above a depot.
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Longest time of one guest. Each of its steps has a limit of its own.
const GUEST_MAX: Duration = Duration::from_secs(2400);

/// Parts of the rig `kernel`, a guest each.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelPart {
    /// Faults and changes of a device, by each way to the kernel.
    Faults,
    /// ext4, xfs and btrfs, by each way to the kernel.
    Transports,
    /// dm-vdo beside a depot.
    Vdo,
}

/// Ways and file systems of the rig `kernel`.
#[derive(clap::Args, Clone, Debug)]
pub struct KernelRigs {
    /// Parts of kernel (default: all)
    #[arg(long, value_name = "NAME")]
    part: Vec<KernelPart>,
    /// Ways to the kernel in kernel (default: ublk, nbd and fuse).
    #[arg(long, value_name = "WAY", value_parser = WAYS)]
    via: Vec<String>,
}

impl KernelRigs {
    fn has(&self, part: KernelPart) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }
}

/// Runs the chosen parts: the number of failed steps.
pub fn run(program: &Path, choice: &KernelRigs, kinds: &[RigFileSystem]) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let guest = Guest::prepare(program, folder.path())?;
    println!("   {}", guest.version());
    let ways = if choice.via.is_empty() {
        WAYS.join("+")
    } else {
        choice.via.join("+")
    };
    let mut run = |case: &str, more: &[String]| {
        let disks = [&[guest.disk("disk.img", 4 << 30)?][..], more].concat();
        let running = guest.boot(case, &disks, GUEST_MAX)?;
        Ok::<_, String>(running.tell(&mut steps))
    };
    if choice.has(KernelPart::Faults) {
        print_faults(&run(&format!("faults,{ways}"), &[])?);
    }
    if choice.has(KernelPart::Transports) {
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let kinds = if kinds.is_empty() {
            FILE_SYSTEMS.join("+")
        } else {
            kinds.join("+")
        };
        print_transports(&run(&format!("transports,{ways},{kinds}"), &[])?);
    }
    if choice.has(KernelPart::Vdo) {
        let more = [guest.disk("vdo.img", 8 << 30)?, guest.tree(TREE_MIB)?];
        print_vdo(&run("vdo,fuse", &more)?);
    }
    Ok(steps.failed)
}

/// Cuts the guest's power `rounds` times: the number of failed rounds.
pub fn run_power(program: &Path, rounds: u32) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let guest = Guest::prepare(program, folder.path())?;
    println!("   {}", guest.version());
    power::run(&guest, program, folder.path(), rounds, &mut steps)?;
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

/// Blocks of 4 KiB that dm-vdo and a depot take for one tree: like beside like.
fn print_vdo(words: &[(String, String)]) {
    for row in values(words, "VDO") {
        let number = |place: &str| {
            let found = row.pointer(place).and_then(Value::as_f64);
            found.unwrap_or(f64::NAN)
        };
        let tree = number("/tree_bytes");
        let counted = |name: &str| number(&format!("/depot/counted/{name}"));
        let (vdo, overhead) = (number("/vdo/data"), number("/vdo/overhead_before"));
        let zones = |when: &str| {
            number(&format!("/depot/{when}/zones_in_use"))
                * number(&format!("/depot/{when}/zone_bytes"))
        };
        let folder = number("/depot/folder_bytes");
        let rows = [
            ("dm-vdo: data blocks", vdo),
            (
                "onefold: pages of chunks that were written",
                counted("unique_writes") - counted("counters/packed_chunks")
                    + counted("counters/packed_pages"),
            ),
            (
                "dm-vdo: and of the block map, as it grew",
                vdo + number("/vdo/overhead") - overhead,
            ),
            (
                "onefold: whole zones, and files of the folder",
                (zones("manifest") + folder) / BLOCK,
            ),
            (
                "the same, after `volume collect`",
                (zones("collected") + folder) / BLOCK,
            ),
            (
                "onefold: stored_bytes",
                number("/depot/stats/stored_bytes") / BLOCK,
            ),
        ];
        println!(
            "\n   a tree of {:.1} MiB on ext4                  blocks of 4 KiB  ratio",
            tree / MIB
        );
        for (name, blocks) in rows {
            println!(
                "   {name:46} {blocks:13.0}  {:5.2}",
                tree / (blocks * BLOCK)
            );
        }
        println!("   dm-vdo's blocks before anything was stored: {overhead:.0}");
        println!("   files of the depot's folder, in bytes: {folder:.0}\n   {row}\n");
    }
}

/// Size of the tree that dm-vdo and a depot store, in MiB as `du` counts them.
const TREE_MIB: u32 = 170;
const BLOCK: f64 = 4096.0;
const MIB: f64 = (1 << 20) as f64;
