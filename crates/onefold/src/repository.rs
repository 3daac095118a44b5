//! Finds and opens the repository: place, password, options. Every verb that needs a repository comes through here.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_io::{Dir, ErrorKind, FileDir, GroupAccess, RemadeDir};
use onefold_store::config::{CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use onefold_store::{
    CONTAINER_FOLDER, Compression, Config, Encryption, Entropy, Error as StoreError, HeldStill,
    INDEX_FOLDER, OpenOptions, PinInfo, Repository, Secret,
};
use rustix::fs::{Mode, OFlags};

use crate::cli::Global;
use crate::cli::typed::Way;
use crate::error::{Error, Result};
use crate::named_file::{self, TEXT_BYTES_MAX};
use crate::password::{self, PROMPTS_MAX, Purpose};
use crate::{interrupted, machine, place};

/// Objects whose group permissions decide about the repository's: the first one that is there. restic goes by its
/// `config`, too; the others replace one that is lost, so that a repair makes it for the group.
const SHARED_AS: [&str; 3] = [CONFIG_OBJECT, CONFIG_COPY_OBJECT, CONTAINER_FOLDER];

/// Source of the repository's place.
enum Place<'a> {
    Folder(&'a PathBuf),
    File(&'a PathBuf),
}

/// Returns the repository's place, as the command line, the environment or a file names it.
///
/// # Errors
/// [`Error::Usage`] where nothing names one, two sources do, or it is no local folder.
pub fn place(global: &Global) -> Result<PathBuf> {
    let folder = Way {
        id: "repo",
        variable: "ONEFOLD_REPOSITORY",
        value: global.repo.as_ref().map(Place::Folder),
    };
    let file = Way {
        id: "repository_file",
        variable: "ONEFOLD_REPOSITORY_FILE",
        value: global.repository_file.as_ref().map(Place::File),
    };
    let named = match global.typed.one_of("name the repository", [folder, file])? {
        Some((_, Place::Folder(folder))) => folder.clone(),
        Some((_, Place::File(file))) => from_file(file)?,
        None => {
            return Err(Error::Usage(
                "no repository is named: give --repo FOLDER or set ONEFOLD_REPOSITORY".into(),
            ));
        }
    };
    place::folder(named.as_os_str())
}

fn from_file(file: &Path) -> Result<PathBuf> {
    let what = || format!("read repository file {}", file.display());
    let text = named_file::read_text(file, TEXT_BYTES_MAX).map_err(|e| Error::io(what(), e))?;
    Ok(PathBuf::from(
        text.lines().next().unwrap_or_default().trim(),
    ))
}

/// Whether a repository stands at the place.
pub fn exists(place: &Path) -> Result<bool> {
    match open_folder(place) {
        Ok(dir) => match Repository::config_at(&dir) {
            Ok(_) => Ok(true),
            Err(StoreError::NoRepository { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        },
        Err(Error::NoRepository(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the repository that the place lies in, through any path or link.
pub fn around(place: &Path) -> Option<PathBuf> {
    let place = std::path::absolute(place).ok()?;
    let there = place.ancestors().find_map(|it| it.canonicalize().ok())?;
    let outer = there.ancestors().find(|it| matches!(exists(it), Ok(true)));
    outer.map(Path::to_path_buf)
}

fn open_folder(place: &Path) -> Result<Arc<dyn Dir>> {
    match FileDir::open(place) {
        Ok(dir) => match of_another_program(place) {
            None => Ok(Arc::new(dir.linked(INDEX_FOLDER).shared_as(&SHARED_AS))),
            Some(program) => {
                let what = format!("{}, which is a repository of {program}", place.display());
                Err(Error::NoRepository(what))
            }
        },
        Err(error) if error.kind == ErrorKind::NotFound => {
            Err(Error::NoRepository(place.display().to_string()))
        }
        Err(error) if is_no_folder(&error) => {
            let what = format!("{}, which is no folder", place.display());
            Err(Error::NoRepository(what))
        }
        Err(error) => Err(StoreError::Io(error).into()),
    }
}

/// Keeps prunes and repairs out of the repository at the place, which is not opened.
///
/// # Errors
/// Errors of [`HeldStill::begin`].
pub fn hold_still(place: &Path) -> Result<HeldStill> {
    let held = HeldStill::begin(&open_folder(place)?, &pin_info("a copy"));
    held.map_err(|error| named(place, error))
}

/// Returns the rights of the group of the repository's folder.
pub fn group_access(place: &Path) -> Result<GroupAccess> {
    match FileDir::open(place) {
        Ok(dir) => Ok(dir.shared_as(&SHARED_AS).group_access()),
        Err(error) => Err(StoreError::Io(error).into()),
    }
}

/// Returns the program whose repository this looks like: to Onefold it would look damaged.
fn of_another_program(place: &Path) -> Option<&'static str> {
    let is_ours = place.join("containers").exists();
    let config = || {
        let mut start = [0; 12];
        // Opening a FIFO of that name, or one that a link leads to, would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = rustix::fs::open(place.join("config"), flags, Mode::empty());
        let mut file = std::fs::File::from(file.ok()?);
        file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        io::Read::read_exact(&mut file, &mut start).ok()?;
        Some(start)
    };
    if is_ours || !place.join("data").is_dir() {
        return None;
    }
    match config()? {
        start if start == *b"[repository]" => Some("borg"),
        _ => place.join("snapshots").is_dir().then_some("restic"),
    }
}

fn is_no_folder(error: &onefold_io::Error) -> bool {
    let kind = error.source.as_ref().map(io::Error::kind);
    kind == Some(io::ErrorKind::NotADirectory)
}

/// Opens the repository that `global` names; `activity` is shown to others who wait for it ("a backup").
///
/// # Errors
/// Errors of [`place()`] and [`Repository::open`]; [`Error::NoPassword`].
pub fn open(global: &Global, activity: &str) -> Result<Repository> {
    open_at(global, &place(global)?, activity, false)
}

/// Opens the repository at a known place, as [`open`] does; in a dry run nothing will be stored.
pub fn open_at(global: &Global, place: &Path, activity: &str, dry_run: bool) -> Result<Repository> {
    let dir = open_folder(place)?;
    let config = Repository::config_at(&dir).map_err(|error| named(place, error))?;
    agree(global, place, config.encryption)?;
    let options = OpenOptions {
        dry_run,
        ..options(global, activity)
    };
    let lies = lies_in(global, dir, &config);
    let repository = if config.encryption == Encryption::None {
        Repository::open_agreed(lies, config, options, None)?
    } else {
        // The configuration is the one that was agreed on: it may be changed while the password is asked for.
        with_password(global, place, |secret| {
            let (config, options) = (config.clone(), options.clone());
            Repository::open_agreed(&lies, config, options, Some(secret))
        })?
    };
    warn_of_index(global, &repository);
    Ok(repository)
}

/// Warns where the index in `--index-dir` cannot be used: reading goes on without it.
fn warn_of_index(global: &Global, repository: &Repository) {
    if let (Some(folder), Some(why)) = (&global.index_dir, repository.index_out_of_reach()) {
        tracing::warn!(
            "the index in {} cannot be used, so reading goes on without it, which costs time only: {why}",
            folder.display()
        );
    }
}

/// Returns the folder of the repository's index, where that lies in `--index-dir`.
pub fn index_folder(global: &Global, repository: &Repository) -> Option<PathBuf> {
    let folder = global.index_dir.as_ref()?;
    Some(folder.join(repository.config().repository_hex()))
}

/// Opens another repository than the one that `global` names, with a password of its own.
///
/// # Errors
/// Those of [`Repository::open`] and of `secret`, which is asked where one is needed.
pub fn open_other(
    global: &Global,
    place: &Path,
    activity: &str,
    secret: impl Fn() -> Result<Secret>,
) -> Result<Repository> {
    let dir = open_folder(place)?;
    let config = Repository::config_at(&dir).map_err(|error| named(place, error))?;
    let lies = lies_in(global, dir, &config);
    let secret = match config.encryption {
        Encryption::None => None,
        _ => Some(secret()?),
    };
    let options = options(global, activity);
    Ok(Repository::open_agreed(
        lies,
        config,
        options,
        secret.as_ref(),
    )?)
}

/// The place of a repository, which is not opened.
///
/// # Errors
/// [`Error::NoRepository`].
pub fn place_at(place: &Path) -> Result<onefold_store::Place> {
    let dir = open_folder(place)?;
    Repository::config_at(&dir).map_err(|error| named(place, error))?;
    Ok(onefold_store::Place::local(dir, &Entropy::system()))
}

/// Makes the error that names the place where no repository is.
fn named(place: &Path, error: StoreError) -> Error {
    match error {
        StoreError::NoRepository { .. } => Error::NoRepository(place.display().to_string()),
        error => error.into(),
    }
}

/// Returns the place of the repository in the folder `dir`, with the index where the user wants it: each repository has
/// a folder of its own there, so that several can share one `--index-dir`.
fn lies_in(global: &Global, dir: Arc<dyn Dir>, config: &Config) -> onefold_store::Place {
    let local = onefold_store::Place::local(dir, &Entropy::system());
    let Some(folder) = &global.index_dir else {
        return local;
    };
    let own = RemadeDir::below(folder.clone(), config.repository_hex());
    local.with_own(Arc::new(own))
}

/// Opens the repository as [`open`] does, for a repair of the configuration: where neither it nor its copy can be read,
/// or they differ from what the key slots seal, a key slot's copy of it is used.
pub fn open_to_repair(global: &Global, activity: &str) -> Result<Repository> {
    let place = place(global)?;
    let dir = open_folder(&place)?;
    let in_the_clear = Repository::config_at(&dir);
    let is_there = in_the_clear
        .as_ref()
        .map_or_else(StoreError::is_loss, |_| true);
    if !is_there || !Repository::has_slots(&dir)? {
        return open_at(global, &place, activity, false);
    }
    // A repository with key slots was made with encryption.
    agree(global, &place, Encryption::Aes256Gcm)?;
    let in_the_clear = in_the_clear.ok();
    let in_the_clear = in_the_clear.filter(|config| config.encryption == Encryption::Aes256Gcm);
    with_password(global, &place, |secret| {
        let open = |config| {
            let lies = lies_in(global, Arc::clone(&dir), &config);
            let options = options(global, activity);
            Repository::open_agreed(lies, config, options, Some(secret))
        };
        let sealed = || Repository::config_in_slots(&dir, secret).and_then(open);
        match in_the_clear.clone().map(open) {
            Some(Err(damage)) if damage.is_damage() => sealed().or(Err(damage)),
            Some(opened) => opened,
            None => sealed(),
        }
    })
}

/// Calls `open` with the password. A user who types a wrong one is asked again.
fn with_password(
    global: &Global,
    place: &Path,
    open: impl Fn(&Secret) -> onefold_store::Result<Repository>,
) -> Result<Repository> {
    let prompt = format!("password for {}: ", place.display());
    for _ in 1..PROMPTS_MAX {
        let secret = global.password.read(Purpose::Open, &prompt)?;
        match open(&secret) {
            Err(StoreError::WrongPassword { .. }) if global.password.asks() => {
                eprintln!("wrong password, try again")
            }
            opened => return Ok(opened?),
        }
    }
    let secret = global.password.read(Purpose::Open, &prompt)?;
    Ok(open(&secret)?)
}

/// Checks that the repository has the expected encryption. A configuration that says "none" is not sealed: after
/// somebody has rewritten it, a user who gives a password must not store data in the clear.
fn agree(global: &Global, place: &Path, is: Encryption) -> Result<()> {
    let place = place.display();
    if let Some(asked) = &global.encryption {
        return match Encryption::by_name(asked)? == is {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{} is asked for, and the repository at {place} was made with {}: that holds for all of its life",
                match global.typed.has("encryption") {
                    true => format!("--encryption {asked}"),
                    false => format!("ONEFOLD_ENCRYPTION={asked}"),
                },
                is.name()
            ))),
        };
    }
    if is == Encryption::None
        && let Some(by) = global.password.given_by()?
    {
        return Err(Error::Password(format!(
            "a password is given ({by}), and the repository at {place} says that it is not encrypted. If it was made so, say --encryption none, or give no password; \
             if not, somebody has changed it: store nothing there"
        )));
    }
    Ok(())
}

/// Opens a repository whose password is known, since it was just made with it.
pub fn open_with(
    global: &Global,
    place: &Path,
    activity: &str,
    secret: Option<&Secret>,
) -> Result<Repository> {
    let dir = open_folder(place)?;
    let config = Repository::config_at(&dir)?;
    let lies = lies_in(global, dir, &config);
    let options = options(global, activity);
    Ok(Repository::open_agreed(lies, config, options, secret)?)
}

fn options(global: &Global, activity: &str) -> OpenOptions {
    OpenOptions {
        index_ram_bytes: usize::try_from(global.ram).unwrap_or(usize::MAX),
        indexes: onefold_papers::KINDS,
        threads: threads(global),
        compression: global.compression.into(),
        pin: pin_info(activity),
        ..OpenOptions::default()
    }
}

/// Returns this process's description in a session.
pub fn pin_info(activity: &str) -> PinInfo {
    PinInfo {
        process: std::process::id(),
        host: machine::host(),
        activity: activity.into(),
    }
}

/// Returns the number of threads that compress and fingerprint.
pub fn threads(global: &Global) -> usize {
    let by_default = || Compression::from(global.compression).threads();
    global.threads.map_or_else(by_default, usize::from)
}

/// Whether a person can be asked.
pub fn on_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks whether a missing repository should be made.
pub fn offer(place: &Path) -> Result<bool> {
    let question = format!("there is no repository at {}; make one?", place.display());
    interrupted::before_making(|| password::confirm(&question))
}
