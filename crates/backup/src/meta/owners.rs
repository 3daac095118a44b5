//! Names and numbers of users and groups: those in `/etc/passwd` and `/etc/group`, and those that the system knows from
//! elsewhere (LDAP, SSSD, systemd-homed, as `/etc/nsswitch.conf` says).
//!
//! The files come first: they have all owners on most machines, and are read once. For others the C library is asked,
//! once for each name and number. Where that fails, which may take half a minute for a directory that cannot be
//! reached, it is not asked any more: numbers are kept anyway.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

use crate::Owner;
use crate::leaf::OWNER_NAME_BYTES_MAX;

/// Largest number of answers that are kept, of each kind: a snapshot may have any number of names.
const ANSWERS_MAX: usize = 64 << 10;

/// Names of users and groups, and their numbers.
pub struct Owners {
    users: OwnerNames,
    groups: OwnerNames,
    known: Mutex<HashMap<(u32, u32), Arc<Owner>>>,
}

impl Owners {
    /// Reads this machine's owners.
    pub fn load() -> Self {
        let text = |file| std::fs::read(file).unwrap_or_default();
        Self::with((&text("/etc/passwd"), USERS), (&text("/etc/group"), GROUPS))
    }

    /// Reads owners from the texts of such files alone.
    pub fn of(passwd: &[u8], group: &[u8]) -> Self {
        Self::with((passwd, NONE), (group, NONE))
    }

    fn with(users: (&[u8], Service), groups: (&[u8], Service)) -> Self {
        Self {
            users: OwnerNames::new(users),
            groups: OwnerNames::new(groups),
            known: Mutex::default(),
        }
    }

    /// Returns the owner with these numbers; all entries of an owner share one value.
    pub fn get(&self, uid: u32, gid: u32) -> Arc<Owner> {
        if let Some(known) = self.known.lock().get(&(uid, gid)) {
            return known.clone();
        }
        let owner = Arc::new(Owner {
            uid,
            gid,
            user: self.users.name_of(uid),
            group: self.groups.name_of(gid),
        });
        self.known.lock().entry((uid, gid)).or_insert(owner).clone()
    }

    /// Returns the number of the user called `name` on this machine.
    pub fn uid_of(&self, name: &str) -> Option<u32> {
        self.users.id_of(name)
    }

    /// Returns the number of the group called `name` on this machine.
    pub fn gid_of(&self, name: &str) -> Option<u32> {
        self.groups.id_of(name)
    }
}

/// Names and numbers of users, or of groups.
struct OwnerNames {
    /// Names in the file, by number.
    names: HashMap<u32, Box<str>>,
    ids: HashMap<Box<str>, u32>,
    service: Service,
    is_out_of_reach: AtomicBool,
    /// Names that the system has answered, by number.
    asked_names: Mutex<HashMap<u32, Box<str>>>,
    asked_ids: Mutex<HashMap<Box<str>, Option<u32>>>,
}

/// Functions of the system that are asked for names and numbers that the file lacks.
#[derive(Clone, Copy)]
struct Service {
    name_of: fn(u32) -> Result<Option<String>, Errno>,
    id_of: fn(&str) -> Result<Option<u32>, Errno>,
}

const USERS: Service = Service {
    name_of: |uid| Ok(User::from_uid(Uid::from_raw(uid))?.map(|user| user.name)),
    id_of: |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())),
};

const GROUPS: Service = Service {
    name_of: |gid| Ok(Group::from_gid(Gid::from_raw(gid))?.map(|group| group.name)),
    id_of: |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())),
};

const NONE: Service = Service {
    name_of: |_| Ok(None),
    id_of: |_| Ok(None),
};

impl OwnerNames {
    fn new((file, service): (&[u8], Service)) -> Self {
        let names = names(file);
        Self {
            ids: ids(&names),
            names,
            service,
            is_out_of_reach: AtomicBool::new(false),
            asked_names: Mutex::default(),
            asked_ids: Mutex::default(),
        }
    }

    /// Returns the name; empty where there is none, or none that a snapshot can keep.
    fn name_of(&self, id: u32) -> Box<str> {
        let name = self.names.get(&id).cloned();
        name.unwrap_or_else(|| {
            self.once(&self.asked_names, id, || {
                let name = self.answer(|service| (service.name_of)(id));
                let name = name.filter(|name| name.len() <= OWNER_NAME_BYTES_MAX);
                name.unwrap_or_default().into()
            })
        })
    }

