//! Rig `power`: power cuts of a disk with a volatile cache. Below everything lies nbdkit's cache in writeback mode,
//! which keeps what was not flushed in a file of its own; `kill -9` of it loses just that.
//!
//! ```text
//! disk.img ◀─ nbdkit cache ◀─ nbdfuse ◀─ loop ◀─ ext4 (folder and data of the depot) ◀─ onefold ◀─ ext4 ◀─ load
//! ```
//!
//! Packages: nbdkit libnbd-bin fuse3 mount e2fsprogs python3 git. Needs root, `/dev/fuse` and loop devices.

use std::path::Path;
use std::process::Command;

use super::steps::Steps;

/// Functions of the rounds. What goes on in the background holds no output, or nobody would see the step end.
/// `$ONEFOLD` is the program, the folder of the rig is the current one.
const BEGIN: &str = r#"
export PATH=$PATH:/usr/sbin:/sbin
synced_min=5 # files that are synced before a power cut, or a round would say nothing
device() { $ONEFOLD volume list --json | python3 -c "import json,sys,os; print([d['device'] for d in json.load(sys.stdin) if d['source']==os.getcwd()+'/lower/depot'][0])"; }
process() { $ONEFOLD volume list --json | python3 -c "import json,sys,os; print([d['process'] for d in json.load(sys.stdin) if d['source']==os.getcwd()+'/lower/depot'][0])"; }
power_on() {
  rm -f sock pid; mkdir -p cache; TMPDIR=$PWD/cache nbdkit -P $PWD/pid -U $PWD/sock --filter=cache file disk.img cache=writeback >/dev/null 2>&1
  nbdfuse m/d --unix $PWD/sock >/dev/null 2>&1 & echo $! >fuse.pid
  for _ in $(seq 200); do [ -s m/d ] && break; sleep .05; done
  losetup -f --show --direct-io=on m/d >loop
}
power_cut() {
  kill -9 $(cat pid); kill -9 $(process) || true
  umount -l upper || true; umount -l lower || true
  losetup -d $(cat loop) || true; fusermount3 -uz m || true; kill -9 $(cat fuse.pid) || true
  for _ in $(seq 200); do losetup -a | grep -q "$PWD/m/d" || break; sleep .05; done
  $ONEFOLD volume list >/dev/null
}
"#;

/// Writes files and syncs them, noting each outside of the disk with its digest, until the disk is gone; why it ended
/// is in the file `ended`.
const WRITER: &str = r#"
import errno, hashlib, os, random, sys, traceback
work = sys.argv[1]; noted = open(work + '/noted', 'w'); n = 0
try:
    while True:
        content = random.randbytes(random.randrange(1, 400000)) if n % 3 else b'x' * random.randrange(1, 400000)
        path = 'upper/files/%d' % n
        with open(path, 'wb') as f: f.write(content); f.flush(); os.fsync(f.fileno())
        d = os.open('upper/files', os.O_RDONLY); os.fsync(d); os.close(d)
        noted.write('%s  %s\n' % (hashlib.sha256(content).hexdigest(), path)); noted.flush(); n += 1
except OSError as error: ended = errno.errorcode.get(error.errno, str(error))
except BaseException: ended = traceback.format_exc()
open(work + '/ended', 'w').write('%s after %d files\n' % (ended, n))
"#;

/// Runs `rounds` power cuts; returns the number of failed steps.
pub fn run(program: &Path, rounds: u32) -> Result<usize, String> {
    let mut steps = Steps::default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let work = folder.path().display();
    let begin = format!("cd {work}; ONEFOLD={}; {BEGIN}", program.display());
    let mut step = |what: &str, script: &str| steps.shell(what, &format!("{begin}{script}"));
    step(
        "create, attach, mkfs, mount",
        "truncate -s 2G disk.img; mkdir -p m lower upper; power_on; mkfs.ext4 -qF $(cat loop); mount $(cat loop) lower; \
         $ONEFOLD volume create lower/depot --size 512M; $ONEFOLD volume attach $PWD/lower/depot; mkfs.ext4 -qF $(device); \
         mount $(device) upper; mkdir -p upper/files; sync -f upper; git init -q repository; cd repository; \
         seq 100000 >numbers; git add .; git -c user.name=a -c user.email=a@b commit -qm numbers",
    );
    let writer = WRITER.replace('\'', "'\\''");
    for round in 1..=rounds {
        step(
            &format!("round {round}: a power cut"),
            &format!(
                "rm -rf upper/files/*; rm -rf upper/clone; sync -f upper; rm -f noted ended cloned; touch noted; \
                 python3 -c '{writer}' $PWD & writer=$!; \
                 (git clone -q --no-local repository upper/clone && sync -f upper && touch cloned) 2>/dev/null & clone=$!; \
                 for _ in $(seq 600); do [ $(wc -l <noted) -lt $synced_min ] && [ ! -e ended ] || break; sleep .1; done; \
                 sleep $((RANDOM % 3)).$((RANDOM % 10)); [ ! -e ended ] || cat ended; [ ! -e ended ]; \
                 power_cut; wait $writer $clone || true; cat ended; grep -Eq '^(EIO|EROFS) ' ended"
            ),
        );
        step(
            &format!("round {round}: fsck is clean, and all that was synced is whole"),
            "power_on; e2fsck -p $(cat loop) >said || [ $? -le 1 ]; mount $(cat loop) lower; $ONEFOLD volume detach lower/depot || true; \
             $ONEFOLD volume attach $PWD/lower/depot; mount $(device) upper; cat ended; [ $(wc -l <noted) -ge $synced_min ]; \
             sha256sum --quiet -c noted; if [ -e cloned ]; then git -C upper/clone fsck --strict; git -C upper/clone diff --quiet HEAD; fi; \
             umount upper; e2fsck -fn $(device); $ONEFOLD volume check lower/depot --read-data; mount $(device) upper",
        );
    }
    step(
        "unmount, detach",
        "umount upper; $ONEFOLD volume detach lower/depot; umount lower; losetup -d $(cat loop); fusermount3 -u m; kill $(cat pid); rm pid",
    );
    // Whatever failed above leaves nothing mounted.
    let _ = Command::new("bash")
        .args([
            "-c",
            &format!("{begin} set +e; if [ -e pid ]; then power_cut; fi"),
        ])
        .output();
    Ok(steps.failed)
}
