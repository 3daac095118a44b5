//! Selection of snapshots: filters, `latest`, beginnings of ids.

use std::collections::HashSet;
use std::ffi::OsString;

use clap::Args;
use onefold_backup::snapshot::Snapshot;
use onefold_backup::snapshots::{self, Brief, Named, SnapshotFilter};
use onefold_store::{Repository, RootId};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::json::message::PathError;
use crate::out::Out;
use crate::{human, out, paths};

pub use crate::short_id::{SHORT_ID, short};
pub use crate::spec::{Spec, tag_list};

const HOST_ENV: &str = "ONEFOLD_HOST";

/// Flags that choose snapshots. All conditions given must hold.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only snapshots of this host (repeatable; '' for those of any)
    #[arg(
        id = "filter_host",
        short = 'H',
        long = "host",
        value_name = "HOST",
        env = HOST_ENV,
        hide_env_values = true
    )]
    pub hosts: Vec<String>,

    /// Only snapshots with all of these tags (repeatable: any of the lists; '' for snapshots without tags)
    #[arg(id = "filter_tag", long = "tag", value_name = "TAG[,TAG…]")]
    pub tags: Vec<String>,

    /// Only snapshots of this path (repeatable: all of them)
    #[arg(id = "filter_path", long = "path", value_name = "PATH")]
    pub paths: Vec<OsString>,
}

impl FilterArgs {
    /// Returns the engine's filter.
    pub fn filter(&self) -> Result<SnapshotFilter> {
        Ok(SnapshotFilter {
            hosts: self
                .hosts
                .iter()
                .filter(|host| !host.is_empty())
                .cloned()
                .collect(),
            tags: self.tags.iter().map(|list| tag_list(list)).collect(),
            paths: self
                .paths
                .iter()
                .map(|path| paths::absolute(path))
                .collect::<Result<_>>()?,
        })
    }
}

impl Spec {
    /// Parses a word of the command line, as [`Spec::read`] does.
    pub fn parse(text: &OsString) -> Result<Self> {
        Self::read(text).map_err(Error::Usage)
    }

    /// Returns the error; where the path is not in the snapshot and was relative, with the path that may be meant.
    pub fn explain(&self, error: onefold_backup::Error) -> Error {
        match (error, paths::meant(&self.words)) {
            (onefold_backup::Error::NotInSnapshot(path), meant) if !meant.is_empty() => {
                Error::Failed(format!("{path} is not in the snapshot{meant}"))
            }
            (error, _) => error.into(),
        }
    }
}

/// Returns the one snapshot that `name` means.
pub fn one(repository: &Repository, name: &str, filter: &SnapshotFilter) -> Result<Named> {
    Ok(snapshots::resolve(repository, name, filter)?)
}

/// Returns the snapshots that `names` mean; without names, all that pass the filter, oldest first. Damaged ones are
/// reported and left out.
pub fn many(
    repository: &Repository,
    names: &[OsString],
    filter: &SnapshotFilter,
    out: &Out,
) -> Result<Vec<Brief>> {
    Ok(many_or_not(repository, names, filter, out)?.0)
}

/// Returns the snapshots of [`many`], and those that cannot be read. A filter that leaves none is reported.
pub fn many_or_not(
    repository: &Repository,
    names: &[OsString],
    filter: &SnapshotFilter,
    out: &Out,
) -> Result<(Vec<Brief>, Unread)> {
    let mut total = 0;
    let mut is_wanted = |snapshot: &_| {
        total += 1;
        !names.is_empty() || filter.matches(snapshot)
    };
    let found = many_that(repository, names, filter, &mut is_wanted, out)?;
    if found.0.is_empty() && total > 0 {
        out.note(none_of(filter, total));
    }
    Ok(found)
}

