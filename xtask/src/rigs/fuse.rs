//! Rig `fuse`: file systems on a deduplicated volume, by FUSE and a loop device, under loads by other programs.
//!
//! Packages: fuse3 mount e2fsprogs xfsprogs btrfs-progs fio stress-ng dbench; crate fsx, which is built where it is
//! missing. Needs root, `/dev/fuse` and loop devices.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::attached::Attached;
use super::steps::Steps;

/// A file system to run loads on.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RigFileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl RigFileSystem {
    /// Its name, as `mount -t` takes it.
    pub fn name(self) -> &'static str {
        self.commands().0
    }

    /// Its name, and the commands that make and check it.
    fn commands(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ext4 => ("ext4", "mkfs.ext4 -qF", "e2fsck -fn"),
            Self::Xfs => ("xfs", "mkfs.xfs -qf", "xfs_repair -n"),
            Self::Btrfs => ("btrfs", "mkfs.btrfs -qf", "btrfs check"),
        }
    }
}

/// How much the loads do.
struct Loads {
    fio_bytes: &'static str,
    fsx_operations: u32,
    stress: &'static str,
    has_dbench: bool,
    /// Seconds that a load may take.
    seconds_max: u32,
}

/// Tests of stress-ng, some together, for a short time.
const STRESS_SOME: &str = "--iomix 1 --hdd 1 --dentry 1 --rename 1 --fallocate 1 --seek 1 --sync-file 1 --dir 1 --link 1 \
     --hdd-bytes 32M --fallocate-bytes 32M --iomix-bytes 32M -t 8";
/// Every test of stress-ng's class, two processes for five seconds each, one test behind the other, but for those of
/// the host's own file systems; files are as large as fit.
const STRESS_ALL: &str = "--class filesystem --seq 2 -t 5 --exclude bind-mount,binderfs,procfs \
     --hdd-bytes 128M --fallocate-bytes 128M --iomix-bytes 128M --copy-file-bytes 128M";

impl Loads {
    fn new(is_long: bool) -> Self {
        if !is_long {
            Self {
                fio_bytes: "100M",
                fsx_operations: 3000,
                stress: STRESS_SOME,
                has_dbench: false,
                seconds_max: 120,
            }
        } else {
            Self {
                fio_bytes: "400M",
                fsx_operations: 100_000,
                stress: STRESS_ALL,
                has_dbench: true,
                seconds_max: 1200,
            }
        }
    }
}

/// Runs all steps on each of `file_systems`, or on all; returns the number of failed steps.
pub fn run(program: &Path, file_systems: &[RigFileSystem], is_long: bool) -> Result<usize, String> {
    let fsx = fsx()?;
    let mut steps = Steps::default();
    let all = RigFileSystem::value_variants();
    let wanted = if file_systems.is_empty() {
        all
    } else {
        file_systems
    };
    for file_system in wanted {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let run = FuseRun {
            rig: Attached::new(program, folder.path()),
            program,
            file_system: *file_system,
        };
        run.all(&mut steps, &fsx, &Loads::new(is_long));
        let (name, work) = (file_system.name(), folder.path().display());
        drop(run);
        steps.shell(
            &format!("{name}: nothing is left"),
            &format!(
                "! mount | grep -q {work}; ! losetup -a | grep -q {work}; {} volume list | (! grep {work})",
                program.display()
            ),
        );
    }
    Ok(steps.failed)
}

