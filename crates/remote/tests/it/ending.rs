//! When the program is to end, requests end with it, and what others would wait for is taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use onefold_io::MemDir;
use onefold_remote::{Options, Remote};
use onefold_store::registry::{Lock, PinInfo};
use onefold_store::{Error, RootId};

use crate::fake::{Fake, Fault};
use crate::fixture::{location, options, place};

const NAME: &str = "containers/ab/ab00000000000001";

/// A connection to a store that may stand still for an hour, and what says that the program is to end.
fn patient(fake: &Fake) -> (Remote, Arc<AtomicBool>) {
    let is_ending = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_ending);
    let options = Options {
        stalled_after: Duration::from_secs(3600),
        is_ending: Arc::new(move || asked.load(SeqCst)),
        ..options(1)
    };
    let location = location(&fake.endpoint(), "some/prefix");
    (Remote::connect(&location, &options).unwrap(), is_ending)
}

fn info() -> PinInfo {
    PinInfo::default()
}

/// The request would take an hour otherwise.
#[test]
fn a_request_that_stands_still_ends_with_the_program() {
    let fake = Fake::start();
    let (remote, is_ending) = patient(&fake);
    let place = remote.place(Arc::new(MemDir::new()));
    place.objects.put_if_absent(NAME, &[b"ours"]).unwrap();
    let session = place.registry.begin(&info(), &[]).unwrap();
    let before = fake.requests().len();
    fake.fail(std::iter::repeat_n(Some(Fault::Stalled), 1000));
    let asking = std::thread::scope(|scope| {
        let asking = scope.spawn(|| place.objects.get(NAME));
        while fake.requests().len() == before {
            std::thread::yield_now();
        }
        is_ending.store(true, SeqCst);
        asking.join().expect("no panic")
    });
    let error = asking.expect_err("no answer came");
    assert!(error.is_unavailable() && !error.is_loss(), "{error}");
    // Nor does what is to be taken back wait for long.
    drop(session);
}

#[test]
fn who_leaves_takes_sessions_and_locks_back() {
    let fake = Fake::start();
    let (remote, is_ending) = patient(&fake);
    let own = remote.place(Arc::new(MemDir::new())).registry;
    let session = own.begin(&info(), &[]).unwrap();
    let _lock = own.lock(Lock::Sweep).unwrap();
    let other = place(&fake, 2).registry;
    assert_eq!(other.living().unwrap().len(), 1);
    assert!(matches!(other.lock(Lock::Sweep), Err(Error::Locked { .. })));
    is_ending.store(true, SeqCst);
    remote.leave()();
    assert!(other.living().unwrap().is_empty());
    other.lock(Lock::Sweep).map(drop).unwrap();
    // A thread that goes on puts no root any more.
    let put = session.publish(&RootId([7; 32]), b"root");
    assert!(matches!(put, Err(Error::PinLost { .. })), "{put:?}");
}
