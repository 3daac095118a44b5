//! Rig `fsync`: writers that sync each record, and a daemon that is killed among them. Every record of which the sync
//! was answered is there afterwards.
//!
//! Packages: fuse3 mount e2fsprogs python3 fio. Needs root, `/dev/fuse` and loop devices.

use std::path::Path;

use super::attached::Attached;
use super::steps::Steps;

/// Eight writers append records of 4 KiB, sync each, and note its number outside of the device.
const WRITERS: &str = r#"
import hashlib, os, sys, threading
work, seconds = sys.argv[1], float(sys.argv[2])
def record(writer, n): return hashlib.shake_128(b'%d %d' % (writer, n)).digest(4096)
def write(writer):
    noted = os.open(f'{work}/noted{writer}', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        data = os.open(f'{work}/mnt/data{writer}', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        n = 0
        while True:
            os.pwrite(data, record(writer, n), n * 4096); os.fdatasync(data); n += 1
            os.pwrite(noted, b'%10d' % n, 0)
    except OSError: pass
threads = [threading.Thread(target=write, args=(w,), daemon=True) for w in range(8)]
for t in threads: t.start()
for t in threads: t.join(seconds)
os._exit(0)
"#;

/// Compares the records with what was noted.
const CHECK: &str = r#"
import hashlib, sys
work, total = sys.argv[1], 0
for writer in range(8):
    noted = int(open(f'{work}/noted{writer}').read() or 0); data = open(f'{work}/mnt/data{writer}', 'rb')
    for n in range(noted):
        assert data.read(4096) == hashlib.shake_128(b'%d %d' % (writer, n)).digest(4096), (writer, n, noted)
    total += noted
print(total, 'records'); sys.exit(total < 8)
"#;

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
            "{onefold} volume create depot --size 1G; attach; mkfs.ext4 -qF $(device); mkdir mnt; mount $(device) mnt"
        ),
    );
    rig.step(
        &mut steps,
        "fio: eight jobs that sync each write",
        "fio --name=f --directory=mnt --rw=randwrite --bs=4k --fsync=1 --numjobs=8 --size=8M --runtime=5 --time_based --group_reporting --output-format=terse | cut -d';' -f49 >rate; rm mnt/f.*",
    );
    for round in 1..=rounds {
        rig.step(
            &mut steps,
            &format!("round {round}: every record that was synced before a kill is there"),
            &format!(
                "python3 -c '{0}' $PWD 30 & writers=$!; sleep 1.$((RANDOM % 10)); kill -9 $(process); wait $writers; \
                 umount -l mnt; {onefold} volume detach depot; attach; mount $(device) mnt; python3 -c '{1}' $PWD",
                WRITERS.replace('\'', "'\\''"),
                CHECK.replace('\'', "'\\''"),
            ),
        );
    }
    rig.step(
        &mut steps,
        "unmount, fsck, detach",
        &format!("umount mnt; e2fsck -fn $(device); {onefold} volume detach depot"),
    );
    Ok(steps.failed)
}
