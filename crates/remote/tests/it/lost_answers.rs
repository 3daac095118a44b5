//! Whatever becomes of a request, the caller hears what became of the object.

use std::sync::Arc;
use std::time::Duration;

use onefold_io::{ErrorKind, MemDir};
use onefold_remote::{Options, Remote};
use onefold_store::registry::registers::Expect;
use onefold_store::{Error, Place, forgotten};

use crate::fake::{Dialect, Fake, Fault};
use crate::fixture::{connect, location, options, place};

const NAME: &str = "containers/ab/ab00000000000001";

/// Faults of a request after which no answer comes, or none that helps.
const NO_ANSWER: [Fault; 7] = [
    Fault::Refused,
    Fault::AnswerLost,
    Fault::Late(1),
    Fault::Late(3),
    Fault::Status(503, "SlowDown"),
    Fault::Status(500, "InternalError"),
    Fault::Status(409, "ConditionalRequestConflict"),
];

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Err(Error::Io(error)) => error.kind,
        other => panic!("an error was expected: {other:?}"),
    }
}

fn made() -> (Fake, Place) {
    let fake = Fake::start();
    let place = place(&fake, 1);
    (fake, place)
}

#[test]
fn who_puts_an_object_under_a_free_name_hears_that_it_did() {
    for fault in NO_ANSWER {
        for second in NO_ANSWER.into_iter().map(Some).chain([None]) {
            let (fake, place) = made();
            fake.fail([Some(fault), second]);
            let put = place.objects.put_if_absent(NAME, &[b"ours"]);
            put.unwrap_or_else(|error| panic!("{fault:?}, then {second:?}: {error}"));
            fake.settle();
            assert_eq!(place.objects.get(NAME).unwrap(), b"ours", "{fault:?}");
        }
    }
}

#[test]
fn who_finds_the_name_taken_hears_that_and_overwrites_nothing() {
    for fault in NO_ANSWER.into_iter().map(Some).chain([None]) {
        let (fake, place) = made();
        place.objects.put_if_absent(NAME, &[b"theirs"]).unwrap();
        fake.fail([fault]);
        let put = place.objects.put_if_absent(NAME, &[b"ours, and longer"]);
        assert_eq!(kind(put), ErrorKind::Exists, "{fault:?}");
        fake.settle();
        assert_eq!(place.objects.get(NAME).unwrap(), b"theirs", "{fault:?}");
    }
}

/// The same bytes that were there before are another's, if they were there before the first attempt.
#[test]
fn equal_bytes_that_were_there_before_are_told_as_taken() {
    let (_fake, place) = made();
    place.objects.put_if_absent(NAME, &[b"same"]).unwrap();
    let again = place.objects.put_if_absent(NAME, &[b"same"]);
    assert_eq!(kind(again), ErrorKind::Exists);
}

#[test]
fn a_register_that_was_written_is_known_to_be() {
    for fault in NO_ANSWER {
        let fake = Fake::start();
        let registers = connect(&fake.endpoint(), "p", 1).registers();
        fake.fail([Some(fault)]);
        let first = registers
            .write("locks/x", &Expect::Absent, b"one")
            .expect("it was free");
        fake.settle();
        fake.fail([Some(fault)]);
        let second = registers.write("locks/x", &Expect::Version(first.clone()), b"two");
        let second = second.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        fake.settle();
        let found = registers.read("locks/x").unwrap().expect("it is there");
        assert_eq!(
            (&found.bytes[..], &found.version),
            (&b"two"[..], &second),
            "{fault:?}"
        );
        fake.fail([Some(fault)]);
        let outdated = registers.write("locks/x", &Expect::Version(first), b"three");
        assert_eq!(kind(outdated), ErrorKind::Exists, "{fault:?}");
        fake.settle();
        assert_eq!(
            registers
                .read("locks/x")
                .unwrap()
                .expect("it is there")
                .bytes,
            b"two"
        );
    }
}

#[test]
fn readings_that_break_off_are_read_again() {
    let (fake, place) = made();
    place.objects.put_if_absent(NAME, &[&[7; 10_000]]).unwrap();
    for fault in [
        Fault::Truncated,
        Fault::AnswerLost,
        Fault::Status(503, "SlowDown"),
        Fault::Status(429, ""),
    ] {
        fake.fail([Some(fault)]);
        assert_eq!(place.objects.get(NAME).unwrap(), [7; 10_000], "{fault:?}");
        fake.fail([Some(fault)]);
        let mut part = [0; 5_000];
        place.objects.get_range(NAME, 5_000, &mut part).unwrap();
        assert_eq!(part, [7; 5_000], "{fault:?}");
        fake.fail([Some(fault)]);
        let tail = place.objects.get_tail(NAME, 100).unwrap();
        assert_eq!(tail, (vec![7; 100], 10_000), "{fault:?}");
        fake.fail([Some(fault)]);
        assert_eq!(
            place.objects.list("containers").unwrap(),
            [NAME],
            "{fault:?}"
        );
    }
}

