//! `onefold find --blob`, `--tree` and `--pack`: finds paths of snapshots that refer to stored objects. restic's blobs
//! are chunks, its trees are leaves and recipes, its packs are containers.

use std::collections::{BTreeMap, HashSet};

use onefold_backup::objects::{self, ReferencedObject};
use onefold_backup::snapshots::Named;
use onefold_io::hex_number;
use onefold_store::{ChunkReader, ChunkRef, ContainerId, Fingerprint, Repository};
use serde::Serialize;

use super::Args;
use crate::error::{Error, Result};
use crate::out::Out;
use crate::select::short;
use crate::{lossless, paths, when};

/// Objects to search for.
pub struct Objects {
    /// Beginnings of fingerprints, in hexadecimal digits.
    ids: Vec<String>,
    containers: HashSet<ContainerId>,
    /// Chunks in those containers: a chunk that was moved is still referred to by its old place.
    held: HashSet<Fingerprint>,
    wants_files: bool,
    wants_leaves: bool,
}

/// A match, in restic's words.
#[derive(Serialize)]
pub struct FoundObject {
    object_type: &'static str,
    id: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_tree: Option<String>,
    snapshot: String,
    time: String,
}

impl Objects {
    /// Returns the objects that the flags ask for; `None`: they ask for names.
    pub fn wanted(args: &Args, repository: &Repository) -> Result<Option<Self>> {
        if !(args.blob || args.tree || args.pack) {
            return if args.show_pack_id {
                Err(Error::Usage(
                    "--show-pack-id is for --blob and --tree".into(),
                ))
            } else {
                Ok(None)
            };
        }
        let mut objects = Self {
            ids: Vec::new(),
            containers: HashSet::new(),
            held: HashSet::new(),
            wants_files: args.blob || args.pack,
            wants_leaves: args.tree || args.pack,
        };
        for id in &args.patterns {
            let digits = id.to_string_lossy().to_ascii_lowercase();
            if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(Error::Usage(format!("{id:?} is no beginning of an id")));
            }
            objects.ids.push(digits);
        }
        if args.pack {
            objects.look_into_containers(repository)?;
        }
        Ok(Some(objects))
    }

    /// Finds the containers and their chunks. For a container that is lost or hurt, references to it are found all the
    /// same.
    fn look_into_containers(&mut self, repository: &Repository) -> Result<()> {
        let ids = std::mem::take(&mut self.ids);
        for id in &ids {
            self.containers.extend(hex_number(id, 16).map(ContainerId));
        }
        for (container, _) in repository.containers()? {
            let name = container.to_string();
            if ids.iter().any(|id| name.starts_with(&id[..])) {
                self.containers.insert(container);
                match repository.contents_of(container) {
                    Ok(contents) => {
                        let chunks = contents.into_iter().flat_map(|(_, chunks)| chunks);
                        self.held.extend(chunks.map(|(chunk, _)| chunk));
                    }
                    Err(error) if error.is_loss() => tracing::warn!("{error}"),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if self.containers.is_empty() {
            Err(Error::Failed("no container has such an id".into()))
        } else {
            Ok(())
        }
    }

    fn are(&self, chunk: &ChunkRef) -> bool {
        if self.held.contains(&chunk.fingerprint) || self.containers.contains(&chunk.container) {
            return true;
        }
        let name = || chunk.fingerprint.to_string();
        !self.ids.is_empty() && self.ids.iter().any(|id| name().starts_with(&id[..]))
    }

    /// Prints the paths of a snapshot that refer to the objects, and returns them for JSON.
    pub fn search(
        &self,
        named: &Named,
        args: &Args,
        reader: &mut ChunkReader,
        out: &Out,
    ) -> Result<Vec<FoundObject>> {
        let mut found: BTreeMap<(Vec<u8>, String), (FoundObject, ContainerId)> = BTreeMap::new();
        let mut add = |object_type, chunk: ChunkRef, path: &[u8], parent: Option<ChunkRef>| {
            let id = chunk.fingerprint.to_string();
            let key = (path.to_vec(), id.clone());
            let one = FoundObject {
                object_type,
                id,
                path: paths::json(path),
                path_base64: lossless::base64(path),
                parent_tree: parent.map(|leaf| leaf.fingerprint.to_string()),
                snapshot: named.id.to_string(),
                time: when::rfc3339(named.snapshot.time),
            };
            found.entry(key).or_insert((one, chunk.container));
        };
        let tree = onefold_store::RootId(named.tree).to_string();
        if self.wants_leaves && self.ids.iter().any(|id| tree.starts_with(&id[..])) {
            let fingerprint = Fingerprint(named.tree);
            let chunk = ChunkRef {
                fingerprint,
                container: ContainerId(0),
                len: 0,
            };
            add("tree", chunk, b"", None);
        }
        objects::visit(&named.snapshot, reader, &mut |met| {
            match met {
                ReferencedObject::OfFile { chunk, path, leaf }
                    if self.wants_files && self.are(&chunk) =>
                {
                    add("blob", chunk, path, Some(leaf));
                }
                ReferencedObject::OfLeaf { chunk, folder }
                    if self.wants_leaves && self.are(&chunk) =>
                {
                    add("tree", chunk, folder, None);
                }
                _ => {}
            }
            Ok(())
        })?;
        let found = found.into_values();
        found
            .map(|(one, container)| show(one, container, named, args, out))
            .collect()
    }
}

fn show(
    one: FoundObject,
    container: ContainerId,
    named: &Named,
    args: &Args,
    out: &Out,
) -> Result<FoundObject> {
    if out.json {
        return Ok(one);
    }
    out.line(format!("Found {} {}", one.object_type, one.id))?;
    match &one.parent_tree {
        Some(tree) => {
            out.line(format!(" ... in file {}", crate::out::safe(&one.path)))?;
            out.line(format!("     (tree {tree})"))?;
        }
        None => out.line(format!(" ... path {}", crate::out::safe(&one.path)))?,
    }
    let at = when::local(named.snapshot.time);
    out.line(format!(" ... in snapshot {} ({at})", short(&named.id)))?;
    if args.show_pack_id {
        out.line(format!(" ... in pack {container}"))?;
    }
    Ok(one)
}
