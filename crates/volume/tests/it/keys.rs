//! Passwords of an encrypted depot: they are added, changed and removed, and a crash in between costs nothing.

use std::sync::Arc;

use onefold_io::{Dir, SimDir};
use onefold_keys::{Entropy, Secret};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::{DepotKeys, NewPassword, system_devices};
use onefold_volume::{Compression, Error, HeadId};

use crate::encrypted::{create, new_password, open_with};

const OLD: &str = "open sesame";
const NEW: &str = "open barley";

fn password(text: &str, label: &str) -> NewPassword {
    NewPassword {
        password: Secret::new(text),
        label: label.into(),
        ..new_password()
    }
}

fn keys(device: &SimDir, password: &str) -> Result<DepotKeys, Error> {
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    DepotKeys::open(folder, system_devices(), Some(&Secret::new(password)))
}

/// A depot with a chunk in it.
fn depot() -> SimDir {
    let device = SimDir::new(1);
    create(&device, Some(new_password()), Compression::None);
    let depot = open_with(&device, Some(OLD)).expect("it opens");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    caller.write(0, &[7; 4096]).expect("room");
    caller.flush().expect("a flush");
    drop(caller);
    depot.close().expect("closed");
    device
}

/// Whether the password opens the depot; its chunk is there then.
fn opens(device: &SimDir, password: &str) -> bool {
    match open_with(device, Some(password)) {
        Ok(depot) => {
            let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
            let chunk = caller.read(0, 4096).expect("it is there");
            assert_eq!(chunk[..], [7; 4096]);
            true
        }
        Err(Error::WrongPassword { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Whether these bytes lie in a file of the depot.
fn lies_there(device: &SimDir, bytes: &[u8]) -> bool {
    device.paths().into_iter().any(|path| {
        let mut found = false;
        let look = |stored: &mut Vec<u8>| {
            found = stored.windows(bytes.len()).any(|window| window == bytes);
        };
        device.fork().damage(&path, look).expect("it is there");
        found
    })
}

#[test]
fn passwords_are_added_changed_and_removed() {
    let device = depot();
    let mut by_old = keys(&device, OLD).expect("it opens");
    let old = by_old.list().remove(0).id;
    let added = by_old
        .add(&password(NEW, "ada@lovelace"), &Entropy::seeded(2))
        .expect("room");
    let by_new = keys(&device, NEW).expect("it opens");
    let list = by_new.list();
    assert_eq!((by_old.current(), by_new.current()), (&*old, &*added));
    assert_eq!((list.len(), &list[0].id), (2, &old));
    assert_eq!(
        (&list[1].id, list[1].label.as_str()),
        (&added, "ada@lovelace")
    );
    assert!(list.iter().all(|key| key.is_proved));
    assert!(opens(&device, OLD) && opens(&device, NEW));

    let refused = by_old.remove(&old).expect_err("it is in use");
    assert!(refused.to_string().contains("in use"), "{refused}");
    let mut by_new = keys(&device, NEW).expect("it opens");
    by_new
        .remove("0123456789abcdef")
        .expect_err("there is none");
    by_new.remove(&old).expect("another is there");
    assert!(opens(&device, NEW) && !opens(&device, OLD));
    // Somebody who opened it with a key that is gone changes nothing.
    let refused = by_old.add(&password("a third", ""), &Entropy::seeded(3));
    assert!(matches!(refused, Err(Error::WrongPassword { .. })));

    by_new
        .replace_current(&password("a third", ""), &Entropy::seeded(3))
        .expect("room");
    assert!(opens(&device, "a third") && !opens(&device, NEW));
    assert!(
        !lies_there(&device, b"ada@lovelace"),
        "no copy keeps a slot"
    );
    // A configuration that is damaged is read from its copy, which has the same keys.
    device
        .damage("config", |bytes| bytes[40] ^= 1)
        .expect("it is there");
    assert!(opens(&device, "a third"));
}

#[test]
fn keys_of_an_open_depot_are_listed_and_not_changed() {
    let device = depot();
    let _open = open_with(&device, Some(OLD)).expect("it opens");
    let mut keys = keys(&device, OLD).expect("whoever has it open");
    assert_eq!(keys.list().len(), 1);
    let refused = keys.add(&password(NEW, ""), &Entropy::seeded(2));
    assert!(matches!(refused, Err(Error::Held { .. })));
}

#[test]
fn there_is_room_for_sixteen_keys() {
    let device = depot();
    let mut keys = keys(&device, OLD).expect("it opens");
    for number in 1..16 {
        keys.add(
            &password(&format!("{number}"), "somebody"),
            &Entropy::seeded(number),
        )
        .expect("room");
    }
    let refused = keys.add(&password("16", ""), &Entropy::seeded(16));
    let refused = refused.expect_err("no room").to_string();
    assert!(refused.contains("17 keys"), "{refused}");
    assert!(opens(&device, "15") && !opens(&device, "16"));
}

#[test]
fn a_crash_in_a_change_leaves_a_depot_that_one_of_both_passwords_opens() {
    let device = depot();
    let mut keys = keys(&device, OLD).expect("it opens");
    // The configuration gets several pages, so that a copy can be torn.
    for number in 3..9 {
        let label = "a long name ".repeat(40);
        keys.add(
            &password(&format!("{number}"), &label),
            &Entropy::seeded(number),
        )
        .expect("room");
    }
    device.keep_history();
    keys.replace_current(&password(NEW, ""), &Entropy::seeded(2))
        .expect("room");
    let end = device.counts().points;
    let mut by_old = 0;
    for point in 0..end {
        for seed in 0..64 {
            let image = device.crash_image_at(point, seed).expect("history");
            let opened = (opens(&image, OLD), opens(&image, NEW));
            assert!(
                opened.0 != opened.1,
                "point {point}, seed {seed}: {opened:?}"
            );
            by_old += usize::from(opened.0);
        }
    }
    assert!(by_old > 0, "the old one counts at the beginning");
    assert!(opens(&device.crash_image(5), NEW), "it was acknowledged");
}
