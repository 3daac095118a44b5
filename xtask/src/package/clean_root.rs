//! Installs the package in a Debian without anything else, and uses it as a user would.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::program::step;

/// The commands in the clean root, as a shell script. The nightly script runs twice: the second night stores nothing
/// new and forgets nothing.
const STORY: &str = r#"
set -eux
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
dpkg -i /onefold.deb
onefold --version
test -s /usr/share/man/man1/onefold-backup.1.gz
test -s /usr/share/bash-completion/completions/onefold
test -f /lib/systemd/system/onefold-nightly.timer
test -f /lib/systemd/system/onefold-volume@.service
test -s /usr/share/doc/onefold/volume.fstab
(umask 077; echo 'a long password' > /etc/onefold/password)
sed -i 's#^BACKUP=.*#BACKUP=/etc /root --exclude-caches#' /etc/onefold/nightly.conf
# As systemd reads an EnvironmentFile: NAME=value, no quotes needed.
while IFS='=' read -r name value; do case $name in ''|'#'*) ;; *) export "$name=$value" ;; esac; done < /etc/onefold/nightly.conf
onefold init
/usr/lib/onefold/nightly
/usr/lib/onefold/nightly
test "$(onefold snapshots --json | tr '{' '\n' | grep -c '"short_id"')" -ge 1
onefold restore --verify latest:/etc --target /tmp/etc
diff -r --no-dereference /etc /tmp/etc
ls -l /tmp/etc/shadow | grep -q 'root *shadow'
dpkg -r onefold
test -f /etc/onefold/nightly.conf
"#;

/// Runs the story in a new root below `out`, which is removed afterwards.
pub fn try_package(package: &Path, out: &Path) -> Result<(), String> {
    let root = out.join("clean-root");
    remove(&root)?;
    let mut make = Command::new("debootstrap");
    make.args(["--variant=minbase", "bookworm"]).arg(&root);
    step("debootstrap --variant=minbase bookworm", &mut make)?;
    fs::copy(package, root.join("onefold.deb")).map_err(|error| error.to_string())?;
    let told = step(
        "chroot: install, nightly, restore",
        Command::new("chroot").arg(&root).args(["sh", "-c", STORY]),
    );
    remove(&root)?;
    told
}

fn remove(root: &Path) -> Result<(), String> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", root.display()))
        }
        _ => Ok(()),
    }
}
