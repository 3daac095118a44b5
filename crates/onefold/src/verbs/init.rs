//! `onefold init`: makes a new, empty repository.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{FileDir, GroupAccess};
use onefold_store::config::CHUNK_BYTES_MEAN_DEFAULT;
use onefold_store::{Encryption, Entropy, InitOptions, Place, Repository, Secret};
use serde_json::json;

use crate::cli::names;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::from::FromPassword;
use crate::global::Global;
use crate::out::Out;
use crate::password::Purpose;
use crate::site::Site;
#[cfg(feature = "remote")]
use crate::verbs::doctor;
use crate::{human, interrupted, machine, repository, when};

/// Make a new repository
#[derive(clap::Args, Debug)]
#[command(after_long_help = names::knobs_help())]
pub struct Args {
    #[command(flatten)]
    pub choices: Choices,

    /// Cut and fingerprint as the repository in this folder does, under a password of its own: a copy from there then
    /// reads only what is new here. Who has the key of one of the two can read both
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["chunker", "chunk_size"]
    )]
    pub like: Option<PathBuf>,

    #[command(flatten)]
    pub from: FromPassword,
}

/// Choices that are made once, with a new repository, and hold for all of its life.
#[derive(clap::Args, Debug)]
pub struct Choices {
    /// How contents are cut into chunks [default: sieve-adaptive]
    #[arg(long, value_name = "NAME", value_parser = names::chunkers())]
    pub chunker: Option<String>,

    /// Mean size of a chunk, such as 8K or 1M (1K is 1024 bytes), 256 bytes at least; smaller finds more duplicates and
    /// needs more index; the longest chunk may be 4 MiB [default: 8K]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub chunk_size: Option<u64>,

    /// The index that knows which chunks are stored; with any but strata and ram, one program at a time backs up or
    /// prunes [default: strata]
    #[arg(long, value_name = "NAME", value_parser = names::indexes())]
    pub index: Option<String>,

    /// Let the members of the folder's group read the repository; later the mode of its file config says so
    #[arg(long, conflicts_with = "group_writable")]
    pub group_readable: bool,

    /// Let the members of the folder's group read the repository and back up into it. That is so without this flag
    /// where the folder is there already with mode 2770 (or 2775)
    #[arg(long)]
    pub group_writable: bool,

    /// Make a repository that one user of this machine alone uses, in a bucket of a store that several cannot share
    /// (`onefold doctor` says whether one is needed)
    #[arg(long)]
    pub single_writer: bool,
}

