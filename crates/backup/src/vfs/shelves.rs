//! The folders above the snapshots: `latest`, `snapshots/`, `hosts/`, `tags/` and `ids/`.
//!
//! A snapshot's folder stands in `snapshots/` alone, and the others hold links to it: a folder with two parents is
//! none that the kernel can show. Numbers of shelves and links stay as they were once given, whatever comes and goes.

use std::collections::{BTreeMap, HashMap};

use super::number::Number;
use crate::Time;

/// A snapshot that is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its number in this process.
    pub ordinal: u32,
    /// Its folder's name in `snapshots/`.
    pub name: String,
    /// The beginning of its id.
    pub id: String,
    /// When its backup began.
    pub time: Time,
    /// On which machine.
    pub host: String,
    /// The user's words.
    pub tags: Vec<String>,
}

/// A thing in a shelf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShelfItem {
    /// Another shelf.
    Shelf,
    /// A link that says this.
    Link(Vec<u8>),
    /// A snapshot.
    Snapshot(u32),
}

/// A shelf's content: names, each with its place in listings.
#[derive(Default)]
struct Shelf {
    children: BTreeMap<Vec<u8>, (u64, ShelfItem)>,
}

/// All shelves.
pub struct Shelves {
    shelves: HashMap<u64, Shelf>,
    links: HashMap<u64, Vec<u8>>,
    /// Numbers that were given to names in shelves, for ever.
    numbers: HashMap<(u64, Vec<u8>), u64>,
    next: u64,
}

const ROOT: u64 = 1;

impl Shelves {
    /// The shelves without any snapshot.
    pub fn new() -> Self {
        let mut shelves = Self {
            shelves: HashMap::new(),
            links: HashMap::new(),
            numbers: HashMap::new(),
            next: ROOT + 1,
        };
        shelves.show(&[]);
        shelves
    }

    /// Shows these snapshots, oldest first, and no others.
    pub fn show(&mut self, all: &[Shown]) {
        self.shelves.clear();
        self.links.clear();
        self.shelves.insert(ROOT, Shelf::default());
        let [snapshots, hosts, tags, ids] =
            ["snapshots", "hosts", "tags", "ids"].map(|name| self.shelf(ROOT, name));
        for shown in all {
            let name = &shown.name;
            self.add(snapshots, name, ShelfItem::Snapshot(shown.ordinal));
            self.link(ids, &shown.id, format!("../snapshots/{name}"));
            let host = self.shelf(hosts, &safe(&shown.host));
            let mut above = vec![host];
            for tag in &shown.tags {
                above.push(self.shelf(tags, &safe(tag)));
            }
            for shelf in above {
                self.link(shelf, name, format!("../../snapshots/{name}"));
                self.link(shelf, "latest", name.clone());
            }
            self.link(ROOT, "latest", format!("snapshots/{name}"));
        }
    }

    /// Returns the number of the thing that a shelf has under a name.
    pub fn child(&self, shelf: u64, name: &[u8]) -> Option<Number> {
        let (place, child) = self.shelves.get(&shelf)?.children.get(name)?;
        Some(number_of(*place, child))
    }

    /// Returns the target of a symbolic link; `None` where the number is that of a shelf or of nothing.
    pub fn target(&self, number: u64) -> Option<&[u8]> {
        self.links.get(&number).map(Vec::as_slice)
    }

    /// Whether there is a shelf of this number.
    pub fn is_shelf(&self, number: u64) -> bool {
        self.shelves.contains_key(&number)
    }

    /// Names in a shelf from place `from` on, with their places, in order of these.
    pub fn list(&self, shelf: u64, from: u64) -> Option<Vec<(u64, Vec<u8>, Number)>> {
        let children = &self.shelves.get(&shelf)?.children;
        let mut listed: Vec<_> = children
            .iter()
            .filter(|(_, (place, _))| *place >= from)
            .map(|(name, (place, child))| (*place, name.clone(), number_of(*place, child)))
            .collect();
        listed.sort_unstable_by_key(|(place, ..)| *place);
        Some(listed)
    }

