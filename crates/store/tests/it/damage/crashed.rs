//! A crash at every point of a repair that finds folders in the place of files: the next one mends what is left, and
//! what somebody keeps in such a folder is there still.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::{Faults, SimDir};
use onefold_store::Encryption;

use super::action::{Action, SOMEBODYS, damage, kind, objects};
use super::{open_somehow, stored};
use crate::fixture::{Hasty, Lists, assert_sound};

#[test]
fn a_crash_while_folders_are_set_aside_takes_nothing() {
    let stored = stored(Encryption::None, "strata");
    let paths = objects(&stored.device);
    for wanted in ["config", "index/manifest", "index/ingested", "containers"] {
        let path = paths.iter().find(|path| kind(path) == wanted).unwrap();
        let damaged = stored.device.fork();
        damage(&damaged, &stored.stranger, path, (Action::Folder, 1));
        let repair = |device: &SimDir| {
            let dir: Arc<dyn Dir> = Arc::new(device.clone());
            open_somehow(&dir, 5).and_then(|open| open.repair(&Lists, &mut Hasty))
        };
        let rehearsal = damaged.fork();
        rehearsal.inject(Faults::default());
        repair(&rehearsal).unwrap();
        let points = rehearsal.counts().points;
        assert!(points > 10);
        for point in 0..points {
            let device = damaged.fork();
            device.inject(Faults {
                crash_at: Some(point),
                ..Faults::default()
            });
            let _ = repair(&device);
            let image = device.crash_image(point);
            let context = format!("{path}, crash at {point} of {points}");
            let report = repair(&image).unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut left = image.paths().into_iter();
            assert!(left.any(|path| path.ends_with(SOMEBODYS)), "{context}");
            if wanted == "containers" {
                assert!(!report.left.hurt.is_empty(), "{context}");
                continue;
            }
            let dir: Arc<dyn Dir> = Arc::new(image);
            let repository = open_somehow(&dir, 6).unwrap();
            assert_sound(&repository, &stored.roots, &context);
        }
    }
}
