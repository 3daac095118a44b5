//! `ls --ncdu`: the format that `ncdu -f -` reads: folders as arrays within arrays, written as they come.
//!
//! A snapshot lists a folder completely before the folders in it. So a folder's array stays open until nothing below it
//! can come any more, and folders without entries are those that were never opened. The way through the folders is that
//! of a restore: its RAM is bounded by the depth of the tree.

use onefold_backup::folder_stack::{FolderStack, StackStep};
use onefold_backup::tree::Tree;
use onefold_backup::{Entry, Kind, path};
use onefold_store::ChunkReader;
use serde_json::{Value, json};

use crate::error::Result;
use crate::lossless;
use crate::out::Out;

/// Writer of the arrays.
pub struct Ncdu<'a> {
    out: &'a Out,
    stack: FolderStack<'a, ()>,
    is_wanted: &'a dyn Fn(&[u8]) -> bool,
}

impl<'a> Ncdu<'a> {
    /// Begins with the folder `top`, which is shown as the root; `about` describes the snapshot. `is_wanted` decides by
    /// its path in the snapshot whether an entry is listed.
    pub fn begin(
        about: &Value,
        (tree, top): (&'a Tree, &[u8]),
        is_wanted: &'a dyn Fn(&[u8]) -> bool,
        out: &'a Out,
    ) -> Result<Self> {
        let head = json!({"progname": "onefold", "snapshot": about});
        out.bytes(format!("[1,2,{head},[{}", json!({"name": "/"})).as_bytes())?;
        let stack = FolderStack::new(tree, top.to_vec(), ());
        Ok(Self {
            out,
            stack,
            is_wanted,
        })
    }

    /// Adds an entry that lies in `folder`, in the order of the snapshot.
    pub fn add(&mut self, folder: &[u8], entry: Entry, reader: &mut ChunkReader) -> Result<()> {
        self.go_to(Some(folder), reader)?;
        if entry.is_dir() {
            self.stack.met(entry);
            return Ok(());
        }
        self.write(format!(",\n{}", about(&entry)))
    }

    /// Closes all arrays.
    pub fn end(mut self, reader: &mut ChunkReader) -> Result<()> {
        self.go_to(None, reader)?;
        self.write("]]\n".into())
    }

    fn go_to(&mut self, folder: Option<&[u8]>, reader: &mut ChunkReader) -> Result<()> {
        loop {
            match self.stack.step(folder, reader)? {
                StackStep::There => return Ok(()),
                StackStep::Into(folder, entry) => {
                    self.stack.enter(folder.clone(), ());
                    let entry = entry.filter(|_| (self.is_wanted)(self.stack.path()));
                    let about = entry.map_or_else(|| name(&folder), |e| about(&e));
                    self.write(format!(",\n[{about}"))?;
                }
                StackStep::Past(entry) => {
                    let path = path::join(self.stack.path(), &entry.name);
                    if (self.is_wanted)(&path) {
                        self.write(format!(",\n[{}]", about(&entry)))?;
                    }
                }
                StackStep::Left(_) => self.write("]".into())?,
            }
        }
    }

    fn write(&self, text: String) -> Result<()> {
        self.out.bytes(text.as_bytes())
    }
}

/// Returns the object of a folder that only leads to listed ones.
fn name(name: &[u8]) -> Value {
    let mut about = json!({"name": String::from_utf8_lossy(name)});
    lossless::add(&mut about, "name", name);
    about
}

fn about(entry: &Entry) -> Value {
    let size = if entry.kind == Kind::File {
        entry.size
    } else {
        0
    };
    let mut about = json!({
        "name": String::from_utf8_lossy(&entry.name),
        "asize": size,
        "dsize": size.div_ceil(512) * 512,
        "dev": entry.device,
        "ino": entry.inode,
        "nlink": entry.links,
        "notreg": !matches!(entry.kind, Kind::File | Kind::Dir),
        "uid": entry.owner.uid,
        "gid": entry.owner.gid,
        "mode": entry.mode,
        "mtime": entry.mtime.secs,
    });
    lossless::add(&mut about, "name", &entry.name);
    about
}
