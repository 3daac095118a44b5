//! Light forms of the rigs of block devices (`cargo xtask test volume`): a file system that runs full, and a power cut
//! of a disk with a volatile cache. Those of the rigs nbd, fuse and fsync are beside their features (`volume.rs`).

use std::process::Command;

use crate::devices::can_attach;
use crate::rig::{Ran, Rig, program};
use crate::untested::has;

/// Functions of the scripts: `attach DEPOT` prints the device, `soon COMMAND` runs the command until it succeeds, for
/// ten seconds, and `unmount FOLDER DEVICE` returns once nothing has the device any more (see [`crate::devices`]).
const BEGIN: &str = r#"
export PATH=$PATH:/usr/sbin:/sbin
attach() { "$ONEFOLD" --json volume attach "$PWD/$1" 2>/dev/null | tail -n 1 >attached; field device; }
field() { python3 -c "import json; print(json.load(open('attached'))['$1'])"; }
soon() { for _ in $(seq 200); do if "$@" 2>/dev/null; then return; fi; sleep .05; done; "$@"; }
is_free() { python3 -c '
import errno, os, sys
try: os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
except OSError as error: sys.exit(error.errno == errno.EBUSY)' "$1"; }
unmount() { umount "$1"; soon is_free "$2"; }
"#;

/// Runs a script in the rig's folder; it must succeed.
#[track_caller]
fn shell(rig: &Rig, script: &str) {
    let ran = Ran::from(
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", &format!("{BEGIN}{script}")])
            .env("ONEFOLD", program().get_program())
            .current_dir(rig.dir.path())
            .output()
            .expect("bash starts"),
    );
    assert_eq!(ran.code, Some(0), "{script}\n{}{}", ran.out, ran.err);
}

/// Ends what a failed test leaves.
struct Cleanup<'a>(&'a Rig, &'static str);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        let _ = Command::new("bash")
            .args(["-c", &format!("{BEGIN}{}", self.1)])
            .env("ONEFOLD", program().get_program())
            .current_dir(self.0.dir.path())
            .output();
    }
}

#[test]
fn a_file_system_that_runs_full_stays_writable_and_is_clean() {
    if !can_attach() || !has("fstrim") || !has("python3") {
        return;
    }
    let rig = Rig::empty();
    let _cleanup = Cleanup(
        &rig,
        r#"umount -l mnt; "$ONEFOLD" volume detach "$PWD/depot""#,
    );
    shell(
        &rig,
        r#"
        "$ONEFOLD" -q volume create depot --size 256M --capacity 32M
        device=$(attach depot); mkfs.ext4 -qF "$device"; mkdir mnt; mount -o discard "$device" mnt
        head -c 2M /dev/urandom >mnt/kept; sha256sum mnt/kept >sum; sync -f mnt
        for round in 1 2; do
            if dd if=/dev/urandom of=mnt/big bs=1M count=48 conv=fsync 2>said; then exit 1; fi
            grep -qiE 'space|input/output' said
            # The first sync tells once more of writes that failed.
            rm mnt/big; sync -f mnt || sync -f mnt; fstrim mnt
            grep " $PWD/mnt " /proc/mounts | grep -q ' rw,'
            echo $round >mnt/round; sync -f mnt; sha256sum --quiet -c sum
        done
        unmount mnt "$device"; e2fsck -fn "$device"; "$ONEFOLD" volume detach depot
        "#,
    );
}

/// The host's file system is filled by others until it is really full, not only the depot.
#[test]
fn a_file_system_stays_writable_while_its_host_is_really_full() {
    if !can_attach() || !has("fstrim") || !has("fallocate") || !has("python3") {
        return;
    }
    let rig = Rig::empty();
    let _cleanup = Cleanup(
        &rig,
        r#"umount -l mnt; "$ONEFOLD" volume detach "$PWD/host/depot"; umount -l host"#,
    );
    shell(
        &rig,
        r#"
        truncate -s 200M image; mkfs.ext4 -qF image; mkdir host mnt; mount -o loop image host
        "$ONEFOLD" -q volume create host/depot --size 256M
        device=$(attach host/depot); mkfs.ext4 -qF "$device"; mount -o discard "$device" mnt
        head -c 2M /dev/urandom >mnt/kept; sha256sum mnt/kept >sum; sync -f mnt
        fallocate -l $(($(df --output=avail -B1 host | tail -n 1) - (40 << 20))) host/other
        for round in 1 2; do
            if dd if=/dev/urandom of=mnt/big bs=1M oflag=direct 2>said; then exit 1; fi
            grep -qi space said
            dd if=/dev/zero of=host/rest bs=4K conv=fsync 2>said || true
            for n in $(seq 40); do head -c 9000 /dev/urandom >mnt/$n || true; done
            if dd if=/dev/urandom of=mnt/cached bs=1M count=16 conv=fsync 2>said; then exit 1; fi
            grep -qiE 'space|input/output' said
            # The first sync tells once more of writes that failed.
            rm mnt/big mnt/cached mnt/[0-9]*; sync -f mnt || sync -f mnt; fstrim mnt
            grep " $PWD/mnt " /proc/mounts | grep -q ' rw,'
            head -c 4M /dev/urandom >mnt/again; sync -f mnt; sha256sum --quiet -c sum; rm mnt/again host/rest
        done
        unmount mnt "$device"; e2fsck -fn "$device"; "$ONEFOLD" volume check host/depot --read-data
        "$ONEFOLD" volume detach host/depot
        # Its process may still be ending.
        soon umount host
        "#,
    );
}

