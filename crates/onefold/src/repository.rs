//! Finds and opens the repository: place, password, options. Every verb that needs a repository comes through here.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use onefold_store::{
    Compression, Encryption, Error as StoreError, HeldStill, OpenOptions, PinInfo, Repository,
    Secret,
};

use crate::cli::typed::GivenValue;
use crate::error::{Error, Result};
use crate::global::Global;
use crate::named_file::{self, TEXT_BYTES_MAX};
use crate::password::{self, PROMPTS_MAX, Purpose};
use crate::site::Site;
use crate::{interrupted, machine, place};

/// Source of the repository's place.
enum PlaceSource<'a> {
    Folder(&'a PathBuf),
    File(&'a PathBuf),
}

/// Returns the repository's place, as the command line, the environment or a file names it.
///
/// # Errors
/// [`Error::Usage`] where nothing names one, two sources do, or its kind is not supported.
pub fn place(global: &Global) -> Result<Site> {
    let folder = GivenValue {
        id: "repo",
        variable: "ONEFOLD_REPOSITORY",
        value: global.repo.as_ref().map(PlaceSource::Folder),
    };
    let file = GivenValue {
        id: "repository_file",
        variable: "ONEFOLD_REPOSITORY_FILE",
        value: global.repository_file.as_ref().map(PlaceSource::File),
    };
    let named = match global.typed.one_of("name the repository", [folder, file])? {
        Some((_, PlaceSource::Folder(folder))) => folder.clone(),
        Some((_, PlaceSource::File(file))) => from_file(file)?,
        None => {
            return Err(Error::Usage(
                "no repository is named: give --repo FOLDER or set ONEFOLD_REPOSITORY".into(),
            ));
        }
    };
    place::site(named.as_os_str(), global)
}

fn from_file(file: &Path) -> Result<PathBuf> {
    let what = || format!("read repository file {}", file.display());
    let text = named_file::read_text(file, TEXT_BYTES_MAX).map_err(|e| Error::io(what(), e))?;
    Ok(PathBuf::from(
        text.lines().next().unwrap_or_default().trim(),
    ))
}

/// Keeps prunes and repairs out of the repository at the place, which is not opened.
///
/// # Errors
/// Errors of [`HeldStill::begin`].
pub fn hold_still(place: &Site, global: &Global) -> Result<HeldStill> {
    let lies = place.settled(place.place()?, global)?;
    let held = HeldStill::begin(&lies, &pin_info("a copy"));
    held.map_err(|error| named(place, error))
}

/// Opens the repository that `global` names; `activity` is shown to others who wait for it ("a backup").
///
/// # Errors
/// Errors of [`place()`] and [`Repository::open`]; [`Error::NoPassword`].
pub fn open(global: &Global, activity: &str) -> Result<Repository> {
    open_at(global, &place(global)?, activity, false)
}

/// Opens the repository at a known place, as [`open`] does; in a dry run nothing will be stored.
pub fn open_at(global: &Global, place: &Site, activity: &str, dry_run: bool) -> Result<Repository> {
    let unopened = place.place()?;
    let config = Repository::config_at(&unopened).map_err(|error| named(place, error))?;
    agree(global, place, config.encryption)?;
    let options = OpenOptions {
        dry_run,
        ..options(global, activity)
    };
    let lies = place.with_own(unopened, global, &config)?;
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

/// Returns the folder of the repository's index, where that does not lie in the repository.
pub fn index_folder(place: &Site, global: &Global, repository: &Repository) -> Option<PathBuf> {
    let folder = place.own_parent(global).ok()??;
    Some(folder.join(repository.config().repository_hex()))
}

/// Opens another repository than the one that `global` names, with a password of its own.
///
/// # Errors
/// Errors of [`Repository::open`], and of `secret`, which is called where a password is needed.
pub fn open_other(
    global: &Global,
    place: &Site,
    activity: &str,
    secret: impl Fn() -> Result<Secret>,
) -> Result<Repository> {
    let unopened = place.place()?;
    let config = Repository::config_at(&unopened).map_err(|error| named(place, error))?;
    let lies = place.with_own(unopened, global, &config)?;
    let secret = match config.encryption {
        Encryption::None => None,
        _ => Some(secret()?),
    };
    let options = options(global, activity);
    let opened = Repository::open_agreed(lies, config, options, secret.as_ref());
    opened.map_err(|error| match error {
        StoreError::WrongPassword { .. } => Error::Password(format!(
            "{}, the other repository: {error}. Its password came from --from-password-file, --from-password-command, ONEFOLD_FROM_PASSWORD or the prompt",
            at(place)
        )),
        error => error.into(),
    })
}

/// Returns the place of a repository, which is not opened.
///
/// # Errors
/// [`Error::NoRepository`]: there is none at the place.
pub fn place_at(place: &Site, global: &Global) -> Result<onefold_store::Place> {
    let unopened = place.place()?;
    Repository::config_at(&unopened).map_err(|error| named(place, error))?;
    Ok(place.settled(unopened, global)?)
}

/// Makes the error that names the place where no repository is.
fn named(place: &Site, error: StoreError) -> Error {
    match error {
        StoreError::NoRepository { .. } => Error::NoRepository(place.display().to_string()),
        error => error.into(),
    }
}

/// Opens the repository as [`open`] does, for a repair of the configuration: where neither it nor its copy can be read,
/// or they differ from what the key slots seal, a key slot's copy of it is used.
pub fn open_to_repair(global: &Global, activity: &str) -> Result<Repository> {
    let place = place(global)?;
    let unopened = place.place()?;
    let in_the_clear = Repository::config_at(&unopened);
    let is_there = in_the_clear
        .as_ref()
        .map_or_else(StoreError::is_loss, |_| true);
    if !is_there || !Repository::has_slots(&unopened)? {
        return open_at(global, &place, activity, false);
    }
    // A repository with key slots was made with encryption.
    agree(global, &place, Encryption::Aes256Gcm)?;
    let in_the_clear = in_the_clear.ok();
    let in_the_clear = in_the_clear.filter(|config| config.encryption == Encryption::Aes256Gcm);
    with_password(global, &place, |secret| {
        let open = |config| {
            let lies = place.with_own(unopened.clone(), global, &config)?;
            let options = options(global, activity);
            Repository::open_agreed(lies, config, options, Some(secret))
        };
        let sealed = || Repository::config_in_slots(&unopened, secret).and_then(open);
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
    place: &Site,
    open: impl Fn(&Secret) -> onefold_store::Result<Repository>,
) -> Result<Repository> {
    let prompt = format!("password for {}: ", place.display());
    let read = || {
        let secret = global.password.read(Purpose::Open, &prompt);
        secret.map_err(|error| match error {
            Error::NoPassword(_) => Error::NoPassword(at(place)),
            error => error,
        })
    };
    for _ in 1..PROMPTS_MAX {
        match open(&read()?) {
            Err(StoreError::WrongPassword { .. }) if global.password.asks() => {
                eprintln!("wrong password, try again")
            }
            opened => return opened.map_err(|error| wrong_password(place, error)),
        }
    }
    open(&read()?).map_err(|error| wrong_password(place, error))
}

fn at(place: &Site) -> String {
    format!("the repository at {}", place.display())
}

/// Says of which repository the password is wrong.
fn wrong_password(place: &Site, error: StoreError) -> Error {
    match error {
        StoreError::WrongPassword { .. } => Error::WrongPassword {
            place: at(place),
            source: Box::new(error),
        },
        error => error.into(),
    }
}

/// Checks that the repository has the expected encryption. A configuration that says "none" is not sealed: after
/// somebody has rewritten it, a user who gives a password must not store data in the clear.
fn agree(global: &Global, place: &Site, is: Encryption) -> Result<()> {
    let place = place.display();
    if let Some(asked) = &global.encryption {
        return if Encryption::by_name(asked)? == is {
            Ok(())
        } else {
            Err(Error::Usage(format!(
                "{} is asked for, and the repository at {place} was made with {}: that holds for all of its life",
                if global.typed.has("encryption") {
                    format!("--encryption {asked}")
                } else {
                    format!("ONEFOLD_ENCRYPTION={asked}")
                },
                is.name()
            )))
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
    place: &Site,
    activity: &str,
    secret: Option<&Secret>,
) -> Result<Repository> {
    let unopened = place.place()?;
    let config = Repository::config_at(&unopened)?;
    let lies = place.with_own(unopened, global, &config)?;
    let options = options(global, activity);
    Ok(Repository::open_agreed(lies, config, options, secret)?)
}

fn options(global: &Global, activity: &str) -> OpenOptions {
    OpenOptions {
        index_ram_bytes: usize::try_from(global.ram).unwrap_or(usize::MAX),
        indexes: onefold_papers::KINDS,
        threads: threads(global),
        compression: global.compression.into(),
        local_cache_bytes: global.cache.bytes_max(),
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
pub fn offer(place: &Site) -> Result<bool> {
    let question = format!("there is no repository at {}; make one?", place.display());
    interrupted::before_making(|| password::confirm(&question))
}
