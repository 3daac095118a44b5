//! Rig `fuse`: file systems on a deduplicated volume, by FUSE and a loop device, under loads by other programs.
//!
//! Packages: fuse3 mount e2fsprogs xfsprogs btrfs-progs fio stress-ng; crate fsx, which is built where it is missing.
//! Needs root, `/dev/fuse` and loop devices.

use std::path::{Path, PathBuf};

use super::attached::Attached;
use super::steps::Steps;

/// Each file system with the commands that make and check it.
const FILE_SYSTEMS: [(&str, &str, &str); 3] = [
    ("ext4", "mkfs.ext4 -qF", "e2fsck -fn"),
    ("xfs", "mkfs.xfs -qf", "xfs_repair -n"),
    ("btrfs", "mkfs.btrfs -qf", "btrfs check"),
];

/// Runs all steps; returns the number of failed ones.
pub fn run(program: &Path) -> Result<usize, String> {
    let fsx = fsx()?;
    let mut steps = Steps::default();
    for file_system in FILE_SYSTEMS {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        one(&mut steps, program, &fsx, folder.path(), file_system);
        let work = folder.path().display();
        steps.shell(
            &format!("{}: nothing is left", file_system.0),
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
    if crate::ci::on_path("fsx") {
        return Ok("fsx".into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let root = own.with_file_name("rigs");
    let program = root.join("bin/fsx");
    if !program.exists() {
        let root = root.display().to_string();
        crate::ci::cargo(&["install", "--locked", "--root", &root, "fsx@0.3.2"])?;
    }
    Ok(program)
}

fn one(
    steps: &mut Steps,
    program: &Path,
    fsx: &Path,
    work: &Path,
    (name, make, check): (&str, &str, &str),
) {
    let rig = Attached::new(program, work);
    let onefold = program.display();
    let mut step = |what: &str, script: &str| rig.step(steps, &format!("{name}: {what}"), script);
    step(
        "create and attach",
        &format!("{onefold} volume create depot --size 2G; attach"),
    );
    step(
        "mkfs and mount",
        &format!("{make} $(device); mkdir mnt; mount -o discard $(device) mnt"),
    );
    step(
        "fio verify, 512 bytes to 64 KiB, unaligned",
        "fio --name=v --directory=mnt --size=100M --io_size=100M --bsrange=512-64k --bs_unaligned=1 --rw=randrw --ioengine=libaio --iodepth=16 --verify=crc32c --verify_backlog=512 --verify_fatal=1; rm mnt/v*",
    );
    step(
        "fsx, 3,000 operations",
        &format!("{} -N 3000 -S 7 mnt/fsx >said; rm mnt/fsx*", fsx.display()),
    );
    step(
        "stress-ng, its file system tests two seconds each",
        "mkdir mnt/stress; stress-ng --temp-path $PWD/mnt/stress --iomix 1 --hdd 1 --dentry 1 --rename 1 --fallocate 1 --seek 1 --sync-file 1 --dir 1 --link 1 --hdd-bytes 32M --fallocate-bytes 32M --iomix-bytes 32M -t 8 --metrics-brief 2>&1 | tail -20; rm -rf mnt/stress",
    );
    step(
        "a tree copied twice is stored once",
        &format!(
            "sync; fstrim mnt; {onefold} volume collect depot; before=$({onefold} volume stats --json depot); \
             cp -a /usr/share/perl mnt/one; cp -a /usr/share/perl mnt/two; sync; diff -r mnt/one mnt/two; \
             after=$({onefold} volume stats --json depot); \
             python3 -c \"import json,sys; a,b=map(json.loads,sys.argv[1:]); m=b['mapped_bytes']-a['mapped_bytes']; s=b['unique_writes']-a['unique_writes']; s*=4096; print(m,s,m/s); sys.exit(m < 1.8*s)\" \"$before\" \"$after\"",
        ),
    );
    step(
        "in use, it is not detached",
        &format!("! {onefold} volume detach depot"),
    );
    step(
        "unmount, detach, attach, mount: all is there",
        &format!(
            "umount mnt; {onefold} volume detach depot; attach; mount -o discard $(device) mnt; diff -r mnt/one /usr/share/perl; diff -r mnt/two /usr/share/perl"
        ),
    );
    step(
        "delete and fstrim give the space back",
        &format!(
            "rm -r mnt/one mnt/two; sync; fstrim mnt; {onefold} volume collect depot; \
         {onefold} volume stats --json depot | python3 -c \"import json,sys; s=json.load(sys.stdin); print(s['mapped_bytes']); sys.exit(s['mapped_bytes'] > 100<<20)\""
        ),
    );
    step(
        "fsck and check are clean",
        &format!("umount mnt; {check} $(device); {onefold} volume check depot --read-data"),
    );
    step("detach", &format!("{onefold} volume detach depot"));
}