    fn shelf(&mut self, above: u64, name: &str) -> u64 {
        let number = self.add(above, name, ShelfItem::Shelf);
        self.shelves.entry(number).or_default();
        number
    }

    fn link(&mut self, shelf: u64, name: &str, target: String) {
        let child = ShelfItem::Link(target.clone().into_bytes());
        let number = self.add(shelf, name, child);
        self.links.insert(number, target.into_bytes());
    }

    fn add(&mut self, shelf: u64, name: &str, child: ShelfItem) -> u64 {
        let next = &mut self.next;
        let key = (shelf, name.as_bytes().to_vec());
        let number = *self.numbers.entry(key).or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        let children = &mut self.shelves.entry(shelf).or_default().children;
        children.insert(name.as_bytes().to_vec(), (number, child));
        number
    }
}

fn number_of(place: u64, child: &ShelfItem) -> Number {
    match child {
        ShelfItem::Snapshot(ordinal) => Number::Top(*ordinal),
        ShelfItem::Shelf | ShelfItem::Link(_) => Number::Shelf(place),
    }
}

/// A host's name or a tag as the name of a folder.
fn safe(word: &str) -> String {
    match word {
        "" | "." | ".." | "latest" => format!("_{word}"),
        word => word.replace(['/', '\0'], "_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ordinal: u32, name: &str, host: &str, tags: &[&str]) -> Shown {
        Shown {
            ordinal,
            name: name.into(),
            id: format!("id{ordinal}"),
            time: Time::default(),
            host: host.into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        }
    }

    fn names(shelves: &Shelves, path: &[&str]) -> Vec<String> {
        let listed = shelves.list(number(shelves, path), 0).expect("a shelf");
        let name = |(_, name, _): (u64, Vec<u8>, Number)| String::from_utf8(name).expect("UTF-8");
        let mut names: Vec<_> = listed.into_iter().map(name).collect();
        names.sort();
        names
    }

    fn number(shelves: &Shelves, path: &[&str]) -> u64 {
        path.iter()
            .fold(ROOT, |at, name| match shelves.child(at, name.as_bytes()) {
                Some(Number::Shelf(number)) => number,
                other => panic!("{path:?}: {other:?}"),
            })
    }

    #[test]
    fn snapshots_stand_where_people_look_for_them() {
        let mut shelves = Shelves::new();
        assert_eq!(names(&shelves, &[]), ["hosts", "ids", "snapshots", "tags"]);
        let (old, new) = (
            shown(0, "monday", "web", &["a/b"]),
            shown(1, "tuesday", "..", &[]),
        );
        shelves.show(&[old.clone(), new.clone()]);
        assert_eq!(names(&shelves, &["hosts"]), ["_..", "web"]);
        assert_eq!(names(&shelves, &["tags"]), ["a_b"]);
        assert_eq!(names(&shelves, &["hosts", "web"]), ["latest", "monday"]);
        assert_eq!(names(&shelves, &["ids"]), ["id0", "id1"]);
        let target = |path: &[&str]| shelves.target(number(&shelves, path)).map(<[u8]>::to_vec);
        assert_eq!(target(&["latest"]), Some(b"snapshots/tuesday".to_vec()));
        assert_eq!(
            target(&["hosts", "web", "monday"]),
            Some(b"../../snapshots/monday".to_vec())
        );
        assert_eq!(target(&["tags", "a_b", "latest"]), Some(b"monday".to_vec()));
        let snapshots = number(&shelves, &["snapshots"]);
        assert_eq!(shelves.child(snapshots, b"monday"), Some(Number::Top(0)));
        let before = number(&shelves, &["hosts", "web"]);
        shelves.show(&[new]);
        assert_eq!(names(&shelves, &["hosts"]), ["_.."]);
        shelves.show(&[old]);
        assert_eq!(number(&shelves, &["hosts", "web"]), before);
        let target = shelves.target(number(&shelves, &["latest"]));
        assert_eq!(target, Some(&b"snapshots/monday"[..]));
    }
}