impl Choices {
    /// Returns the rights of the group; `None` where no flag says them.
    fn group(&self) -> Option<GroupAccess> {
        match (self.group_readable, self.group_writable) {
            (_, true) => Some(GroupAccess::Write),
            (true, false) => Some(GroupAccess::Read),
            (false, false) => None,
        }
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let place = repository::place(global)?;
    let like = args.like.as_ref();
    let like = like.map(|like| args.from.open(like, global, "a new repository like it"));
    make_like(
        &args.choices,
        global,
        &place,
        like.transpose()?.as_ref(),
        out,
    )?;
    Ok(Exit::Ok)
}

/// Makes the repository and prints it; returns its password, to open it with.
pub fn make(choices: &Choices, global: &Global, place: &Site, out: &Out) -> Result<Option<Secret>> {
    make_like(choices, global, place, None, out)
}

/// Makes the repository as [`make`] does, with the keys of `like` where one is given.
fn make_like(
    choices: &Choices,
    global: &Global,
    place: &Site,
    like: Option<&Repository>,
    out: &Out,
) -> Result<Option<Secret>> {
    let mut options = options(choices, global)?;
    if let Some(like) = like {
        options.encryption = like.config().encryption;
    }
    if place.has_repository()? {
        return Err(Error::Failed(format!(
            "there is a repository at {} already",
            place.display()
        )));
    }
    if let Some(outer) = place.around() {
        let (place, outer) = (place.display(), outer.display());
        return Err(Error::Failed(format!(
            "{place} is inside of the repository {outer}: no backup reads what is in there"
        )));
    }
    let secret = match options.encryption {
        Encryption::None => None,
        Encryption::Aes256Gcm => {
            let prompt = format!("password for the new repository at {}: ", place.display());
            let read = || global.password.read(Purpose::New, &prompt);
            Some(interrupted::before_making(read)?)
        }
    };
    let init = |place: Place| match like {
        Some(like) => like.init_like(place, &options, secret.as_ref()),
        None => Repository::init(place, &options, secret.as_ref()),
    };
    match place.folder() {
        Some(_) if choices.single_writer => {
            return Err(Error::Usage(
                "--single-writer is for buckets: a folder's locks are seen by all who use it"
                    .into(),
            ));
        }
        Some(place) => make_in_folder(choices, place, init)?,
        None if choices.group().is_some() => {
            return Err(Error::Usage(
                "--group-readable and --group-writable are for folders: a bucket's policy says who may read it".into(),
            ));
        }
        None => make_in_bucket(choices, place, init)?,
    }
    let opened = repository::open_with(global, place, "", secret.as_ref())?;
    let (id, index) = (opened.config().repository_hex(), &opened.config().index);
    if out.json {
        out.json(
            &json!({"message_type": "initialized", "id": id, "repository": place.display(), "index": index}),
        )?;
    }
    out.say(format_args!(
        "made repository {} at {}, with the index {index}",
        &id[..id.len().min(10)],
        place.display()
    ))?;
    if secret.is_none() {
        tell_unused(global, out);
    }
    if secret.is_some() && !global.password.insecure_no_password {
        out.say("keep the password: without it nobody can read what is in there")?;
    }
    Ok(secret)
}

#[cfg(feature = "remote")]
fn make_in_bucket(
    choices: &Choices,
    place: &Site,
    init: impl FnOnce(Place) -> onefold_store::Result<()>,
) -> Result<()> {
    let Site::Bucket(bucket) = place else {
        return Ok(());
    };
    doctor::confirm_shared(bucket, choices.single_writer)?;
    Ok(init(bucket.place_to_make(choices.single_writer)?)?)
}

#[cfg(not(feature = "remote"))]
fn make_in_bucket(
    _choices: &Choices,
    place: &Site,
    init: impl FnOnce(Place) -> onefold_store::Result<()>,
) -> Result<()> {
    Ok(init(place.place()?)?)
}

fn make_in_folder(
    choices: &Choices,
    place: &Path,
    init: impl FnOnce(Place) -> onefold_store::Result<()>,
) -> Result<()> {
    let dir = folder(choices, place).map_err(|error| not_made(place, error))?;
    init(Place::local(Arc::new(dir), &Entropy::system())).inspect_err(|_| {
        // A refused repository leaves no empty folder behind; a folder that is not empty stays.
        let _ = std::fs::remove_dir(place);
    })?;
    Ok(())
}

/// Opens the repository's folder, made where it is missing, and shared as the flags say, or else as its own mode does.
fn folder(choices: &Choices, place: &Path) -> onefold_io::Result<FileDir> {
    let dir = FileDir::create(place)?;
    let Some(group) = choices.group() else {
        let group = dir.group_access_by_mode()?;
        return Ok(dir.shared(group));
    };
    let dir = dir.shared(group);
    dir.let_group_in()?;
    Ok(dir)
}

/// Warns that the given password protects nothing: the user may think otherwise, and the next command refuses it.
fn tell_unused(global: &Global, out: &Out) {
    let leave_out = match global.password.given_by() {
        _ if out.quiet => return,
        Ok(None) => return,
        Ok(Some(option)) if option.starts_with('-') => format!("leave {option} out from now on"),
        Ok(Some(variable)) => format!("unset {variable}"),
        // Two sources give a password.
        Err(_) => "leave it out from now on".into(),
    };
    let what = "not encrypted: the password that is given is not used";
    match out.json {
        true => out.note_json(&json!({"message_type": "warning", "message": what})),
        // Other commands read the variable, too.
        false if !global.typed.has("encryption") => out.note(format_args!("warning: {what}")),
        false => out.note(format_args!(
            "warning: {what}\n         {leave_out}, or set ONEFOLD_ENCRYPTION=none: else other commands refuse it"
        )),
    }
}

/// Returns the choices that differ from those of the existing repository, in words.
pub fn differing(
    choices: &Choices,
    repository: &Repository,
    group: Option<GroupAccess>,
) -> Vec<String> {
    let config = repository.config();
    let size = |bytes: u64| human::bytes(bytes);
    let asked = [
        ("--chunker", choices.chunker.clone(), config.chunker.clone()),
        ("--index", choices.index.clone(), config.index.clone()),
        (
            "--chunk-size",
            choices.chunk_size.map(size),
            size(config.chunk_bytes_mean.into()),
        ),
    ];
    let asked = asked
        .into_iter()
        .filter_map(|(flag, asked, is)| Some((flag, asked?, is)));
    let differs = asked.filter(|(_, asked, is)| asked != is);
    let words = differs.map(|(flag, asked, is)| {
        format!("{flag} {asked} changes nothing: the repository was made with {is}")
    });
    let shared = choices.group().filter(|asked| Some(*asked) != group);
    let of_group = shared.map(|_| {
        "the repository is there, and the mode of its file config says what its group may do (docs/repository.md)".to_owned()
    });
    words.chain(of_group).collect()
}

/// Returns the error of a folder that cannot be made; that is no damage, whatever the reason.
fn not_made(place: &Path, error: onefold_io::Error) -> Error {
    match error.source {
        Some(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            Error::Failed(format!("{} is there, and is no folder", place.display()))
        }
        Some(source) => Error::io(format!("make the folder {}", place.display()), source),
        None => onefold_store::Error::Io(error).into(),
    }
}

fn options(choices: &Choices, global: &Global) -> Result<InitOptions> {
    let chunk_bytes_mean = match choices.chunk_size {
        None => CHUNK_BYTES_MEAN_DEFAULT,
        Some(size) => u32::try_from(size).map_err(|_| {
            Error::Usage(format!(
                "a chunk size of {} is too large",
                human::bytes(size)
            ))
        })?,
    };
    let defaults = InitOptions::new(machine::label(), when::now().secs.max(0) as u64);
    let encryption = match &global.encryption {
        Some(name) => Encryption::by_name(name)?,
        None => defaults.encryption,
    };
    Ok(InitOptions {
        chunker: choices.chunker.clone().unwrap_or(defaults.chunker),
        chunk_bytes_mean,
        encryption,
        index: choices.index.clone().unwrap_or(defaults.index),
        indexes: onefold_papers::KINDS,
        ..defaults
    })
}
