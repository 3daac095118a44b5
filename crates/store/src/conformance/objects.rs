//! The suite of [`ObjectStore`].

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::{ErrorKind, Random, ReadAt};

use crate::container::CONTAINER_FOLDER;
use crate::objects::ObjectStore;
use crate::roots::ROOT_FOLDER;
use crate::{Error, Result};

/// Random operations in a run.
const OPERATIONS: u64 = 600;

/// Runs the suite of [`ObjectStore`] on stores that `make` gives, each an empty one.
///
/// # Panics
/// Where one does not do as the trait promises.
pub fn objects(make: &mut dyn FnMut() -> Arc<dyn ObjectStore>) {
    folders_are_there_once_they_were_made(&*make());
    what_is_missing_is_told_as_missing(&*make());
    ranges_and_tails_are_parts_of_the_object(&*make());
    of_two_that_put_one_is_first(make());
    for seed in 0..4 {
        as_the_naive_twin_does(&*make(), seed);
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io(error)) => error.kind,
        other => panic!("expected an error of the device, found {other:?}"),
    }
}

fn folders_are_there_once_they_were_made(objects: &dyn ObjectStore) {
    assert!(!objects.has_folder(ROOT_FOLDER).unwrap());
    assert_eq!(kind(objects.list(ROOT_FOLDER)), ErrorKind::NotFound);
    assert!(objects.left_over().unwrap().is_empty());
    objects.make_folder(ROOT_FOLDER).unwrap();
    objects.make_folder(ROOT_FOLDER).unwrap();
    assert!(objects.has_folder(ROOT_FOLDER).unwrap());
    assert!(objects.list(ROOT_FOLDER).unwrap().is_empty());
    assert!(!objects.has_folder(CONTAINER_FOLDER).unwrap());
    objects.put("config", &[b"x"]).unwrap();
    assert!(matches!(objects.left_over(), Err(Error::NotEmpty { .. })));
}

fn what_is_missing_is_told_as_missing(objects: &dyn ObjectStore) {
    objects.make_folder(CONTAINER_FOLDER).unwrap();
    for name in [
        "config",
        "containers/00/0000000000000001",
        "keys/0000000000000001",
    ] {
        assert_eq!(kind(objects.get(name)), ErrorKind::NotFound);
        assert_eq!(kind(objects.len(name)), ErrorKind::NotFound);
        assert_eq!(
            kind(objects.get_range(name, 0, &mut [0])),
            ErrorKind::NotFound
        );
        assert_eq!(kind(objects.get_tail(name, 9)), ErrorKind::NotFound);
        assert_eq!(
            kind(objects.rename_new(name, &format!("{name}-2"))),
            ErrorKind::NotFound
        );
        objects.delete(name).unwrap();
        objects.delete_all(&[name.into()]).unwrap();
        objects.keep(&[name.into()]).unwrap();
        objects.forget_cached(name);
    }
}

fn ranges_and_tails_are_parts_of_the_object(objects: &dyn ObjectStore) {
    let bytes = Random(7).bytes(10_000);
    let name = "containers/ab/ab00000000000001";
    let parts: Vec<&[u8]> = bytes.chunks(3_333).collect();
    objects.put_if_absent(name, &parts).unwrap();
    let (mut first, mut second, mut last) = ([0; 10], [0; 5_000], [0; 1]);
    let mut ranges = [
        ReadAt {
            offset: 9_999,
            buf: &mut last,
        },
        ReadAt {
            offset: 0,
            buf: &mut first,
        },
        ReadAt {
            offset: 5_000,
            buf: &mut second,
        },
    ];
    objects.get_ranges(name, &mut ranges).unwrap();
    assert_eq!((&first[..], &last[..]), (&bytes[..10], &bytes[9_999..]));
    assert_eq!(second[..], bytes[5_000..]);
    for (bytes_max, from) in [(0, 10_000), (1, 9_999), (10_000, 0), (20_000, 0)] {
        let tail = objects.get_tail(name, bytes_max).unwrap();
        assert_eq!(tail, (bytes[from..].to_vec(), 10_000));
    }
    let behind = kind(objects.get_range(name, 9_999, &mut [0; 2]));
    assert_eq!(behind, ErrorKind::Short);
}

