//! `onefold volume key`: manages the passwords that open an encrypted depot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use onefold_store::{Entropy, KdfCost};
use onefold_volume::depot::{DepotKeys, NewPassword, system_devices};

use super::heads::now;
use super::own_path::naming;
use super::source::open_folder;
use super::unlocking;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out::Out;
use crate::verbs::key::{NewKey, changed, resolve, short, show};

/// List, add, remove and change the passwords of an encrypted depot
///
/// A depot opens with any of its keys. Nobody may have it attached, served or open while they change. Changing a
/// password does not encrypt anything anew: whoever had the old password and a copy of the depot's configuration can
/// still read the depot.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub what: DepotKeyAction,
}

/// Action on the keys of a depot.
#[derive(Subcommand, Debug)]
pub enum DepotKeyAction {
    /// List the keys
    List(KeysOf),
    /// Add a password
    Add(NewKeyOf),
    /// Remove a key
    Remove {
        #[command(flatten)]
        of: KeysOf,

        /// Beginning of the key's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Change the password in use: the old one opens nothing any more
    Passwd(NewKeyOf),
}

/// Depot whose keys are meant.
#[derive(clap::Args, Debug)]
pub struct KeysOf {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: PathBuf,
}

/// Depot that is to have a new key, and the key.
#[derive(clap::Args, Debug)]
pub struct NewKeyOf {
    #[command(flatten)]
    pub of: KeysOf,

    #[command(flatten)]
    pub new: NewKey,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    match &args.what {
        DepotKeyAction::List(of) => {
            let keys = open(&of.depot)?;
            show(&keys.list(), Some(keys.current()), out)?;
        }
        DepotKeyAction::Add(args) => add(args, out)?,
        DepotKeyAction::Remove { of, id } => {
            let mut keys = open(&of.depot)?;
            let names = keys.list().into_iter().map(|key| key.id);
            let id = resolve(names.collect(), id)?;
            keys.remove(&id).map_err(|error| naming(error, &of.depot))?;
            changed(None, Some(&id), out)?;
            out.say(format_args!("removed key {}", short(&id)))?;
        }
        DepotKeyAction::Passwd(args) => change(args, out)?,
    }
    Ok(Exit::Ok)
}

fn add(args: &NewKeyOf, out: &Out) -> Result<()> {
    let mut keys = open(&args.of.depot)?;
    let id = keys
        .add(&new_password(&args.new)?, &Entropy::system())
        .map_err(|error| naming(error, &args.of.depot))?;
    changed(Some(&id), None, out)?;
    out.say(format_args!("added key {}", short(&id)))
}

fn change(args: &NewKeyOf, out: &Out) -> Result<()> {
    let mut keys = open(&args.of.depot)?;
    let old = keys.current().to_owned();
    let id = keys
        .replace_current(&new_password(&args.new)?, &Entropy::system())
        .map_err(|error| naming(error, &args.of.depot))?;
    changed(Some(&id), Some(&old), out)?;
    out.say(format_args!(
        "changed the password: key {} replaces the old one",
        short(&id)
    ))
}

fn new_password(new: &NewKey) -> Result<NewPassword> {
    Ok(NewPassword {
        password: new.secret()?,
        cost: KdfCost::default(),
        label: new.label(),
        created_unix_s: now(),
    })
}

fn open(depot: &Path) -> Result<DepotKeys> {
    let folder = open_folder(depot)?;
    let password = unlocking::password_of(depot, &folder)?;
    DepotKeys::open(Arc::new(folder), system_devices(), password.as_ref())
        .map_err(|error| Error::Device(naming(error, depot)))
}