    fn id_of(&self, name: &str) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        let id = self.ids.get(name).copied();
        id.or_else(|| {
            self.once(&self.asked_ids, name.into(), || {
                self.answer(|service| (service.id_of)(name))
            })
        })
    }

    /// Returns the known answer, or finds it out while other threads wait for it.
    fn once<K: Eq + Hash, V: Clone>(
        &self,
        answers: &Mutex<HashMap<K, V>>,
        key: K,
        find: impl FnOnce() -> V,
    ) -> V {
        let mut answers = answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.entry(key).or_insert_with(find).clone()
    }

    fn answer<T>(&self, ask: impl FnOnce(&Service) -> Result<Option<T>, Errno>) -> Option<T> {
        if self.is_out_of_reach.load(Relaxed) {
            return None;
        }
        match ask(&self.service) {
            Ok(found) => found,
            // getpwnam(3) names these errors as other words for "not found"; and one entry may be too long.
            Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM | Errno::ERANGE) => None,
            Err(_) => {
                self.is_out_of_reach.store(true, Relaxed);
                None
            }
        }
    }
}

/// Returns numbers by name; a name with several numbers gets the lowest.
fn ids(names: &HashMap<u32, Box<str>>) -> HashMap<Box<str>, u32> {
    let mut ids = HashMap::new();
    for (id, name) in names {
        let known = ids.entry(name.clone()).or_insert(*id);
        *known = (*known).min(*id);
    }
    ids
}

fn names(text: &[u8]) -> HashMap<u32, Box<str>> {
    let text = String::from_utf8_lossy(text);
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse))
            && !name.is_empty()
            && name.len() <= OWNER_NAME_BYTES_MAX
        {
            names.entry(id).or_insert_with(|| name.into());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nnonsense\n:::\n:x:9:9::/:\nann:x:1002:7::/:\nann:x:1001:7::/:\nbob:x:1001:8::/:\n";
        let owners = Owners::of(passwd, b"root:x:0:\nstaff:x:50:ann,bob\n");
        let ids = |user, group| (owners.uid_of(user), owners.gid_of(group));
        assert_eq!(ids("ann", "staff"), (Some(1001), Some(50)));
        assert_eq!(ids("carol", "ann"), (None, None));
        assert_eq!(ids("", ""), (None, None));
        let owner = owners.get(1001, 51);
        assert_eq!((&*owner.user, &*owner.group), ("ann", ""));
    }

    thread_local! {
        /// Number of times that a service was asked.
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    fn asked<T>(answer: Result<Option<T>, Errno>) -> Result<Option<T>, Errno> {
        ASKED.set(ASKED.get() + 1);
        answer
    }

    #[test]
    fn what_the_files_lack_is_asked_once() {
        const DIRECTORY: Service = Service {
            name_of: |id| asked(Ok((id == 5000).then(|| "carl".into()))),
            id_of: |name| match name {
                "gone" => asked(Err(Errno::ENOENT)),
                name => asked(Ok((name == "carl").then_some(5000))),
            },
        };
        let owners = Owners::with((b"ann:x:1001:7::/:\n", DIRECTORY), (b"", NONE));
        for _ in 0..3 {
            for (uid, name) in [(1001, "ann"), (5000, "carl"), (5001, "")] {
                assert_eq!(&*owners.get(uid, 7).user, name);
                assert_eq!(&*owners.get(uid, 8).user, name);
            }
            let found = ["ann", "carl", "gone", "dora", ""].map(|name| owners.uid_of(name));
            assert_eq!(found, [Some(1001), Some(5000), None, None, None]);
        }
        assert_eq!(ASKED.get(), 5, "5000 and 5001, carl, gone and dora");
    }

    #[test]
    fn a_directory_out_of_reach_is_asked_no_more() {
        const DEAD: Service = Service {
            name_of: |_| asked(Err(Errno::ETIMEDOUT)),
            id_of: |_| asked(Err(Errno::ETIMEDOUT)),
        };
        let owners = Owners::with((b"ann:x:1001:7::/:\n", DEAD), (b"", NONE));
        for uid in 5000..5010 {
            assert_eq!(&*owners.get(uid, 7).user, "");
        }
        assert_eq!(
            (owners.uid_of("carl"), owners.uid_of("ann")),
            (None, Some(1001))
        );
        assert_eq!(ASKED.get(), 1);
    }

    #[test]
    fn the_system_knows_root() {
        assert_eq!((USERS.name_of)(0), Ok(Some("root".into())));
        assert_eq!((USERS.id_of)("root"), Ok(Some(0)));
        assert_eq!((GROUPS.id_of)("no such group \0"), Ok(None));
    }
}
