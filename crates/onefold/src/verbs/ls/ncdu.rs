//! `ls --ncdu`: what `ncdu -f -` reads: folders as arrays within arrays, written as they come.
//!
//! A snapshot lists a folder whole before those below it. So a folder's array stays open until nothing below it can come any more, and folders
//! without entries are known by never having been opened.

use std::collections::VecDeque;

use onefold_backup::{Entry, Kind, path};
use serde_json::{Value, json};

use crate::error::Result;
use crate::out::Out;

/// A folder whose array is open.
struct Open {
    path: Vec<u8>,
    /// Folders in it that have not been opened: their names and what is said of them.
    to_come: VecDeque<(Vec<u8>, Value)>,
}

/// Writes the arrays.
pub struct Ncdu<'a> {
    out: &'a Out,
    open: Vec<Open>,
}

impl<'a> Ncdu<'a> {
    /// Begins; `about` describes the snapshot.
    pub fn begin(about: &Value, out: &'a Out) -> Result<Self> {
        let head = json!({"progname": "onefold", "snapshot": about});
        out.bytes(format!("[1,2,{head},[{}", json!({"name": "/"})).as_bytes())?;
        let root = Open {
            path: Vec::new(),
            to_come: VecDeque::new(),
        };
        Ok(Self {
            out,
            open: vec![root],
        })
    }

    /// Adds an entry that lies in `folder`, in the order of the snapshot.
    pub fn add(&mut self, folder: &[u8], entry: &Entry) -> Result<()> {
        self.go_to(folder)?;
        let about = about(&entry.name, entry);
        if entry.is_dir()
            && let Some(here) = self.open.last_mut()
        {
            here.to_come.push_back((entry.name.clone(), about));
            return Ok(());
        }
        self.write(format!(",\n{about}"))
    }

    /// Closes everything.
    pub fn end(mut self) -> Result<()> {
        while !self.open.is_empty() {
            self.close()?;
        }
        self.write("]\n".into())
    }

    fn go_to(&mut self, folder: &[u8]) -> Result<()> {
        while self.open.len() > 1 && !path::within(folder, &self.here().path) {
            self.close()?;
        }
        while self.here().path != folder {
            let from = self.here().path.len() + 1;
            let len = folder[from..].iter().position(|b| *b == b'/');
            let end = len.map_or(folder.len(), |len| from + len);
            self.enter(&folder[..end])?;
        }
        Ok(())
    }

    /// Opens a folder of the last one; those before it that were not opened have no entries.
    fn enter(&mut self, folder: &[u8]) -> Result<()> {
        let name = path::split(folder).1;
        let mut about = json!({"name": String::from_utf8_lossy(name)});
        let to_come = &mut self.here().to_come;
        if let Some(at) = to_come.iter().position(|(other, _)| other == name) {
            let empty: Vec<_> = to_come.drain(..at).collect();
            about = to_come.pop_front().map_or(about, |(_, about)| about);
            self.write_empty(empty)?;
        }
        self.write(format!(",\n[{about}"))?;
        self.open.push(Open {
            path: folder.to_vec(),
            to_come: VecDeque::new(),
        });
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if let Some(folder) = self.open.pop() {
            self.write_empty(folder.to_come)?;
        }
        self.write("]".into())
    }

    fn write_empty(&self, folders: impl IntoIterator<Item = (Vec<u8>, Value)>) -> Result<()> {
        let mut folders = folders.into_iter();
        folders.try_for_each(|(_, about)| self.write(format!(",\n[{about}]")))
    }

    fn here(&mut self) -> &mut Open {
        self.open.last_mut().expect("the root is closed last")
    }

    fn write(&self, text: String) -> Result<()> {
        self.out.bytes(text.as_bytes())
    }
}

fn about(name: &[u8], entry: &Entry) -> Value {
    let size = if entry.kind == Kind::File {
        entry.size
    } else {
        0
    };
    json!({
        "name": String::from_utf8_lossy(name),
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
    })
}
