//! Rigs: real clients, file systems and faults against the program, for `cargo xtask test volume --rig NAME`.

mod attached;
mod fsync;
mod full;
mod full_host;
mod fuse;
mod kernel;
mod nbd;
mod power;
mod steps;

use std::path::PathBuf;

use clap::ValueEnum;

/// The rigs to run on a block device.
#[derive(clap::Args, Clone, Debug)]
pub struct VolumeRig {
    /// Rigs, one or more; by default all.
    #[arg(long, value_name = "NAME")]
    rig: Vec<Rig>,
    /// Rounds of fsync, power, full, full-host and kernel-power (default: 3, 3, 10, 10 and 3).
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Have fuse run its loads in full: 400 MB of fio, 100,000 operations of fsx, every file system test of stress-ng,
    /// dbench. Some 15 minutes a file system.
    #[arg(long)]
    long: bool,
    /// File systems of fuse and kernel (default: ext4, xfs and btrfs).
    #[arg(long, value_name = "NAME")]
    file_system: Vec<fuse::RigFileSystem>,
    #[command(flatten)]
    kernel: kernel::KernelRigs,
    /// The program; otherwise it is built.
    #[arg(long)]
    onefold: Option<PathBuf>,
}

/// A rig of block devices.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Rig {
    /// NBD clients: nbdinfo, nbdcopy, qemu-io, qemu-img, fio, libnbd; TLS; many connections.
    Nbd,
    /// ext4, xfs and btrfs on a deduplicated volume, by FUSE and a loop device.
    Fuse,
    /// Writers that sync each record, and kills of the daemon.
    Fsync,
    /// Power cuts of a disk with a volatile cache below everything.
    Power,
    /// ext4 on a depot that holds less than its volume: filled and emptied in turns.
    Full,
    /// ext4 on a depot whose host's file system is really full.
    FullHost,
    /// ublk, nbd and FUSE of a Debian kernel in QEMU, and dm-vdo beside them.
    Kernel,
    /// Power cuts of that guest, with a volatile cache below its disk.
    KernelPower,
}

impl VolumeRig {
    /// Runs the rigs, and fails if one of their steps did.
    pub fn run(&self) -> Result<(), String> {
        let program = match &self.onefold {
            Some(program) => program.clone(),
            None => build()?,
        };
        let all = Rig::value_variants();
        let wanted = if self.rig.is_empty() { all } else { &self.rig };
        let mut failed = 0;
        for rig in wanted {
            println!("── rig {rig:?}");
            failed += match rig {
                Rig::Nbd => nbd::run(&program)?,
                Rig::Fuse => fuse::run(&program, &self.file_system, self.long)?,
                Rig::Fsync => fsync::run(&program, self.rounds.unwrap_or(3))?,
                Rig::Power => power::run(&program, self.rounds.unwrap_or(3))?,
                Rig::Full => full::run(&program, self.rounds.unwrap_or(10))?,
                Rig::FullHost => full_host::run(&program, self.rounds.unwrap_or(10))?,
                Rig::Kernel => kernel::run(&program, &self.kernel, &self.file_system)?,
                Rig::KernelPower => kernel::run_power(&program, self.rounds.unwrap_or(3))?,
            };
        }
        match failed {
            0 => Ok(()),
            failed => Err(format!("{failed} steps failed")),
        }
    }
}

fn build() -> Result<PathBuf, String> {
    xtask::program::cargo(&["build", "--package", "onefold"])?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("onefold"))
}
