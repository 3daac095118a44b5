//! From a leaf's bytes back to entries. Any bytes give a leaf or an error; nothing is allocated beyond what the bytes pay for.

use std::sync::Arc;

use onefold_store::ContainerId;

use super::{COLUMNS, Column, Leaf, Run, VERSION, recipe};
use crate::path::{folder_is_safe, name_is_safe};
use crate::wire::Reader;
use crate::{Entry, Flags, Kind, Owner, Result, Time, Xattrs};

/// The leaf that `bytes` hold. Names and folders are checked: none can lead out of its folder.
pub fn decode(bytes: &[u8]) -> Result<Leaf> {
    let mut reader = Reader::new("leaf", bytes);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(reader.fail(format_args!("version {version}, expected {VERSION}")));
    }
    let entries = reader.count()?;
    let runs = read_runs(&mut reader, entries)?;
    let tables = Tables::read(&mut reader)?;
    let mut columns = Vec::with_capacity(COLUMNS);
    for _ in 0..COLUMNS {
        columns.push(reader.column("leaf")?);
    }
    reader.end()?;
    let mut rows = Rows {
        tables,
        columns,
        mtime: Time::default(),
        ctime: Time::default(),
        inode: 0,
        device: 0,
    };
    let mut leaf = Leaf {
        entries: Vec::with_capacity(entries.min(1 << 16)),
        runs: Vec::new(),
    };
    for run in &runs {
        let mut before = Vec::new();
        for _ in 0..run.count {
            let entry = rows.next(&before)?;
            before.clone_from(&entry.name);
            leaf.entries.push(entry);
        }
    }
    rows.columns.iter().try_for_each(|column| column.end())?;
    leaf.runs = runs;
    Ok(leaf)
}

fn read_runs(reader: &mut Reader<'_>, entries: usize) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut left = entries;
    for _ in 0..reader.count()? {
        let shared: usize = reader.small()?;
        let before = runs.last().map_or(&b""[..], |run| &run.folder);
        let start = before
            .get(..shared)
            .ok_or_else(|| reader.fail("shares more than the folder before has"))?;
        let folder = [start, reader.bytes()?].concat();
        if !folder_is_safe(&folder) {
            return Err(reader.fail(format_args!("folder {:?}", crate::path::show(&folder))));
        }
        let count: usize = reader.small()?;
        left = left
            .checked_sub(count)
            .filter(|_| count > 0)
            .ok_or_else(|| reader.fail(format_args!("{count} entries in a folder of {left}")))?;
        runs.push(Run { folder, count });
    }
    match left {
        0 => Ok(runs),
        _ => Err(reader.fail(format_args!("{left} entries belong to no folder"))),
    }
}

struct Tables {
    owners: Vec<Arc<Owner>>,
    /// Number 0: none.
    xattrs: Vec<Arc<Xattrs>>,
    containers: Vec<ContainerId>,
}

impl Tables {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut owners = Vec::new();
        for _ in 0..reader.count()? {
            let (uid, gid) = (reader.small()?, reader.small()?);
            owners.push(Arc::new(Owner {
                uid,
                gid,
                user: reader.text()?.into(),
                group: reader.text()?.into(),
            }));
        }
        let mut xattrs = vec![Arc::default()];
        for _ in 0..reader.count()? {
            let mut one = Xattrs::new();
            for _ in 0..reader.count()? {
                one.push((reader.bytes()?.into(), reader.bytes()?.into()));
            }
            xattrs.push(Arc::new(one));
        }
        Ok(Self {
            owners,
            xattrs,
            containers: recipe::Containers::read(reader)?,
        })
    }
}

struct Rows<'a> {
    tables: Tables,
    columns: Vec<Reader<'a>>,
    mtime: Time,
    ctime: Time,
    inode: u64,
    device: u64,
}

