//! The same over a real server: versitygw, whose program `ONEFOLD_VERSITYGW` names (`cargo xtask test` installs it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use onefold_io::MemDir;
use onefold_remote::doctor::{self, TrialExtent, TrialOutcome};
use onefold_remote::{Options, Remote};
use onefold_store::conformance;

use crate::fixture::{connect, location, options};
use crate::scale::scale;
use crate::untested::not_tested;
use crate::versitygw::Server;

#[test]
fn objects_are_as_the_trait_promises() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut made = 0;
    conformance::objects(&mut || {
        made += 1;
        let remote = connect(&server.endpoint, &format!("p{made}"), made);
        remote.place(Arc::new(MemDir::new())).objects
    });
}

#[test]
fn sessions_and_locks_are_as_the_trait_promises() {
    // With files that are synced it takes a minute.
    if scale() == 1 {
        return not_tested("sessions and locks over a real server, at a scale of 1");
    }
    if let Some(server) = Server::start() {
        sessions_and_locks(&server);
    }
}

/// Whoever revokes a session reads its register while the session writes it.
#[test]
fn a_server_that_mixes_versions_loses_no_root() {
    if let Some(server) = Server::start_with_sidecar() {
        let options = |seed| Options {
            // A reading that mixes versions is read again after the write has ended.
            pause: Options::default().pause,
            ..options(seed)
        };
        let location = location(&server.endpoint, "p");
        let connect = |seed| Remote::connect(&location, &options(seed)).expect("a connection");
        let [one, other] = [1, 2].map(|seed| connect(seed).place(Arc::new(MemDir::new())));
        conformance::lose_no_root_in_a_race(&(one, other), 40 * scale());
    }
}

fn sessions_and_locks(server: &Server) {
    let (made, prefix) = (AtomicU64::new(0), AtomicU64::new(0));
    let connect = |prefix: u64| {
        let seed = made.fetch_add(1, Relaxed);
        let remote = connect(&server.endpoint, &format!("p{prefix}"), seed);
        remote.place(Arc::new(MemDir::new()))
    };
    conformance::registry(&mut || connect(prefix.fetch_add(1, Relaxed) + 1), &|_| {
        connect(prefix.load(Relaxed))
    });
}

#[test]
fn the_doctor_finds_nothing_against_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let location = location(&server.endpoint, "p");
    let found = doctor::examine(&location, &options(1), TrialExtent::Full, &mut |_| {});
    let found = found.expect("it can be reached");
    assert_eq!(doctor::verdict(&found), TrialOutcome::Good, "{found:?}");
}

#[test]
fn the_doctor_finds_readings_that_mix_versions() {
    let Some(server) = Server::start_with_sidecar() else {
        return;
    };
    let location = location(&server.endpoint, "p");
    let found = doctor::examine(&location, &options(1), TrialExtent::Quick, &mut |_| {});
    let found = found.expect("it can be reached");
    let finding = found
        .iter()
        .find(|finding| finding.trial == "version and bytes");
    let finding = finding.expect("it was tried");
    assert_eq!(finding.verdict, TrialOutcome::Unshared, "{finding:?}");
    assert!(
        finding
            .remedy
            .as_ref()
            .is_some_and(|it| it.contains("--sidecar"))
    );
}
