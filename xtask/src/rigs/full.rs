//! Rig `full`: ext4 on a depot that holds less than its volume. It fills, its user deletes, it fills again; it never
//! turns read-only, and is clean at the end.
//!
//! Packages: fuse3 mount e2fsprogs. Needs root, `/dev/fuse` and loop devices.

use std::path::Path;

use super::attached::Attached;
use super::steps::Steps;

/// Runs so many rounds: how many steps failed.
pub fn run(program: &Path, rounds: u32) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let rig = Attached::new(program, folder.path());
    let onefold = program.display();
    rig.step(
        &mut steps,
        "create, attach, mkfs, mount",
        &format!(
            "{onefold} volume create depot --size 1G --capacity 256M; attach --on-threshold 'echo $ONEFOLD_THRESHOLD >>{}/told'; \
             mkfs.ext4 -qF $(device); mkdir mnt; mount -o discard $(device) mnt; \
             head -c 5M /dev/urandom >mnt/kept; sha256sum mnt/kept >sum; sync -f mnt",
            folder.path().display()
        ),
    );
    for round in 1..=rounds {
        rig.step(
            &mut steps,
            &format!("round {round}: full"),
            &format!(
                "mkdir mnt/many; for i in $(seq 200); do head -c 20K /dev/urandom >mnt/many/$i; done; \
                 dd if=/dev/urandom of=mnt/direct bs=1M count=160 oflag=direct status=none || true; \
                 ! dd if=/dev/urandom of=mnt/cached{round} bs=1M count=300 conv=fsync 2>said; grep -qi 'space\\|input/output' said; \
                 {onefold} volume stats --json depot | python3 -c \"import json,sys; s=json.load(sys.stdin)['space']; print(s); sys.exit(s['full_percent'] < 90)\""
            ),
        );
        // The first sync tells once more of writes that failed.
        rig.step(
            &mut steps,
            &format!("round {round}: rm and fstrim"),
            "rm -r mnt/many mnt/direct mnt/cached*; sync -f mnt || sync -f mnt; fstrim mnt; \
             grep \" $PWD/mnt \" /proc/mounts | grep -q ' rw,'; touch mnt/written; sync -f mnt; sha256sum --quiet -c sum",
        );
    }
    rig.step(
        &mut steps,
        "unmount, detach, attach: clean, and what was kept is there",
        &format!(
            "umount mnt; e2fsck -fn $(device); {onefold} volume detach depot; attach; mount -o discard $(device) mnt; \
             sha256sum --quiet -c sum; umount mnt; e2fsck -fn $(device)"
        ),
    );
    rig.step(
        &mut steps,
        "thresholds were told",
        "grep -q 80 told; grep -q full depot/log",
    );
    rig.step(
        &mut steps,
        "detach",
        &format!("{onefold} volume detach depot"),
    );
    Ok(steps.failed)
}