/// The exerciser of file systems: what is on the PATH, or built beside this program.
fn fsx() -> Result<PathBuf, String> {
    if xtask::program::on_path("fsx") {
        return Ok("fsx".into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let root = own.with_file_name("rigs");
    let program = root.join("bin/fsx");
    if !program.exists() {
        let root = root.display().to_string();
        xtask::program::cargo(&["install", "--locked", "--root", &root, "fsx@0.3.2"])?;
    }
    Ok(program)
}

/// One file system on a depot of its own.
struct FuseRun<'a> {
    rig: Attached,
    program: &'a Path,
    file_system: RigFileSystem,
}

impl FuseRun<'_> {
    fn all(&self, steps: &mut Steps, fsx: &Path, loads: &Loads) {
        let (onefold, make) = (self.program.display(), self.file_system.commands().1);
        let create = format!("{onefold} volume create depot --size 2G; attach");
        self.step(steps, "create and attach", &create);
        let mount = format!("{make} $(device); mkdir mnt; mount -o discard $(device) mnt");
        self.step(steps, "mkfs and mount", &mount);
        self.loads(steps, fsx, loads);
        self.copies(steps);
        self.end(steps);
    }

    fn step(&self, steps: &mut Steps, what: &str, script: &str) {
        let name = self.file_system.commands().0;
        self.rig.step(steps, &format!("{name}: {what}"), script);
    }

    /// Programs of others that write and compare.
    fn loads(&self, steps: &mut Steps, fsx: &Path, loads: &Loads) {
        let name = self.file_system.commands().0;
        let mut load = |what: &str, script: &str| {
            let what = format!("{name}: {what}");
            self.rig
                .step_within(steps, loads.seconds_max, &what, script);
        };
        let bytes = loads.fio_bytes;
        load(
            &format!("fio verify, {bytes}, 512 bytes to 64 KiB, unaligned"),
            &format!(
                "fio --name=v --directory=mnt --size={bytes} --io_size={bytes} --bsrange=512-64k --bs_unaligned=1 --rw=randrw --ioengine=libaio --iodepth=16 --verify=crc32c --verify_backlog=512 --verify_fatal=1; rm mnt/v*"
            ),
        );
        load(
            &format!("fsx, {} operations", loads.fsx_operations),
            &format!(
                "{} -N {} -S 7 mnt/fsx >said; rm mnt/fsx*",
                fsx.display(),
                loads.fsx_operations
            ),
        );
        load(
            "stress-ng, its tests of file systems",
            &format!(
                "mkdir mnt/stress; stress-ng --temp-path $PWD/mnt/stress {} --metrics-brief 2>&1 | tail -20; rm -rf mnt/stress",
                loads.stress
            ),
        );
        if loads.has_dbench {
            load(
                "dbench, 4 clients for 30 seconds",
                "mkdir mnt/dbench; dbench -D mnt/dbench -t 30 4 >said 2>&1 || { tail -3 said; exit 1; }; grep -q Throughput said; rm -rf mnt/dbench",
            );
        }
    }

    /// A tree that is copied twice, and goes again.
    fn copies(&self, steps: &mut Steps) {
        let onefold = self.program.display();
        self.step(
            steps,
            "a tree copied twice is stored once",
            &format!(
                "sync; fstrim mnt; {onefold} volume collect depot; before=$({onefold} volume stats --json depot); \
                 cp -a /usr/share/perl mnt/one; cp -a /usr/share/perl mnt/two; sync; diff -r mnt/one mnt/two; \
                 after=$({onefold} volume stats --json depot); \
                 python3 -c \"import json,sys; a,b=map(json.loads,sys.argv[1:]); m=b['mapped_bytes']-a['mapped_bytes']; s=b['unique_writes']-a['unique_writes']; s*=4096; print(m,s,m/s); sys.exit(m < 1.9*s)\" \"$before\" \"$after\"",
            ),
        );
        self.step(
            steps,
            "in use, it is not detached",
            &format!("! {onefold} volume detach depot"),
        );
        self.step(
            steps,
            "unmount, detach, attach, mount: all is there",
            &format!(
                "umount mnt; {onefold} volume detach depot; attach; mount -o discard $(device) mnt; diff -r mnt/one /usr/share/perl; diff -r mnt/two /usr/share/perl"
            ),
        );
        self.step(
            steps,
            "delete and fstrim give the space back",
            &format!(
                "rm -r mnt/one mnt/two; sync; fstrim mnt; {onefold} volume collect depot; \
                 {onefold} volume stats --json depot | python3 -c \"import json,sys; s=json.load(sys.stdin); print(s['mapped_bytes']); sys.exit(s['mapped_bytes'] > 100<<20)\""
            ),
        );
    }

    fn end(&self, steps: &mut Steps) {
        let (onefold, check) = (self.program.display(), self.file_system.commands().2);
        self.step(
            steps,
            "fsck and check are clean",
            &format!("umount mnt; {check} $(device); {onefold} volume check depot --read-data"),
        );
        self.step(steps, "detach", &format!("{onefold} volume detach depot"));
    }
}
