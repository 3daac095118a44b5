//! Each implementation of the store's seams does what its trait promises.

use std::sync::Arc;

use onefold_io::{Dir, FileDir, MemDir, SimDir};
use onefold_store::objects::{LocalObjects, ObjectStore};
use onefold_store::simulated::SimStore;
use onefold_store::{Entropy, Place, conformance};

fn local(dir: Arc<dyn Dir>) -> Arc<dyn ObjectStore> {
    Arc::new(LocalObjects::new(dir, Entropy::seeded(1)))
}

#[test]
fn objects_in_a_folder_conform() {
    conformance::objects(&mut || local(Arc::new(MemDir::new())));
    conformance::objects(&mut || local(Arc::new(SimDir::new(1))));
    let mut folders = Vec::new();
    conformance::objects(&mut || {
        let folder = tempfile::tempdir().unwrap();
        let dir = FileDir::open(folder.path()).unwrap();
        folders.push(folder);
        local(Arc::new(dir))
    });
}

#[test]
fn simulated_objects_conform() {
    conformance::objects(&mut || Arc::new(SimStore::new(1)));
}

#[test]
fn a_registry_of_locked_files_conforms() {
    let mut dirs = Vec::new();
    let mut seed = 0;
    let mut make = || {
        let folder = tempfile::tempdir().unwrap();
        let dir: Arc<dyn Dir> = Arc::new(FileDir::open(folder.path()).unwrap());
        dirs.push(folder);
        seed += 1;
        Place::local(dir, &Entropy::seeded(seed))
    };
    // A local folder is its machine's own, too.
    let other = |place: &Place| Place::local(Arc::clone(&place.own), &Entropy::seeded(1_000));
    conformance::registry(&mut make, &other);
}

#[test]
fn a_registry_of_registers_conforms() {
    let mut seed = 0;
    let stores = std::cell::RefCell::new(Vec::new());
    let mut make = || {
        seed += 1;
        let store = SimStore::new(seed);
        stores.borrow_mut().push(store.clone());
        store.place(Arc::new(MemDir::new()), &Entropy::seeded(seed))
    };
    let other = |_: &Place| {
        let store = stores.borrow().last().unwrap().connect();
        store.place(Arc::new(MemDir::new()), &Entropy::seeded(1_000))
    };
    conformance::registry(&mut make, &other);
}