/// Returns a sentence: the filter leaves none of `total` snapshots, and which filter it is, since a name may be
/// mistyped.
pub fn none_of(filter: &SnapshotFilter, total: usize) -> String {
    let listed = |what: &str, words: Vec<String>, or: &str| {
        (!words.is_empty()).then(|| format!("{what} {}", words.join(or)))
    };
    let by_variable = match std::env::var(HOST_ENV) {
        Ok(host) if filter.hosts == [host.as_str()] => " (of ONEFOLD_HOST)",
        _ => "",
    };
    let tags = filter.tags.iter().map(|tags| match &tags[..] {
        [] => "''".into(),
        tags => tags.join(","),
    });
    let paths = filter.paths.iter().map(|path| paths::shown(path));
    let has = [
        listed("host", filter.hosts.clone(), " or ").map(|words| words + by_variable),
        listed("tag", tags.collect(), " or "),
        listed("path", paths.collect(), " and "),
    ];
    let has: Vec<String> = has.into_iter().flatten().collect();
    let has = if has.is_empty() {
        "what is asked for".into()
    } else {
        out::safe(&has.join(" with "))
    };
    let total = human::count(total as u64);
    format!("0 snapshots of {total}: none has {has}")
}

/// Returns the snapshots that `names` mean (`latest` of those that pass the filter), without names all; of these, those
/// that are wanted.
pub fn many_that(
    repository: &Repository,
    names: &[OsString],
    filter: &SnapshotFilter,
    is_wanted: &mut dyn FnMut(&Snapshot) -> bool,
    out: &Out,
) -> Result<(Vec<Brief>, Unread)> {
    let mut unread = Unread::default();
    if names.is_empty() {
        let mut damaged = |id, error: onefold_backup::Error| unread.add(id, error.into(), out);
        let all = snapshots::list(repository, is_wanted, &mut damaged)?;
        return Ok((all, unread));
    }
    let (mut met, mut chosen) = (HashSet::new(), Vec::new());
    for name in names {
        let named = one(repository, &alone(name)?, filter)?;
        if met.insert(named.id) && is_wanted(&named.snapshot) {
            chosen.push(Brief::of(named));
        }
    }
    Ok((chosen, unread))
}

/// Returns the ids that `names` mean, each once. Snapshots that are named by their id need not be readable.
pub fn ids(
    repository: &Repository,
    names: &[OsString],
    filter: &SnapshotFilter,
) -> Result<Vec<RootId>> {
    let mut chosen = Vec::with_capacity(names.len());
    for name in names {
        let id = match &alone(name)?[..] {
            "latest" => one(repository, "latest", filter)?.id,
            name => snapshots::resolve_id(repository, name)?,
        };
        if !chosen.contains(&id) {
            chosen.push(id);
        }
    }
    Ok(chosen)
}

/// Returns the name of a snapshot that has no path in it.
fn alone(name: &OsString) -> Result<String> {
    let spec = Spec::parse(name)?;
    if spec.path.is_empty() {
        Ok(spec.snapshot)
    } else {
        Err(Error::Usage(
            "a path within a snapshot makes no sense here".into(),
        ))
    }
}

/// Snapshots that cannot be read, or not as a whole: a verb that reads many reports them, goes on, and fails at its
/// end.
#[derive(Default)]
pub struct Unread(Vec<(RootId, Error)>);

impl Unread {
    /// Adds a snapshot that cannot be read, and reports why, once.
    pub fn add(&mut self, id: RootId, error: Error, out: &Out) {
        if self.0.iter().any(|(known, _)| *known == id) {
            return;
        }
        let (name, message) = (short(&id), error.chain());
        if out.json {
            out.note_json(&PathError::of_id("read", &id.to_string(), &message))
        } else {
            out.note(format_args!("snapshot {name} cannot be read: {message}"))
        }
        self.0.push((id, error));
    }

    /// Adds a snapshot whose stored bytes cannot be had.
    ///
    /// # Errors
    /// Other errors, which would come again with the next snapshot.
    pub fn add_lost(&mut self, id: RootId, error: onefold_backup::Error, out: &Out) -> Result<()> {
        if !error.is_loss() {
            return Err(error.into());
        }
        self.add(id, error.into(), out);
        Ok(())
    }

    /// Fails if there is any such snapshot.
    pub fn end(self) -> Result<Exit> {
        let what = || {
            let count = human::many(self.0.len() as u64, "snapshot");
            format!("{count} cannot be read, or not whole")
        };
        let is_damage = |(_, error): &(RootId, Error)| error.exit() == Exit::Damaged;
        match &self.0[..] {
            [] => Ok(Exit::Ok),
            unread if unread.iter().any(is_damage) => Err(Error::Damaged(what())),
            _ => Err(Error::Failed(what())),
        }
    }
}