#[test]
fn a_store_that_answers_no_more_has_lost_nothing() {
    let (fake, place) = made();
    place.objects.make_folder("containers").unwrap();
    place.objects.put_if_absent(NAME, &[b"ours"]).unwrap();
    for (fault, kind_of_writing) in [
        (Fault::Status(503, "SlowDown"), ErrorKind::Unavailable),
        (Fault::Refused, ErrorKind::Unavailable),
        (Fault::Status(403, "AccessDenied"), ErrorKind::Denied),
        (Fault::Status(404, "NoSuchBucket"), ErrorKind::Unavailable),
    ] {
        let always = || std::iter::repeat_n(Some(fault), 100);
        for read in [
            |place: &Place| place.objects.get(NAME).map(drop),
            |place: &Place| place.objects.get_range(NAME, 0, &mut [0]),
            |place: &Place| place.objects.get_tail(NAME, 9).map(drop),
            |place: &Place| place.objects.list("containers").map(drop),
        ] {
            fake.fail(always());
            let error = read(&place).expect_err("it does not answer");
            assert!(
                error.is_unavailable() && !error.is_loss(),
                "{fault:?}: {error}"
            );
            fake.settle();
        }
        fake.fail(always());
        assert_eq!(
            kind(place.objects.put_if_absent("keys/1", &[b"x"])),
            kind_of_writing
        );
        fake.settle();
    }
    assert_eq!(place.objects.get(NAME).unwrap(), b"ours");
}

#[test]
fn what_is_listed_in_pages_is_listed_once_whatever_breaks_off() {
    let fake = Fake::start();
    fake.page(3);
    let place = place(&fake, 1);
    place.objects.make_folder("snapshots").unwrap();
    let names: Vec<_> = (0..20).map(|n| format!("snapshots/{n:064x}")).collect();
    for name in &names {
        place.objects.put_if_absent(name, &[b"x"]).unwrap();
    }
    for page in 0..8 {
        let fine = std::iter::repeat_n(None, page);
        fake.fail(fine.chain([Some(Fault::Truncated), Some(Fault::Refused)]));
        assert_eq!(
            place.objects.list("snapshots").unwrap(),
            names,
            "page {page}"
        );
    }
    place.objects.delete_all(&names).unwrap();
    assert!(place.objects.list("snapshots").unwrap().is_empty());
    let all = fake.keys();
    assert_eq!(all, ["some/prefix/snapshots/.made"]);
    place.objects.delete("snapshots/.made").unwrap();
    assert_eq!(kind(place.objects.list("snapshots")), ErrorKind::NotFound);
}

#[test]
fn a_list_of_the_forgotten_goes_a_month_later_and_what_came_late_with_it() {
    let (fake, place) = made();
    let root = onefold_store::RootId([7; 32]);
    let object = format!("snapshots/{root}");
    forgotten::put(&*place.objects, &[root]).unwrap();
    place.objects.put(&object, &[b"it came late"]).unwrap();
    fake.advance_s(29 * 24 * 60 * 60);
    forgotten::clear_old(&*place.objects).unwrap();
    assert_eq!(forgotten::read(&*place.objects).unwrap().len(), 1);
    fake.advance_s(24 * 60 * 60);
    forgotten::clear_old(&*place.objects).unwrap();
    assert!(forgotten::read(&*place.objects).unwrap().is_empty());
    assert_eq!(kind(place.objects.get(&object)), ErrorKind::NotFound);
}

#[test]
fn a_request_that_stands_still_is_given_up_and_made_again() {
    let fake = Fake::start();
    let options = Options {
        stalled_after: Duration::from_millis(100),
        ..options(1)
    };
    let remote = Remote::connect(&location(&fake.endpoint(), "p"), &options).unwrap();
    let objects = remote.place(Arc::new(MemDir::new())).objects;
    fake.fail([Some(Fault::Stalled)]);
    objects.put_if_absent(NAME, &[b"ours"]).unwrap();
    fake.fail([Some(Fault::Stalled)]);
    assert_eq!(objects.get(NAME).unwrap(), b"ours");
    let asked = fake.requests();
    let counts = remote.counts();
    assert_eq!(
        asked.len() as u64,
        counts.reads + counts.writes,
        "{asked:?}"
    );
}

#[test]
fn an_age_is_by_the_stores_own_clock() {
    let fake = Fake::start();
    let registers = connect(&fake.endpoint(), "p", 1).registers();
    registers
        .write("sessions/1", &Expect::Absent, b"one")
        .unwrap();
    fake.advance_s(3600);
    let age = registers
        .read("sessions/1")
        .unwrap()
        .expect("it is there")
        .age_s;
    assert_eq!(age, Some(3600));
}

#[test]
fn a_version_is_never_read_with_the_bytes_before_it() {
    let fake = Fake::start();
    fake.speak(Dialect::TagsBeforeBytes);
    let [one, other] = [1, 2].map(|seed| connect(&fake.endpoint(), "p", seed).registers());
    let name = "sessions/0123456789abcdef";
    let first = one.write(name, &Expect::Absent, b"active").unwrap();
    let second = one
        .write(name, &Expect::Version(first), b"committing")
        .unwrap();
    let found = other.read(name).unwrap().expect("it was written");
    assert_eq!(
        (&found.bytes[..], found.version),
        (&b"committing"[..], second)
    );
}
