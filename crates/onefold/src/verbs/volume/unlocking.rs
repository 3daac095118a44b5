//! The password of an encrypted depot, from the sources of a repository's password. Depots are opened in many
//! places, so the options stand here for the run.
//!
//! A process that is attached or serves has the keys, and its control socket, of this user alone, asks for no password.

use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use onefold_io::Dir;
use onefold_store::{Encryption, Secret};
use onefold_volume::{Depot, Error as VolumeError};

use super::own_path::naming;
use crate::error::{Error, Result};
use crate::global::Global;
use crate::password::{PROMPTS_MAX, PasswordOptions, Purpose};

/// Options about the password as this run was given them.
static OPTIONS: OnceLock<PasswordOptions> = OnceLock::new();
/// Encryption that the command line asks for.
static EXPECTED: OnceLock<Encryption> = OnceLock::new();
/// Password that the process which started this one has read and tried.
static HANDED_OVER: OnceLock<Secret> = OnceLock::new();

/// Takes passwords of depots from these sources from now on.
pub fn begin(options: &PasswordOptions) {
    let _ = OPTIONS.set(options.clone());
}

/// Refuses depots of another encryption than the command line asks for, from now on. What a variable says is meant for
/// repositories, too, and counts for new depots alone.
///
/// # Errors
/// There is no encryption of that name.
pub fn expect(global: &Global) -> Result<()> {
    if let Some(asked) = &global.encryption
        && global.typed.has("encryption")
    {
        let _ = EXPECTED.set(Encryption::by_name(asked)?);
    }
    Ok(())
}

/// Fails where the command line asks for another encryption than the depot in `folder` has. A configuration is not
/// sealed: somebody may have put one there that says that nothing is encrypted.
///
/// # Errors
/// [`Error::Usage`] in that case; there is no depot, or it is damaged.
pub fn agree(folder: &Path, dir: &dyn Dir) -> Result<Encryption> {
    let named = |error| Error::Device(naming(error, folder));
    let is = if Depot::is_encrypted(dir).map_err(named)? {
        Encryption::Aes256Gcm
    } else {
        Encryption::None
    };
    match EXPECTED.get() {
        Some(asked) if *asked != is => Err(Error::Usage(format!(
            "--encryption {} is asked for, and the depot {} was made with {}: that holds for all of its life",
            asked.name(),
            folder.display(),
            is.name()
        ))),
        _ => Ok(is),
    }
}

/// Takes the password from standard input, to which the process that started this one writes it.
///
/// # Errors
/// Standard input cannot be read.
pub fn take_handed_over() -> Result<()> {
    let mut password = Vec::new();
    std::io::stdin()
        .read_to_end(&mut password)
        .map_err(|error| Error::io("take the depot's password", error))?;
    let _ = HANDED_OVER.set(Secret::new(password));
    Ok(())
}

/// Returns the password of a depot that is to be made in `folder`.
///
/// # Errors
/// Nothing gives one and there is no terminal, or two sources do.
pub fn new_password(folder: &Path) -> Result<Secret> {
    let prompt = format!("password for the new depot at {}: ", folder.display());
    options().read(Purpose::New, &prompt)
}

/// Returns the password of the depot in `folder`, of which `dir` is the folder; `None` where it is not encrypted. A
/// password that is typed is tried, and asked for again where it is wrong.
///
/// # Errors
/// There is no depot, it is damaged, or the password is missing or wrong.
pub fn password_of(folder: &Path, dir: &dyn Dir) -> Result<Option<Secret>> {
    if agree(folder, dir)? == Encryption::None {
        return Ok(None);
    }
    let named = |error| Error::Device(naming(error, folder));
    if let Some(password) = HANDED_OVER.get() {
        return Ok(Some(password.clone()));
    }
    let options = options();
    for tries_left in (0..PROMPTS_MAX).rev() {
        let password = read(&options, folder)?;
        if !options.asks() {
            // Opening tries it.
            return Ok(Some(password));
        }
        match Depot::try_password(dir, &password) {
            Err(VolumeError::WrongPassword { .. }) if tries_left > 0 => {
                eprintln!("wrong password, try again");
            }
            tried => return tried.map(|()| Some(password)).map_err(named),
        }
    }
    Err(named(VolumeError::WrongPassword {
        place: String::new(),
    }))
}

fn read(options: &PasswordOptions, folder: &Path) -> Result<Secret> {
    let shown = folder.display();
    let read = options.read(
        Purpose::Open,
        &format!("password for the depot at {shown}: "),
    );
    read.map_err(|error| match error {
        Error::NoPassword(_) => Error::NoPassword(format!("the depot at {shown}")),
        error => error,
    })
}

fn options() -> PasswordOptions {
    OPTIONS.get().cloned().unwrap_or_default()
}