impl<'a> Rows<'a> {
    fn column(&mut self, column: Column) -> &mut Reader<'a> {
        &mut self.columns[column as usize]
    }

    fn next(&mut self, before: &[u8]) -> Result<Entry> {
        let name = self.name(before)?;
        let mode: u16 = self.column(Column::Modes).small()?;
        let kind = Kind::from_u8((mode >> 12) as u8).ok_or_else(|| {
            self.column(Column::Modes)
                .fail(format_args!("kind {}", mode >> 12))
        })?;
        let mut entry = Entry::new(name, kind);
        entry.mode = mode & 0xfff;
        entry.owner = self.owner()?;
        entry.mtime = advance(
            &mut self.mtime,
            &mut self.columns,
            Column::MtimeSecs,
            Column::MtimeNanos,
        )?;
        entry.ctime = advance(
            &mut self.ctime,
            &mut self.columns,
            Column::CtimeSecs,
            Column::CtimeNanos,
        )?;
        self.inode = self
            .inode
            .wrapping_add(self.column(Column::Inodes).signed()? as u64);
        self.device = self
            .device
            .wrapping_add(self.column(Column::Devices).signed()? as u64);
        (entry.inode, entry.device) = (self.inode, self.device);
        entry.links = self.column(Column::Links).varint()?;
        entry.flags = Flags(self.column(Column::Flags).small()?);
        entry.xattrs = self.xattrs()?;
        self.special(&mut entry)?;
        Ok(entry)
    }

    fn name(&mut self, before: &[u8]) -> Result<Vec<u8>> {
        let lengths = self.column(Column::NameLengths);
        let (shared, own): (usize, usize) = (lengths.small()?, lengths.small()?);
        let start = before
            .get(..shared)
            .ok_or_else(|| lengths.fail("shares more than the name before has"))?;
        let name = [start, self.column(Column::Names).take(own)?].concat();
        match name_is_safe(&name) && name.as_slice() > before {
            true => Ok(name),
            false => Err(self.column(Column::Names).fail(format_args!(
                "name {:?} after {:?}",
                crate::path::show(&name),
                crate::path::show(before)
            ))),
        }
    }

    fn owner(&mut self) -> Result<Arc<Owner>> {
        let number: usize = self.column(Column::Owners).small()?;
        let owner = self.tables.owners.get(number).cloned();
        owner.ok_or_else(|| {
            self.column(Column::Owners)
                .fail(format_args!("owner {number}"))
        })
    }

    fn xattrs(&mut self) -> Result<Arc<Xattrs>> {
        let number: usize = self.column(Column::XattrIndexes).small()?;
        let xattrs = self.tables.xattrs.get(number).cloned();
        xattrs.ok_or_else(|| {
            self.column(Column::XattrIndexes)
                .fail(format_args!("xattrs {number}"))
        })
    }

    fn special(&mut self, entry: &mut Entry) -> Result<()> {
        match entry.kind {
            Kind::File => {
                entry.size = self.column(Column::Sizes).varint()?;
                let (shapes, fingerprints) =
                    self.columns.split_at_mut(Column::Fingerprints as usize);
                let shapes = &mut shapes[Column::Shapes as usize];
                entry.content = recipe::read_content(
                    entry.size,
                    &self.tables.containers,
                    shapes,
                    &mut fingerprints[0],
                )?;
            }
            Kind::Symlink => entry.target = self.column(Column::Special).bytes()?.to_vec(),
            Kind::CharDevice | Kind::BlockDevice => {
                entry.rdev = self.column(Column::Special).varint()?
            }
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
        }
        Ok(())
    }
}

fn advance(
    time: &mut Time,
    columns: &mut [Reader<'_>],
    secs: Column,
    nanos: Column,
) -> Result<Time> {
    time.secs = time.secs.wrapping_add(columns[secs as usize].signed()?);
    let column = &mut columns[nanos as usize];
    let sum = column.signed()?.checked_add(i64::from(time.nanos));
    time.nanos = sum
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n < 1_000_000_000)
        .ok_or_else(|| column.fail("nanoseconds of no second"))?;
    Ok(*time)
}
