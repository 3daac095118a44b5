//! The suite of [`Registry`](crate::registry::Registry).

use std::collections::BTreeMap;

use onefold_io::Random;

use crate::folders::ROOT_FOLDER;
use crate::objects::ObjectStore;
use crate::registry::{Held, Lock, Pin, PinInfo, PinState, Registry, Revoked, RootPlan};
use crate::repository::place::Place;
use crate::root;
use crate::{Error, RootId, protocol};

/// Random operations in a run.
const OPERATIONS: u64 = 400;
/// Races in which one publishes a root while another revokes its session.
const RACES: u64 = 200;

/// Runs the suite of [`Registry`] on places that `make` gives, each an empty one. A second process on the same place is
/// what `other` makes of it.
///
/// # Panics
/// Where one does not do as the trait promises.
pub fn registry(make: &mut dyn FnMut() -> Place, other: &dyn Fn(&Place) -> Place) {
    let mut prepared = || {
        let place = make();
        prepare(&place);
        let other = other(&place);
        (place, other)
    };
    a_session_is_seen_while_it_lives(&prepared());
    a_revoked_session_puts_no_root(&prepared());
    a_lock_has_one_holder(&prepared());
    a_plan_is_carried_out(&prepared());
    for seed in 0..4 {
        as_the_naive_twin_does(&prepared(), seed);
    }
    lose_no_root_in_a_race(&prepared(), RACES);
}

fn prepare(place: &Place) {
    place.objects.make_folder(ROOT_FOLDER).unwrap();
    place.registry.init().unwrap();
    place.registry.init().unwrap();
}

fn info(activity: &str) -> PinInfo {
    PinInfo {
        process: 7,
        host: "here".into(),
        activity: activity.into(),
    }
}

fn root(number: u64) -> (RootId, Vec<u8>) {
    let stored = format!("root {number}").into_bytes();
    (RootId(*blake3::hash(&stored).as_bytes()), stored)
}

fn listed(objects: &dyn ObjectStore) -> Vec<RootId> {
    let listed = objects.list(ROOT_FOLDER).unwrap();
    root::ids(&listed)
}

fn names(registry: &dyn Registry) -> Vec<String> {
    let mut names: Vec<_> = registry
        .living()
        .unwrap()
        .into_iter()
        .map(|session| session.name)
        .collect();
    names.sort_unstable();
    names
}

fn is_lost<T>(result: crate::Result<T>) -> bool {
    matches!(result, Err(Error::PinLost { .. }))
}

fn a_session_is_seen_while_it_lives((place, other): &(Place, Place)) {
    assert!(other.registry.living().unwrap().is_empty());
    let holds: Vec<_> = (0..300).map(|number| root(number).0).collect();
    let reader = place.registry.begin(&info("a mount"), &holds).unwrap();
    for by in [place, other] {
        assert_eq!(by.registry.living().unwrap()[0].holds, holds);
    }
    drop(reader);
    let pin = place.registry.begin(&info("a backup"), &[]).unwrap();
    for _ in 0..2 {
        let living = other.registry.living().unwrap();
        assert_eq!((living.len(), living[0].holds.len()), (1, 0));
        assert_eq!(
            (&living[0].name[..], &living[0].info),
            (pin.name(), &info("a backup"))
        );
        assert_eq!(
            (living[0].state, living[0].is_stale),
            (PinState::Active, false)
        );
        pin.confirm().unwrap();
        pin.saw(&[crate::registry::ListNumber(3)]).unwrap();
    }
    drop(pin);
    assert!(other.registry.living().unwrap().is_empty());
}

fn a_revoked_session_puts_no_root((place, other): &(Place, Place)) {
    let ((first, bytes), (second, more)) = (root(1), root(2));
    let pin = place.registry.begin(&info("a backup"), &[]).unwrap();
    assert!(pin.publish(&first, &bytes).unwrap());
    assert!(!pin.publish(&first, &bytes).unwrap(), "it was there");
    assert_eq!(other.registry.revoke(pin.name()).unwrap(), Revoked::Revoked);
    assert!(is_lost(pin.confirm()) && is_lost(pin.publish(&second, &more)));
    assert!(is_lost(pin.confirm()), "it is lost for ever");
    assert_eq!(listed(&*other.objects), [first]);
    assert!(other.registry.living().unwrap().is_empty());
    assert_eq!(other.registry.revoke(pin.name()).unwrap(), Revoked::Ended);
    let unknown = other.registry.revoke("0123456789abcdef").unwrap();
    assert_eq!(unknown, Revoked::Ended);
}

fn a_lock_has_one_holder((place, other): &(Place, Place)) {
    for lock in Lock::ALL {
        let held = place.registry.lock(lock).unwrap();
        for _ in 0..2 {
            let refused = other.registry.lock(lock).err();
            assert!(matches!(refused, Some(Error::Locked { .. })), "{refused:?}");
            held.confirm().unwrap();
        }
        drop(held);
        drop(other.registry.lock(lock).unwrap());
    }
    let all: Vec<_> = Lock::ALL
        .map(|lock| place.registry.lock(lock).unwrap())
        .into();
    drop(all);
}

