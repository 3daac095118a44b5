//! SIGBUS: the system sends it to a thread that reads a page of a mapped file that is not there, because the file was
//! cut short or its disk cannot read it.
//!
//! A handler of the process, installed before the first window is guarded, replaces that page and all behind it in the
//! window by zeros, and marks the window as torn. All other causes of the signal go to the previous handler. Invariant:
//! the handler allocates nothing, takes no lock, and waits for nobody.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Largest number of windows guarded at once; further windows are refused, and their files are read instead.
const GUARDED_MAX: usize = 256;

/// The place of a guarded window.
struct GuardSlot {
    taken: AtomicBool,
    /// Number of the first page and number of pages in one word, so that a reader never sees parts of two windows. 0
    /// while nothing is guarded.
    pages: AtomicU64,
    torn: AtomicBool,
}

/// Bits of the number of pages: the others hold the number of the first page, of a 57-bit address.
const COUNT_BITS: u32 = 19;

static PLACES: [GuardSlot; GUARDED_MAX] = [const {
    GuardSlot {
        taken: AtomicBool::new(false),
        pages: AtomicU64::new(0),
        torn: AtomicBool::new(false),
    }
}; GUARDED_MAX];

/// The previous handler of the signal, and the size of a page; `None` where no handler could be installed.
static BEFORE: OnceLock<Option<(libc::sigaction, usize)>> = OnceLock::new();

/// Guards a window until dropped.
pub struct Guard(&'static GuardSlot);

/// Guards the mapping at these addresses, which begin a page; `None` where too many windows are guarded, the range is
/// too long, or no handler can be installed.
pub fn guard(addresses: Range<usize>) -> Option<Guard> {
    let (_, page) = (*BEFORE.get_or_init(install))?;
    let (first, count) = (addresses.start / page, addresses.len().div_ceil(page));
    if count >> COUNT_BITS > 0 || first >> (u64::BITS - COUNT_BITS) > 0 {
        return None;
    }
    let free = |place: &&GuardSlot| {
        let taken = place.taken.compare_exchange(false, true, SeqCst, SeqCst);
        taken.is_ok()
    };
    let place = PLACES.iter().find(free)?;
    place.torn.store(false, SeqCst);
    let pages = (first as u64) << COUNT_BITS | count as u64;
    place.pages.store(pages, SeqCst);
    Some(Guard(place))
}

impl Guard {
    /// Whether part of the window was replaced by zeros.
    pub fn is_torn(&self) -> bool {
        self.0.torn.load(SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.pages.store(0, SeqCst);
        self.0.taken.store(false, SeqCst);
    }
}

fn install() -> Option<(libc::sigaction, usize)> {
    let page = rustix::param::page_size();
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: an action of all zeros is the default one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
    // The handler uses the stack for signals where a thread has one, like the standard library's handlers.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the form that these flags ask for, and does only what is allowed in one; the old action
    // is written to memory for it.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) };
    // SAFETY: the call has written it, because it succeeded.
    (done == 0).then(|| (unsafe { before.assume_init() }, page))
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the errno is the thread's own; the interrupted code may be about to read it, so it is restored.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the system gives a handler of this form a valid description; for this signal it has an address.
    let at = unsafe { (*info).si_addr() }.addr();
    // A thread may fault while another is still in `get_or_init`: no window was guarded then.
    if let Some(Some((before, page))) = BEFORE.get()
        && !stand_in(at, *page)
    {
        pass_on(before, signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Replaces the pages from that of `at` to the end of its window by zeros; `false` where it lies in no window.
fn stand_in(at: usize, page: usize) -> bool {
    let at = at / page;
    for place in &PLACES {
        let pages = place.pages.load(SeqCst);
        let first = (pages >> COUNT_BITS) as usize;
        let end = first + (pages & ((1 << COUNT_BITS) - 1)) as usize;
        if !(first..end).contains(&at) {
            continue;
        }
        place.torn.store(true, SeqCst);
        let (from, len) = (at * page, (end - at) * page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let from = std::ptr::without_provenance_mut(from);
        // SAFETY: the pages lie in a mapping that its owner keeps while it reads it, and stay readable. No other
        // mapping can be meant: a window is guarded before anybody reads it, and until nobody does.
        let mapped = unsafe { libc::mmap(from, len, libc::PROT_READ, flags, -1, 0) };
        return mapped != libc::MAP_FAILED;
    }
    false
}

/// Calls the previous handler, or the default action, which ends the process.
fn pass_on(
    before: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type WithInfo = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type Plain = extern "C" fn(c_int);
    let handler = before.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: this sets the default action; the signal comes again when the handler returns, or is sent again.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flags say that the handler has this form.
        let handler = unsafe { std::mem::transmute::<libc::sighandler_t, WithInfo>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above.
        let handler = unsafe { std::mem::transmute::<libc::sighandler_t, Plain>(handler) };
        handler(signal);
    }
}
