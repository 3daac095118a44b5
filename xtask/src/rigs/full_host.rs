//! Rig `full-host`: ext4 on a depot whose host's file system, ext4 and XFS in turns, is filled by others until it is
//! really full. Writes that find no room are refused within a second, ext4 stays writable, and once files are deleted
//! all goes on.
//!
//! Packages: fuse3 mount e2fsprogs xfsprogs. Needs root, `/dev/fuse` and loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::attached::Attached;
use super::steps::Steps;

/// Writes chunks past the page cache for some seconds, each of which may be refused, and prints how many were and their
/// latencies; ends with 1 where none was, or where one in a hundred took more than a second.
const REFUSED: &str = "
import errno, mmap, os, sys, time
path, seconds, size = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
memory, refused, offset, start = mmap.mmap(-1, size), [], 0, time.time()
while time.time() - start < seconds:
    memory.seek(0); memory.write(os.urandom(size)); before = time.time()
    try: os.pwrite(fd, memory, offset)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO): raise
        refused.append(time.time() - before)
    offset += size
refused.sort()
p99 = refused[len(refused) * 99 // 100] if refused else 9e9
told = '%d of %d bytes refused, p99 %.3f s, longest %.3f s' % (len(refused), size, p99, max(refused + [0]))
print(told, file=sys.stderr); print(told, file=open(os.environ['TOLD'], 'a'))
sys.exit(p99 > 1)
";

/// Runs so many trials: how many steps failed.
pub fn run(program: &Path, trials: u32) -> Result<usize, String> {
    let mut steps = Steps::default();
    for trial in 1..=trials {
        let kind = if trial % 2 == 1 { "ext4" } else { "xfs" };
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let host = Host::new(&mut steps, kind, folder.path());
        self::trial(&mut steps, program, &format!("{trial}, {kind}"), &host.0);
    }
    Ok(steps.failed)
}

fn trial(steps: &mut Steps, program: &Path, name: &str, host: &Path) {
    let rig = Attached::new(program, host);
    let onefold = program.display();
    let told = format!("{}.told", host.display());
    rig.step(
        steps,
        &format!("trial {name}: create, attach, mkfs, mount"),
        &format!(
            "{onefold} -q volume create depot --size 2G; attach; mkfs.ext4 -qF $(device); mkdir mnt; \
             mount -o discard $(device) mnt; head -c 8M /dev/urandom >mnt/kept; sha256sum mnt/kept >sum; sync -f mnt"
        ),
    );
    rig.step(
        steps,
        &format!("trial {name}: full, and then really full"),
        "fallocate -l $(($(df --output=avail -B1 . | tail -n 1) - (250 << 20))) other; \
         mkdir mnt/many; for i in $(seq 200); do head -c 20K /dev/urandom >mnt/many/$i; done; \
         ! dd if=/dev/urandom of=mnt/direct bs=1M oflag=direct status=none || exit 1; \
         dd if=/dev/zero of=rest bs=4K conv=fsync status=none || true; \
         dd if=/dev/zero of=rest2 bs=512 conv=fsync status=none || true",
    );
    rig.step(
        steps,
        &format!("trial {name}: refused within a second"),
        &format!(
            "export TOLD={told}; ! dd if=/dev/urandom of=mnt/cached bs=1M count=60 conv=fsync status=none || exit 1; \
             python3 -c \"$(cat <<'END'\n{REFUSED}\nEND\n)\" mnt/direct2 5 4096; \
             python3 -c \"$(cat <<'END'\n{REFUSED}\nEND\n)\" mnt/direct3 5 1048576; \
             grep \" $PWD/mnt \" /proc/mounts | grep -q ' rw,'"
        ),
    );
    for line in std::fs::read_to_string(&told).unwrap_or_default().lines() {
        println!("      {line}");
    }
    // The first sync tells once more of writes that failed.
    rig.step(
        steps,
        &format!("trial {name}: rm and fstrim, and all goes on while the host is full"),
        "rm -r mnt/many mnt/direct* mnt/cached; sync -f mnt || sync -f mnt; fstrim mnt; \
         head -c 20M /dev/urandom >mnt/again; sync -f mnt; rm mnt/again; sync -f mnt; \
         grep \" $PWD/mnt \" /proc/mounts | grep -q ' rw,'; sha256sum --quiet -c sum",
    );
    rig.step(
        steps,
        &format!("trial {name}: the host has room again; clean, and what was kept is there"),
        &format!(
            "rm rest rest2 other; sleep 1; head -c 300M /dev/urandom >mnt/more; sync -f mnt; \
             umount mnt; e2fsck -fn $(device); {onefold} volume detach depot; attach; mount -o discard $(device) mnt; \
             sha256sum --quiet -c sum; umount mnt; {onefold} volume check depot --read-data; {onefold} volume detach depot"
        ),
    );
}

/// A file system of 700 MiB in a file, mounted. It is taken away at the end.
struct Host(PathBuf);

impl Host {
    fn new(steps: &mut Steps, kind: &str, folder: &Path) -> Self {
        let place = folder.display();
        steps.shell(
            &format!("a host of {kind}"),
            &format!(
                "export PATH=$PATH:/usr/sbin:/sbin; cd {place}; truncate -s 700M image; \
                 mkfs.{kind} -q image; mkdir host; mount -o loop image host"
            ),
        );
        Self(folder.join("host"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The process of the depot may still be ending.
        let script =
            "for _ in $(seq 100); do umount \"$0\" && exit; sleep .1; done; umount -l \"$0\"";
        let _ = Command::new("bash")
            .args(["-c", script])
            .arg(&self.0)
            .output();
    }
}
