//! What the program asks of the machine it runs on, to pass it down: host, user, process.

use onefold_backup::meta::Owners;

/// This machine's name.
pub fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// The user's number, and the group's.
pub fn uid_gid() -> (u32, u32) {
    (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    )
}

/// The user's name, or number where it has none.
pub fn user() -> String {
    let (uid, gid) = uid_gid();
    let owner = Owners::load().get(uid, gid);
    if owner.user.is_empty() {
        uid.to_string()
    } else {
        owner.user.to_string()
    }
}

/// `user@host`, as key slots are labelled.
pub fn label() -> String {
    format!("{}@{}", user(), host())
}

/// This program and its version, as snapshots name it.
pub fn program() -> String {
    concat!("onefold ", env!("CARGO_PKG_VERSION")).to_owned()
}
