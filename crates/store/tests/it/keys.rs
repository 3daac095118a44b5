//! Key slots of which one is damaged: the others are listed, and open; and the last that does stays.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{Encryption, Error, KdfCost};

use crate::fixture::{init, open, secret};

#[test]
fn a_damaged_key_hides_no_others_and_the_last_good_one_stays() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let damaged = repository.keys().unwrap().remove(0).id;
    let good = repository
        .add_key(&secret(), "test", KdfCost::LEAST, 2)
        .unwrap();
    device
        .damage(&format!("keys/{damaged}"), |bytes| bytes.fill(7))
        .unwrap();
    let repository = open(&dir, 1, 2).unwrap();
    let listed = repository.keys().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, good);
    let refused = repository.remove_key(&good).err();
    assert!(matches!(refused, Some(Error::Option(_))), "{refused:?}");
    repository.remove_key(&damaged).unwrap();
    open(&dir, 1, 3).unwrap();
}
