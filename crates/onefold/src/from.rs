//! The other repository of a verb: the one that is copied from, or made alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use onefold_store::{Repository, Secret};

use crate::error::{Error, Result};
use crate::global::Global;
use crate::named_file::{self, TEXT_BYTES_MAX};
use crate::password::{self, Purpose};
use crate::site::Site;
use crate::{place, repository};

/// The variable that holds the other repository's password itself.
const PASSWORD_ENV: &str = "ONEFOLD_FROM_PASSWORD";

/// Where the other repository is.
#[derive(Args, Debug)]
pub struct FromArgs {
    /// The repository to copy from
    #[arg(
        long,
        value_name = "FOLDER",
        env = "ONEFOLD_FROM_REPOSITORY",
        hide_env_values = true
    )]
    pub from_repo: Option<PathBuf>,

    /// File whose first line is the repository to copy from
    #[arg(
        long,
        value_name = "FILE",
        env = "ONEFOLD_FROM_REPOSITORY_FILE",
        hide_env_values = true
    )]
    pub from_repository_file: Option<PathBuf>,

    #[command(flatten)]
    pub password: FromPassword,
}

/// Password of the other repository.
#[derive(Args, Debug, Default)]
pub struct FromPassword {
    /// File whose first line is the other repository's password
    #[arg(
        long,
        value_name = "FILE",
        env = "ONEFOLD_FROM_PASSWORD_FILE",
        hide_env_values = true
    )]
    pub from_password_file: Option<PathBuf>,

    /// Shell command whose first line of output is the other repository's password
    #[arg(
        long,
        value_name = "COMMAND",
        env = "ONEFOLD_FROM_PASSWORD_COMMAND",
        hide_env_values = true
    )]
    pub from_password_command: Option<OsString>,

    /// The other repository's password is empty
    #[arg(long)]
    pub from_insecure_no_password: bool,

    /// All keys are tried
    #[arg(long, value_name = "ID", hide = true)]
    pub from_key_hint: Option<String>,
}

impl FromArgs {
    /// Opens the other repository.
    ///
    /// # Errors
    /// [`Error::Usage`] where nothing names it; those of opening one.
    pub fn open(&self, global: &Global, activity: &str) -> Result<Repository> {
        let named = match (&self.from_repo, &self.from_repository_file) {
            (Some(folder), _) => folder.clone(),
            (None, Some(file)) => {
                let what = || format!("read repository file {}", file.display());
                let text = named_file::read_text(file, TEXT_BYTES_MAX)
                    .map_err(|error| Error::io(what(), error))?;
                PathBuf::from(text.lines().next().unwrap_or_default().trim())
            }
            (None, None) => {
                return Err(Error::Usage(
                    "the repository to copy from is not named: give --from-repo FOLDER or set ONEFOLD_FROM_REPOSITORY".into(),
                ));
            }
        };
        self.password.open(&named, global, activity)
    }
}

impl FromPassword {
    /// Opens the repository at `named`.
    ///
    /// # Errors
    /// Those of opening one.
    pub fn open(&self, named: &Path, global: &Global, activity: &str) -> Result<Repository> {
        let place = place::site(named.as_os_str(), global)?;
        repository::open_other(global, &place, activity, || self.secret(&place))
    }

    fn secret(&self, place: &Site) -> Result<Secret> {
        if self.from_insecure_no_password {
            return Ok(Secret::new(Vec::new()));
        }
        let given = match (&self.from_password_file, &self.from_password_command) {
            (Some(file), _) => password::from_file(file)?,
            (None, Some(command)) => password::from_command(command)?,
            (None, None) => match std::env::var_os(PASSWORD_ENV).filter(|it| !it.is_empty()) {
                Some(given) => std::os::unix::ffi::OsStringExt::into_vec(given),
                None => {
                    let prompt = format!("password for {}: ", place.display());
                    return password::ask(Purpose::Open, &prompt).map_err(|error| match error {
                        Error::NoPassword(_) => Error::Password(format!(
                            "the other repository, at {}, is encrypted, and no password of it was given: give it with --from-password-file, --from-password-command or ONEFOLD_FROM_PASSWORD, or run on a terminal to be asked",
                            place.display()
                        )),
                        error => error,
                    });
                }
            },
        };
        Ok(Secret::new(given))
    }
}
