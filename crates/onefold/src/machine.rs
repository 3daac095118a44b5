//! Facts about the machine that the program passes to the engine: host, user, process.

use onefold_backup::meta::Owners;

/// Returns this machine's name.
pub fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Returns the numbers of the user and the group.
pub fn uid_gid() -> (u32, u32) {
    (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    )
}

/// Returns the user's name, or the number where there is no name.
pub fn user() -> String {
    let (uid, gid) = uid_gid();
    let owner = Owners::load().get(uid, gid);
    if owner.user.is_empty() {
        uid.to_string()
    } else {
        owner.user.to_string()
    }
}

/// Returns `user@host`, the label of key slots.
pub fn label() -> String {
    format!("{}@{}", user(), host())
}

/// Returns this program and its version, as snapshots name it.
pub fn program() -> String {
    concat!("onefold ", env!("CARGO_PKG_VERSION")).to_owned()
}
