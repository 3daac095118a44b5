//! Files through the conformance suite, with every method of reading batches; each test counts that its reads used that
//! method.
//!
//! A method that the machine refuses is reported, and the test passes: it cannot be installed (`untested`).

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;

use onefold_io::os::cached_bytes;
use onefold_io::{BatchWays, Batching, Dir, FileDir, ReadAt, batch_ways, uring_works};

use crate::conformance;
use crate::untested::not_tested;

/// The reads of batches that `run` does, by method.
fn ways_of(run: impl FnOnce()) -> BatchWays {
    let before = batch_ways();
    run();
    let after = batch_ways();
    BatchWays {
        cached: after.cached - before.cached,
        ring: after.ring - before.ring,
        threads: after.threads - before.threads,
        one_by_one: after.one_by_one - before.one_by_one,
    }
}

/// Runs the suite in folders that `options` configures.
fn files(options: fn(FileDir) -> FileDir) -> BatchWays {
    ways_of(|| {
        conformance::dir(|| {
            let temp = tempfile::tempdir().unwrap();
            let dir = options(FileDir::open(temp.path()).unwrap());
            (Arc::new(dir) as Arc<dyn Dir>, temp)
        });
    })
}

/// Smallest number of reads that a suite should do by its method.
const MANY: u64 = 100;

/// No read may come from the page cache; those behind the end of a file, which the ring does not do, go to threads.
fn went_through_the_ring(ways: BatchWays) {
    assert_eq!(ways.cached, 0);
    if uring_works() {
        assert!(ways.ring > MANY, "{ways:?}");
    } else {
        not_tested("io_uring, which the system refuses: threads read instead");
        assert!(ways.ring == 0 && ways.threads > MANY, "{ways:?}");
    }
}

fn went_by_threads(ways: BatchWays) {
    assert!(
        ways.cached + ways.ring == 0 && ways.threads > MANY,
        "{ways:?}"
    );
}

#[test]
fn file_by_default() {
    let ways = files(|dir| dir);
    assert!(ways.cached > MANY, "what was just written: {ways:?}");
}

#[test]
fn file_with_io_uring() {
    went_through_the_ring(files(|dir| dir.batched(Batching::Ring)));
}

#[test]
fn file_with_threads() {
    went_by_threads(files(|dir| dir.batched(Batching::Threads)));
}

#[test]
fn file_one_by_one() {
    let ways = files(|dir| dir.batched(Batching::Sequential));
    assert!(ways.cached + ways.ring + ways.threads == 0 && ways.one_by_one > MANY);
}

/// Whether the temporary folder supports direct I/O.
fn direct_works() -> bool {
    let temp = tempfile::NamedTempFile::new().unwrap();
    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(temp.path());
    if direct.is_err() {
        not_tested("O_DIRECT, which the file system of the temporary folder refuses");
    }
    direct.is_ok()
}

#[test]
fn direct_with_io_uring() {
    let ways = files(FileDir::direct);
    if direct_works() {
        went_through_the_ring(ways);
    }
}

#[test]
fn direct_with_threads() {
    let ways = files(|dir| dir.direct().batched(Batching::Threads));
    if direct_works() {
        went_by_threads(ways);
    }
}

#[test]
fn what_the_page_cache_does_not_hold_is_asked_of_the_device() {
    const STRIDE: usize = 1 << 20;
    const READS: usize = 40;
    let temp = tempfile::tempdir().unwrap();
    let disk = FileDir::open(temp.path()).unwrap().create("a").unwrap();
    let bytes: Vec<u8> = (0..READS * STRIDE).map(|i| (i / 11) as u8).collect();
    disk.write_at(&bytes, 0).unwrap();
    disk.sync().unwrap();
    let file = File::open(temp.path().join("a")).unwrap();
    // A read without waiting starts reading ahead, so the data may be there before it is looked for: on a busy machine,
    // all of it.
    for _ in 0..20 {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let held = cached_bytes(std::os::fd::AsFd::as_fd(&file), 0, bytes.len() as u64);
        if held != Some(0) {
            return not_tested(
                "cold reads: the file system of the temporary folder keeps all in RAM",
            );
        }
        let mut bufs = vec![[0; 5000]; READS];
        let mut reads: Vec<ReadAt<'_>> = Vec::new();
        for (i, buf) in bufs.iter_mut().enumerate() {
            let offset = (i * STRIDE + 777) as u64;
            reads.push(ReadAt { offset, buf });
        }
        let ways = ways_of(|| disk.read_many_at(&mut reads).unwrap());
        for (i, buf) in bufs.iter().enumerate() {
            assert!(buf[..] == bytes[i * STRIDE + 777..][..5000]);
        }
        let asked = if uring_works() {
            ways.ring
        } else {
            ways.threads
        };
        assert!(asked + ways.cached == READS as u64, "{ways:?}");
        if asked > 1 {
            return;
        }
    }
    not_tested("cold reads: the device is faster than who asks");
}

/// The system calls of io_uring, the same on every architecture.
const IO_URING_SETUP: u32 = 425;
const IO_URING_REGISTER: u32 = 427;

/// Makes the system call `number` fail with `errno`, for the calling thread and all that it starts from now on.
fn refuse(number: u32, errno: i32) {
    let step = |code: u32, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its steps live across the calls, which copy them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

/// A container's filter refuses the ring; a kernel before 5.6 has one, but knows neither its probe nor its reads.
#[test]
fn where_io_uring_is_refused_or_too_old_threads_read_instead() {
    let cases = [
        (IO_URING_SETUP, libc::EPERM),
        (IO_URING_SETUP, libc::ENOSYS),
        (IO_URING_REGISTER, libc::EINVAL),
    ];
    for (number, errno) in cases {
        let run = move || {
            refuse(number, errno);
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "ways::file_with_io_uring"])
                .env_remove("CI")
                .output()
                .unwrap()
        };
        let done = std::thread::spawn(run).join().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let shown = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{shown}{said}");
        assert!(shown.contains("1 passed"), "{shown}");
        assert!(
            said.contains("io_uring, which the system refuses"),
            "{said}"
        );
    }
}
