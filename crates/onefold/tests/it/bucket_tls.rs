//! Buckets that are reached by TLS, over a real server whose certificate an authority of the tests' own has signed. The
//! certificates in `tests/tls` are valid for a hundred years, and for 127.0.0.1 alone.

use std::path::{Path, PathBuf};

use crate::bucket::Machine;
use crate::rig::{Ran, change, seeded};
use crate::versitygw::Server;

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    folder.join(name)
}

#[test]
fn a_certificate_is_trusted_by_the_variable_or_the_flag_alone() {
    let Some(server) = Server::start_with_tls(&file("server.pem"), &file("server.key")) else {
        return;
    };
    let machine = Machine::new(&server);
    change(&machine.source(), &mut seeded("tls"));
    let trusting = |trusted: Option<&str>, args: &[&str]| -> Ran {
        let mut command = machine.command(args);
        match trusted {
            Some(name) => command.env("ONEFOLD_CACERT", file(name)),
            None => command.env_remove("ONEFOLD_CACERT"),
        };
        command.output().expect("it starts").into()
    };
    // Neither the server's own certificate is an authority, nor does the system know this one.
    for trusted in [None, Some("server.pem")] {
        let ran = trusting(trusted, &["snapshots"]).ends(15);
        assert!(ran.err.contains("certificate"), "{}", ran.err);
    }
    let trusted = Some("authority.pem");
    trusting(trusted, &["init"]).ends(0);
    trusting(trusted, &["backup", "source"]).ends(0);
    let flag = file("authority.pem");
    let flag = flag.to_str().expect("a name");
    let checked = trusting(None, &["check", "--read-data", "--cacert", flag]).ends(0);
    assert!(checked.out.contains("no damage"), "{}", checked.out);
    // A file without certificates is a mistake of who gives it.
    trusting(Some("server.key"), &["snapshots"]).ends(2);
}