fn of_two_that_put_one_is_first(objects: Arc<dyn ObjectStore>) {
    objects.make_folder(CONTAINER_FOLDER).unwrap();
    for round in 0..50 {
        let name = format!("containers/00/{round:016x}");
        let put = |byte: u8| objects.put_if_absent(&name, &[&[byte; 4096]]).is_ok();
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| put(1));
            (put(2), one.join().unwrap())
        });
        assert!(one != other, "round {round}: two were first, or none");
        let winner = if one { 2 } else { 1 };
        assert_eq!(objects.get(&name).unwrap(), [winner; 4096]);
    }
}

/// The naive twin: objects by name.
type Twin = BTreeMap<String, Vec<u8>>;

fn as_the_naive_twin_does(objects: &dyn ObjectStore, seed: u64) {
    let mut random = Random(seed);
    let mut twin = Twin::new();
    let names = names();
    for folder in [CONTAINER_FOLDER, ROOT_FOLDER] {
        objects.make_folder(folder).unwrap();
    }
    for number in 0..OPERATIONS {
        let name = &names[random.below(names.len() as u64) as usize];
        let len = random.below(200) as usize;
        let bytes = random.bytes(len);
        let point = format!("seed {seed}, operation {number}, {name}");
        match random.below(6) {
            0 => {
                objects.put(name, &[&bytes]).expect(&point);
                twin.insert(name.clone(), bytes);
            }
            1 | 2 => {
                let put = objects.put_if_absent(name, &[&bytes[..len / 2], &bytes[len / 2..]]);
                if twin.contains_key(name) {
                    assert_eq!(kind(put), ErrorKind::Exists, "{point}")
                } else {
                    put.expect(&point);
                    twin.insert(name.clone(), bytes);
                }
            }
            3 => {
                objects.delete(name).expect(&point);
                twin.remove(name);
            }
            4 => {
                let gone: Vec<_> = names.iter().filter(|_| random.one_in(4)).cloned().collect();
                objects.delete_all(&gone).expect(&point);
                twin.retain(|name, _| !gone.contains(name));
            }
            _ => rename(objects, &mut twin, name, &point),
        }
        compare(objects, &twin, &names, &point);
    }
}

fn names() -> Vec<String> {
    let containers = (0..6).map(|n| format!("containers/0{}/{n:016x}", n % 3));
    let roots = (0..3).map(|n| format!("snapshots/{n:064x}"));
    containers.chain(roots).chain(["config".into()]).collect()
}

fn rename(objects: &dyn ObjectStore, twin: &mut Twin, name: &str, point: &str) {
    let to = format!("{name}.unreadable");
    let renamed = objects.rename_new(name, &to);
    match (twin.get(name).cloned(), twin.contains_key(&to)) {
        (None, _) => assert_eq!(kind(renamed), ErrorKind::NotFound, "{point}"),
        (Some(_), true) => assert_eq!(kind(renamed), ErrorKind::Exists, "{point}"),
        (Some(bytes), false) => {
            renamed.expect(point);
            twin.remove(name);
            twin.insert(to, bytes);
        }
    }
}

fn compare(objects: &dyn ObjectStore, twin: &Twin, names: &[String], point: &str) {
    for folder in [CONTAINER_FOLDER, ROOT_FOLDER] {
        let prefix = format!("{folder}/");
        let below = twin.iter().filter(|(name, _)| name.starts_with(&prefix));
        let lengths: Vec<_> = below
            .map(|(name, bytes)| (name.clone(), bytes.len() as u64))
            .collect();
        let listed: Vec<_> = lengths.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(objects.list(folder).expect(point), listed, "{point}");
        let found = objects.lengths_past(folder, &mut Err).expect(point);
        assert_eq!(found, lengths, "{point}");
    }
    for name in names {
        match (objects.get(name), twin.get(name)) {
            (Ok(found), Some(bytes)) => assert_eq!(found, *bytes, "{point}"),
            (found, None) => assert_eq!(kind(found), ErrorKind::NotFound, "{point}"),
            (Err(error), Some(_)) => panic!("{point}: {name}: {error}"),
        }
    }
}
