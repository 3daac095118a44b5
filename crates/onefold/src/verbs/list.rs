//! `onefold list`: lists names of objects in the repository, one a line, for scripts.

use clap::ValueEnum;
use onefold_store::{Repository, SessionKind, StreamKind};
use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::{self, Out};
use crate::{json, repository};

/// List names of what the repository holds
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kind of objects to list
    #[arg(value_name = "WHAT")]
    pub what: ListedKind,
}

/// Kind of the listed objects.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedKind {
    /// Snapshots
    Snapshots,
    /// Containers
    #[value(alias = "packs")]
    Containers,
    /// Chunks, container by container: whether of data or of metadata, and the fingerprint
    #[value(alias = "blobs")]
    Chunks,
    /// Keys
    Keys,
    /// Sessions: who is at work
    #[value(alias = "locks")]
    Sessions,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a listing")?;
    let names: Vec<String> = match args.what {
        ListedKind::Chunks => return chunks(&repository, out),
        ListedKind::Snapshots => strings(repository.roots()?),
        ListedKind::Containers => {
            let containers = repository.containers()?.into_iter();
            containers.map(|(id, _)| id.to_string()).collect()
        }
        ListedKind::Keys => repository.keys()?.into_iter().map(|key| key.id).collect(),
        ListedKind::Sessions if out.json => {
            let sessions = repository.sessions()?;
            let sessions: Vec<_> = sessions.iter().map(json::session).collect();
            out.json(&sessions)?;
            return Ok(Exit::Ok);
        }
        ListedKind::Sessions => strings(repository.sessions()?),
    };
    if out.json {
        out.json(&names)?;
    } else {
        names
            .iter()
            .try_for_each(|name| out.line(out::safe(name)))?;
    }
    Ok(Exit::Ok)
}

/// Prints one line for each chunk, in JSON too: there may be very many.
fn chunks(repository: &Repository, out: &Out) -> Result<Exit> {
    let session = repository.session(SessionKind::Read)?;
    for (container, _) in repository.containers()? {
        let Some((stream, chunks)) = repository.contents_of(container)? else {
            continue;
        };
        let word = match stream {
            StreamKind::Data => "data",
            StreamKind::Metadata => "tree",
        };
        for (chunk, _) in chunks {
            if out.json {
                out.json_buffered(&json!({"type": word, "id": chunk.to_string()}))?;
            } else {
                out.line(format_args!("{word} {chunk}"))?
            }
        }
    }
    session.finish()?;
    Ok(Exit::Ok)
}

fn strings(named: Vec<impl ToString>) -> Vec<String> {
    named.iter().map(ToString::to_string).collect()
}
