//! A test for extended attributes without opening the file: `listxattrat`, Linux 6.13.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::path::Arg;

/// Number of the system call; on machines where it means another call, the kernel refuses the arguments.
const SYS_LISTXATTRAT: libc::c_long = 465;

/// Whether `name` in `dir` has no extended attributes; a symbolic link is not followed. `false` also where the kernel
/// does not tell.
pub fn has_no_attributes(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    let names_bytes = |name: &std::ffi::CStr| {
        // SAFETY: the name ends with a zero and lives across the call, which is given no memory to write to.
        Ok(unsafe {
            libc::syscall(
                SYS_LISTXATTRAT,
                dir.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                std::ptr::null_mut::<libc::c_char>(),
                0usize,
            )
        })
    };
    name.into_with_c_str(names_bytes) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use rustix::fs::{XattrFlags, lsetxattr};

    use super::*;

    #[test]
    fn only_what_has_none_is_said_to_have_none() {
        let folder = tempfile::tempdir().expect("tempdir");
        for name in ["none", "some"] {
            fs::create_dir(folder.path().join(name)).expect("mkdir");
        }
        symlink("some", folder.path().join("link")).expect("symlink");
        let some = folder.path().join("some");
        lsetxattr(&some, "user.a", b"b", XattrFlags::empty()).expect("setxattr");
        let dir = fs::File::open(folder.path()).expect("open");
        let has_none = |name: &str| has_no_attributes(dir.as_fd(), name.as_bytes());
        assert!(!has_none("some") && !has_none("missing"));
        // An older kernel returns `false` for all.
        assert_eq!(has_none("none"), has_none("link"));
    }
}
