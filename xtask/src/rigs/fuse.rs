//! Rig `fuse`: file systems on a deduplicated volume, by FUSE and a loop device, under loads by other programs.
//!
//! Packages: fuse3 mount e2fsprogs xfsprogs btrfs-progs fio. Needs root, `/dev/fuse` and loop devices.

use std::path::Path;

use super::steps::Steps;

/// Each file system with the commands that make and check it.
const FILE_SYSTEMS: [(&str, &str, &str); 3] = [
    ("ext4", "mkfs.ext4 -qF", "e2fsck -fn"),
    ("xfs", "mkfs.xfs -qf", "xfs_repair -n"),
    ("btrfs", "mkfs.btrfs -qf", "btrfs check"),
];

/// Runs all steps; returns the number of failed ones.
pub fn run(program: &Path) -> Result<usize, String> {
    let mut steps = Steps::default();
    for (name, make, check) in FILE_SYSTEMS {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        one(&mut steps, program, folder.path(), (name, make, check));
        let work = folder.path().display();
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

fn one(steps: &mut Steps, program: &Path, work: &Path, (name, make, check): (&str, &str, &str)) {
    let (onefold, work) = (program.display(), work.display());
    // Each step asks for the device's name again: it may change with an attach.
    let begin = format!(
        "cd {work}; export PATH=$PATH:/usr/sbin:/sbin; \
         device() {{ {onefold} volume list --json | python3 -c \"import json,sys; print([d['device'] for d in json.load(sys.stdin) if d['source']=='{work}/depot'][0])\"; }}; "
    );
    let mut step = |what: &str, script: &str| {
        steps.shell(&format!("{name}: {what}"), &format!("{begin}{script}"));
    };
    step(
        "create and attach",
        &format!(
            "{onefold} volume create {work}/depot --size 2G; {onefold} volume attach {work}/depot"
        ),
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
        "a tree copied twice is stored once",
        &format!(
            "sync; fstrim mnt; {onefold} volume collect {work}/depot; before=$({onefold} volume stats --json {work}/depot); \
             cp -a /usr/share/perl mnt/one; cp -a /usr/share/perl mnt/two; sync; diff -r mnt/one mnt/two; \
             after=$({onefold} volume stats --json {work}/depot); \
             python3 -c \"import json,sys; a,b=map(json.loads,sys.argv[1:]); m=b['mapped_bytes']-a['mapped_bytes']; s=b['stored_bytes']-a['stored_bytes']; print(m,s,m/s); sys.exit(m < 1.8*s)\" \"$before\" \"$after\"",
        ),
    );
    step(
        "in use, it is not detached",
        &format!("! {onefold} volume detach {work}/depot"),
    );
    step(
        "unmount, detach, attach, mount: all is there",
        &format!(
            "umount mnt; {onefold} volume detach {work}/depot; {onefold} volume attach {work}/depot; mount -o discard $(device) mnt; diff -r mnt/one /usr/share/perl; diff -r mnt/two /usr/share/perl"
        ),
    );
    step(
        "delete and fstrim give the space back",
        &format!(
            "rm -r mnt/one mnt/two; sync; fstrim mnt; {onefold} volume collect {work}/depot; \
         {onefold} volume stats --json {work}/depot | python3 -c \"import json,sys; s=json.load(sys.stdin); print(s['stored_bytes']); sys.exit(s['stored_bytes'] > 100<<20)\""
        ),
    );
    step("fsck is clean", &format!("umount mnt; {check} $(device)"));
    step("detach", &format!("{onefold} volume detach {work}/depot"));
    // Unmounts everything, after any failure above.
    let _ = std::process::Command::new("bash")
        .args([
            "-c",
            &format!("{begin} umount -l mnt; {onefold} volume detach {work}/depot"),
        ])
        .output();
}