fn a_plan_is_carried_out((place, other): &(Place, Place)) {
    let ((first, bytes), (second, more)) = (root(1), root(2));
    let pin = place.registry.begin(&info("a tag"), &[]).unwrap();
    pin.publish(&first, &bytes).unwrap();
    let held = place.registry.lock(Lock::Snapshots).unwrap();
    let plan = RootPlan {
        pin: Some(&*pin),
        put: vec![(second, more)],
        remove: vec![first],
    };
    // Once more does no harm.
    for _ in 0..2 {
        let mut steps = protocol::ChangeMachine::new(protocol::ProtocolRules::default());
        steps.locked();
        steps.chosen();
        held.decide(&plan, &mut steps).unwrap();
        assert_eq!(steps.next(), protocol::ChangeStep::FreeLock);
        assert_eq!(listed(&*other.objects), [second]);
    }
    drop(held);
    drop(other.registry.lock(Lock::Snapshots).unwrap());
}

/// The naive twin: what lives, what is held, what roots there are.
#[derive(Default)]
struct RegistryTwin {
    sessions: BTreeMap<String, (Box<dyn Pin>, bool)>,
    locks: BTreeMap<&'static str, Box<dyn Held>>,
    roots: Vec<RootId>,
}

fn as_the_naive_twin_does((place, other): &(Place, Place), seed: u64) {
    let (mut random, mut twin) = (Random(seed), RegistryTwin::default());
    for number in 0..OPERATIONS {
        let by = if random.one_in(2) { place } else { other };
        let point = format!("seed {seed}, operation {number}");
        act(&mut twin, &*by.registry, &mut random, &point);
        let living = twin
            .sessions
            .iter()
            .filter(|(_, (_, is_revoked))| !is_revoked);
        let living: Vec<_> = living.map(|(name, _)| name.clone()).collect();
        assert_eq!(names(&*by.registry), living, "{point}");
        twin.roots.sort_unstable();
        twin.roots.dedup();
        assert_eq!(listed(&*by.objects), twin.roots, "{point}");
    }
}

fn act(twin: &mut RegistryTwin, registry: &dyn Registry, random: &mut Random, point: &str) {
    let at = random.below(twin.sessions.len() as u64) as usize;
    let name = twin.sessions.keys().nth(at).cloned();
    match (random.below(7), name) {
        (0, _) | (_, None) => {
            let pin = registry.begin(&info("a backup"), &[]).expect(point);
            let name = pin.name().to_owned();
            assert!(
                twin.sessions.insert(name, (pin, false)).is_none(),
                "{point}"
            );
        }
        (1, Some(name)) => drop(twin.sessions.remove(&name)),
        (2, Some(name)) => {
            let (_, is_revoked) = twin.sessions.get_mut(&name).expect("it was listed");
            let expected = if std::mem::replace(is_revoked, true) {
                Revoked::Ended
            } else {
                Revoked::Revoked
            };
            assert_eq!(registry.revoke(&name).expect(point), expected, "{point}");
        }
        (3 | 4, Some(name)) => {
            let ((pin, is_revoked), (id, stored)) = (&twin.sessions[&name], root(random.below(9)));
            let published = pin.publish(&id, &stored);
            match is_revoked {
                true => assert!(is_lost(published), "{point}"),
                false => {
                    let is_new = published.expect(point);
                    assert_eq!(is_new, !twin.roots.contains(&id), "{point}");
                    twin.roots.push(id);
                }
            }
        }
        (5, Some(name)) => {
            let (pin, is_revoked) = &twin.sessions[&name];
            assert_eq!(pin.confirm().is_err(), *is_revoked, "{point}");
        }
        _ => {
            let lock = Lock::ALL[random.below(4) as usize];
            match twin.locks.remove(lock.name()) {
                Some(held) if random.one_in(2) => drop(held),
                Some(held) => {
                    assert!(registry.lock(lock).is_err(), "{point}");
                    twin.locks.insert(lock.name(), held);
                }
                None => drop(
                    twin.locks
                        .insert(lock.name(), registry.lock(lock).expect(point)),
                ),
            }
        }
    }
}

/// Publishes a root by one session while another process revokes it, `races` times: a root that was acknowledged is
/// there when roots are listed after the revoking.
///
/// # Panics
/// Where it is not.
pub fn lose_no_root_in_a_race((place, other): &(Place, Place), races: u64) {
    prepare(place);
    for race in 0..races {
        let pin = place.registry.begin(&info("a backup"), &[]).unwrap();
        let (id, stored) = root(1_000 + race);
        let (published, (revoked, there)) = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| pin.publish(&id, &stored));
            let revoked = other.registry.revoke(pin.name()).unwrap();
            let there = listed(&*other.objects).contains(&id);
            (publishing.join().unwrap(), (revoked, there))
        });
        match published {
            Ok(_) => assert!(
                there,
                "race {race}: acknowledged, and not there for who revoked: {revoked:?}, later {}",
                listed(&*other.objects).contains(&id)
            ),
            Err(error) => assert!(matches!(error, Error::PinLost { .. }), "{error}"),
        }
    }
}
