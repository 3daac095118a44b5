//! `onefold key`: manages the passwords that open the repository.

use std::path::PathBuf;

use clap::Subcommand;
use onefold_backup::Time;
use onefold_store::{KdfCost, KeyInfo, Repository, Secret};
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::out::{self, Out};
use crate::password::{self, Purpose};
use crate::patience::Patience;
use crate::{human, machine, repository, when};

/// Digits of a key's name that are shown.
const SHORT_KEY: usize = 8;
const NO_KEYS: &str = "the repository is not encrypted: it has no keys";

/// List, add, remove and change passwords
///
/// A repository opens with any of its keys. Changing a password does not encrypt anything anew: whoever had the old
/// password and a copy of the repository, or of the key's file, can still read it.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub what: KeyAction,
}

/// Action on keys.
#[derive(Subcommand, Debug)]
pub enum KeyAction {
    /// List the keys
    List,
    /// Add a password
    Add(NewKey),
    /// Remove a key
    ///
    /// The password that opens it opens the repository no more, unless somebody kept a copy of the key's file and puts
    /// it back into `keys`: all keys lead to one master key, which never changes.
    Remove {
        /// Beginning of the key's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Change the password in use: add a new one, remove the old
    Passwd(NewKey),
}

/// Source of a new password, and labels of its key.
#[derive(clap::Args, Debug)]
pub struct NewKey {
    /// File whose first line is the new password
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,

    /// An empty new password: whoever can read the repository can read what is in it
    #[arg(long, conflicts_with = "new_password_file")]
    pub new_insecure_no_password: bool,

    /// Whom the key belongs to (default: user@host)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,

    /// On which host
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
}

impl NewKey {
    pub fn secret(&self) -> Result<Secret> {
        if self.new_insecure_no_password {
            return Ok(Secret::new(Vec::new()));
        }
        match &self.new_password_file {
            Some(file) => password::not_empty(password::from_file(file)?, Purpose::New),
            // The environment and the global flags name the old password.
            None => password::ask(Purpose::New, "new password: "),
        }
    }

    pub fn label(&self) -> String {
        let user = self.user.clone().unwrap_or_else(machine::user);
        let host = self.host.clone().unwrap_or_else(machine::host);
        format!("{user}@{host}")
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a look at keys")?;
    match &args.what {
        KeyAction::List => list(&repository, out)?,
        KeyAction::Add(new) => {
            let id = add(&repository, new)?;
            changed(Some(&id), None, out)?;
            out.say(format_args!("added key {}", short(&id)))?;
        }
        KeyAction::Remove { id } => {
            // A key that cannot be read can be removed, too.
            let id = resolve(repository.key_names()?, id)?;
            if repository.current_key() == Some(id.as_str()) {
                return Err(Error::Usage(
                    "this is the key in use: open the repository with another one to remove it"
                        .into(),
                ));
            }
            repository.remove_key(&id)?;
            changed(None, Some(&id), out)?;
            out.say(format_args!("removed key {}", short(&id)))?;
        }
        KeyAction::Passwd(new) => {
            let old = repository.current_key().map(str::to_owned);
            let id = add(&repository, new)?;
            if let Some(old) = &old {
                remove_old(&repository, old, (global, out))
                    .inspect_err(|_| out.note(format_args!(
                        "key {} was added, and the old one is still there: both passwords open the repository until `onefold key remove {}` with the new one",
                        short(&id),
                        short(old)
                    )))?;
            }
            changed(Some(&id), old.as_deref(), out)?;
            out.say(format_args!(
                "changed the password: key {} replaces the old one",
                short(&id)
            ))?;
        }
    }
    Ok(Exit::Ok)
}

/// Removes the old key. Another process that changed the same password may have removed it; then both new keys are
/// there.
fn remove_old(repository: &Repository, old: &str, (global, out): (&Global, &Out)) -> Result<()> {
    let patience = Patience::with_the_brief(global, out);
    patience.keep(|| {
        if repository.key_names()?.iter().any(|key| key == old) {
            Ok(repository.remove_key(old)?)
        } else {
            Ok(())
        }
    })
}

/// Reports, for programs, the key that was added, and the one that was removed.
pub fn changed(added: Option<&str>, removed: Option<&str>, out: &Out) -> Result<()> {
    if out.json {
        out.json(&json!({"message_type": "summary", "added_key": added, "removed_key": removed}))
    } else {
        Ok(())
    }
}

fn add(repository: &Repository, new: &NewKey) -> Result<String> {
    if repository.current_key().is_none() {
        return Err(Error::Usage(NO_KEYS.into()));
    }
    let now = when::now().secs.max(0) as u64;
    Ok(repository.add_key(&new.secret()?, &new.label(), KdfCost::default(), now)?)
}

fn list(repository: &Repository, out: &Out) -> Result<()> {
    let (keys, current) = (repository.keys()?, repository.current_key());
    if !out.json && keys.is_empty() && current.is_none() {
        return out.say(format_args!("{NO_KEYS}"));
    }
    show(&keys, current, out)
}

/// Shows keys, with a mark at the one in use, as a table or as JSON.
pub fn show(keys: &[KeyInfo], current: Option<&str>, out: &Out) -> Result<()> {
    let is_current = |key: &KeyInfo| current == Some(key.id.as_str());
    let created = |key: &KeyInfo| {
        when::local(Time {
            secs: i64::try_from(key.created_unix_s).unwrap_or(i64::MAX),
            nanos: 0,
        })
    };
    if out.json {
        let rows = keys.iter().map(|key| {
            let (user, host) = key.label.rsplit_once('@').unwrap_or((&key.label, ""));
            json!({"current": is_current(key), "id": key.id, "userName": user, "hostName": host, "created": created(key), "proved": key.is_proved})
        });
        return out.json(&rows.collect::<Vec<_>>());
    }
    let mut rows = vec![vec!["ID".to_owned(), "Owner".into(), "Created".into()]];
    for key in keys {
        let star = if is_current(key) { "*" } else { " " };
        rows.push(vec![
            format!("{star}{}", short(&key.id)),
            out::safe(&key.label),
            created(key),
        ]);
    }
    out.bytes(human::table(&rows, &[]).as_bytes())?;
    for key in keys.iter().filter(|key| !key.is_proved) {
        out.note(format_args!(
            "key {}: owner and date may be anybody's: they were not written with the master key",
            short(&key.id)
        ));
    }
    Ok(())
}

/// Returns the name that begins so.
///
/// # Errors
/// [`Error::Failed`] where none or several do.
pub fn resolve(mut names: Vec<String>, beginning: &str) -> Result<String> {
    names.retain(|id| !beginning.is_empty() && id.starts_with(beginning));
    match &names[..] {
        [id] => Ok(id.clone()),
        [] => Err(Error::Failed(format!("no key begins with {beginning:?}"))),
        _ => Err(Error::Failed(format!(
            "{} keys begin with {beginning:?}",
            names.len()
        ))),
    }
}

/// The beginning of a key's name, as it is shown.
pub fn short(id: &str) -> &str {
    &id[..id.len().min(SHORT_KEY)]
}
