//! Connections to a server under test.

use std::sync::Arc;

use onefold_io::MemDir;
use onefold_remote::{BucketLocation, Credentials, Options, Remote};
use onefold_store::{Entropy, Place};

use crate::fake::{BUCKET, Fake};
use crate::versitygw::{SECRET, USER};

pub fn location(endpoint: &str, prefix: &str) -> BucketLocation {
    let location = BucketLocation::parse(&format!("s3:{endpoint}/{BUCKET}/{prefix}"));
    location.expect("a location")
}

/// Pauses take no time.
pub fn options(seed: u64) -> Options {
    Options {
        credentials: Credentials::Keys {
            id: USER.into(),
            secret: SECRET.into(),
        },
        entropy: Entropy::seeded(seed),
        pause: Arc::new(|_| true),
        ..Options::default()
    }
}

/// A connection.
pub fn connect(endpoint: &str, prefix: &str, seed: u64) -> Remote {
    Remote::connect(&location(endpoint, prefix), &options(seed)).expect("a connection")
}

/// The same, as a place.
pub fn place(fake: &Fake, seed: u64) -> Place {
    connect(&fake.endpoint(), "some/prefix", seed).place(Arc::new(MemDir::new()))
}
