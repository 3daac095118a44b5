//! The suites of the store's traits, over the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::MemDir;
use onefold_store::conformance;

use crate::fake::{Fake, Rates};
use crate::fixture::{connect, place};

/// Each has a prefix of its own in one bucket, which shows that none sees another's.
#[test]
fn objects_are_as_the_trait_promises() {
    let fake = Fake::start();
    fake.page(7);
    let mut made = 0;
    conformance::objects(&mut || {
        made += 1;
        connect(&fake.endpoint(), &format!("p{made}"), made)
            .place(Arc::new(MemDir::new()))
            .objects
    });
}

#[test]
fn sessions_and_locks_are_as_the_trait_promises() {
    let fake = Fake::start();
    let made = AtomicU64::new(0);
    let connect = |prefix: u64| {
        let seed = made.fetch_add(1, Relaxed);
        connect(&fake.endpoint(), &format!("p{prefix}"), seed).place(Arc::new(MemDir::new()))
    };
    let prefix = AtomicU64::new(0);
    conformance::registry(&mut || connect(prefix.fetch_add(1, Relaxed) + 1), &|_| {
        connect(prefix.load(Relaxed))
    });
}

/// Requests that fail, come late or come twice change nothing of what is promised.
#[test]
fn objects_are_as_promised_where_one_request_in_twenty_fails() {
    let fake = Fake::start();
    let rates = Rates {
        busy: 100,
        refused: 100,
        answer_lost: 200,
        truncated: 100,
        ..Rates::default()
    };
    fake.fail_at_random(rates, 3);
    let mut made = 0;
    conformance::objects(&mut || {
        made += 1;
        connect(&fake.endpoint(), &format!("p{made}"), made)
            .place(Arc::new(MemDir::new()))
            .objects
    });
}

#[test]
fn no_root_is_lost_in_a_race_where_one_request_in_ten_fails() {
    let fake = Fake::start();
    let (one, other) = (place(&fake, 1), place(&fake, 2));
    one.objects.make_folder("snapshots").unwrap();
    let rates = Rates {
        busy: 200,
        refused: 200,
        answer_lost: 200,
        late: 200,
        doubled: 200,
        truncated: 100,
    };
    fake.fail_at_random(rates, 5);
    conformance::lose_no_root_in_a_race(&(one, other), 200);
}
