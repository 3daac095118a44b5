//! Restores without the ACLs that the snapshot has.

use std::fs;
use std::os::unix::fs::MetadataExt;

use onefold_backup::exclude::Patterns;
use onefold_backup::restore::{AttributeChoice, Options};
use rustix::fs::XattrFlags;

use crate::restore::{options, scene};
use crate::scene::{back_up, restore_with};
use crate::untested::not_tested;

/// The ACL `user::rw-, user:1234:rw-, group::---, mask::rw-, other::---`, as the attribute has it.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 210, 4, 0, 0, 4, 0, 0, 0, 255, 255,
    255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

#[test]
fn without_its_acl_a_files_group_may_no_more_than_before() {
    let mut scene = scene();
    let file = fs::File::open(scene.source.join("keep")).expect("open");
    let name = "system.posix_acl_access";
    if rustix::fs::fsetxattr(&file, name, &ACL, XattrFlags::empty()).is_err() {
        return not_tested("there are no ACLs here");
    }
    scene.outcome = back_up(&scene.repository, &scene.source, 2);
    for (exclude, expected) in [("system.*", 0o600), ("user.*", 0o660)] {
        let options = Options {
            xattrs: AttributeChoice {
                exclude: Patterns::new([exclude]).expect("pattern"),
                ..AttributeChoice::default()
            },
            ..options(&scene)
        };
        restore_with(&scene.repository, &scene.outcome, &scene.target, &options);
        let mode = scene.target.join("keep").metadata().expect("stat").mode();
        assert_eq!(mode & 0o7777, expected, "{exclude}");
    }
}