/// Below everything lies nbdkit's cache in writeback mode: what was not flushed is in a file of its own, and `kill -9`
/// loses just that.
#[test]
fn what_was_synced_survives_a_power_cut_below_everything() {
    let programs = ["nbdkit", "nbdfuse", "fusermount3", "python3"];
    if !can_attach() || !programs.iter().all(|program| has(program)) {
        return;
    }
    let rig = Rig::empty();
    let _cleanup = Cleanup(
        &rig,
        r#"
        umount -l upper; "$ONEFOLD" volume detach "$PWD/lower/depot"; umount -l lower
        if [ -e loop ]; then losetup -d "$(cat loop)"; fi
        fusermount3 -uz m; if [ -e pid ]; then kill -9 "$(cat pid)"; fi
        "#,
    );
    shell(
        &rig,
        r#"
        power_on() {
            rm -f sock pid; mkdir -p cache m lower upper
            TMPDIR=$PWD/cache nbdkit -P "$PWD/pid" -U "$PWD/sock" --filter=cache file disk.img cache=writeback >/dev/null 2>&1
            nbdfuse m/d --unix "$PWD/sock" >/dev/null 2>&1 & fuse=$!
            for _ in $(seq 600); do if [ -s m/d ]; then break; fi; sleep .05; done
            losetup -f --show --direct-io=on m/d >loop
        }
        power_cut() {
            kill -9 "$(cat pid)"; kill -9 "$(field process)"; umount -l upper; soon is_free "$device"
            umount -l lower; losetup -d "$(cat loop)"; fusermount3 -uz m; kill -9 $fuse || true; rm loop pid
        }
        truncate -s 256M disk.img; power_on; mkfs.ext4 -qF "$(cat loop)"; mount "$(cat loop)" lower
        "$ONEFOLD" -q volume create lower/depot --size 64M
        device=$(attach lower/depot); mkfs.ext4 -qF "$device"; mount "$device" upper
        for n in $(seq 20); do head -c $((n * 9000)) /dev/urandom >upper/$n; done
        sync -f upper; sha256sum upper/[0-9]* >sums; [ "$(wc -l <sums)" = 20 ]
        head -c 3M /dev/urandom >upper/unsynced
        power_cut
        power_on; e2fsck -p "$(cat loop)" || [ $? = 1 ]; mount "$(cat loop)" lower
        "$ONEFOLD" volume detach lower/depot || true
        device=$(attach lower/depot); mount "$device" upper; sha256sum --quiet -c sums
        unmount upper "$device"; e2fsck -fn "$device"; "$ONEFOLD" volume check lower/depot --read-data
        # The process may still be ending; and a loop device that another program looks at lasts until it is closed.
        "$ONEFOLD" volume detach lower/depot; soon umount lower; losetup -d "$(cat loop)"; rm loop
        soon fusermount3 -u m; kill "$(cat pid)"; rm pid
        "#,
    );
}

/// Systemd takes the unit that the package installs.
#[test]
fn systemd_takes_the_unit_and_its_lines_for_fstab() {
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    let unit = std::fs::read_to_string(format!("{packaging}/onefold-volume@.service"))
        .expect("the unit is there");
    let lines = std::fs::read_to_string(format!("{packaging}/volume.fstab")).expect("it is there");
    let named = lines.lines().filter(|line| !line.starts_with('#'));
    for line in named.filter(|line| !line.is_empty()) {
        assert_eq!(line.split_whitespace().count(), 6, "{line}");
    }
    if !std::path::Path::new("/usr/bin/systemd-analyze").exists() {
        return crate::untested::not_tested("there is no systemd-analyze here");
    }
    let rig = Rig::empty();
    let own = program().get_program().to_string_lossy().into_owned();
    let unit = unit.replace("/usr/bin/onefold", &own);
    assert!(unit.contains(&own), "{unit}");
    std::fs::write(rig.path("onefold-volume@.service"), unit).expect("write");
    shell(
        &rig,
        "systemd-analyze verify --man=no ./onefold-volume@srv-vault.service >said 2>&1; cat said; [ ! -s said ]",
    );
}

#[test]
fn a_loop_device_that_another_program_looks_at_is_detached_once_it_is_closed() {
    if !can_attach() || !has("python3") {
        return;
    }
    let rig = Rig::empty();
    let _cleanup = Cleanup(&rig, r#""$ONEFOLD" volume detach "$PWD/depot""#);
    shell(
        &rig,
        r#"
        "$ONEFOLD" -q volume create depot --size 64M
        device=$(attach depot); head -c 1M /dev/urandom >content; dd if=content of="$device" conv=fsync status=none
        sleep 1 <"$device" &
        "$ONEFOLD" volume detach depot; wait
        device=$(attach depot); cmp -n 1048576 content "$device"; "$ONEFOLD" volume detach depot
        "#,
    );
}
