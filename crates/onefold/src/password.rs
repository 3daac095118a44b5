//! Sources of the password: the command line's file, command or option for none; a variable; or a prompt. The password
//! is never printed, logged or passed on: commands that the program starts do not inherit it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use onefold_store::Secret;

use crate::cli::typed::{GivenValue, Typed};
use crate::error::{Error, Result};
use crate::named_file::{self, TEXT_BYTES_MAX};
use crate::signal;

/// Environment variable that holds the password itself. There is no such option of the command line: other users could
/// see it there.
pub const PASSWORD_ENV: &str = "ONEFOLD_PASSWORD";

/// Times that the user is asked, after a wrong password, or a new one that was typed differently twice.
pub const PROMPTS_MAX: usize = 3;

/// Options about the password.
#[derive(Args, Clone, Debug, Default)]
pub struct PasswordOptions {
    #[command(flatten)]
    pub typed: Typed,

    /// File whose first line is the password; blanks around it do not count
    #[arg(
        short = 'p',
        long,
        value_name = "FILE",
        env = "ONEFOLD_PASSWORD_FILE",
        hide_env_values = true,
        global = true,
        help_heading = "Global options"
    )]
    pub password_file: Option<OsString>,

    /// Shell command whose first line of output is the password; blanks around it do not count
    #[arg(
        long,
        value_name = "COMMAND",
        env = "ONEFOLD_PASSWORD_COMMAND",
        hide_env_values = true,
        global = true,
        help_heading = "Global options"
    )]
    pub password_command: Option<OsString>,

    /// Use an empty password: whoever can read the repository can read what is in it
    #[arg(long, global = true, help_heading = "Global options")]
    pub insecure_no_password: bool,
}

/// Source of the password.
enum PasswordSource<'a> {
    File(&'a OsString),
    Command(&'a OsString),
    Variable(OsString),
}

/// Purpose of a password: for a new one, a prompt asks twice, and an empty one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Open an existing repository.
    Open,
    /// Set a new password.
    New,
}

impl PasswordOptions {
    /// Returns the password; asks for it with `prompt` if no option or variable gives it.
    ///
    /// # Errors
    /// [`Error::NoPassword`] where nothing gives one and there is no terminal; [`Error::Usage`] where two sources do.
    pub fn read(&self, purpose: Purpose, prompt: &str) -> Result<Secret> {
        let given = match self.given()? {
            Some((by, _)) if self.insecure_no_password => {
                return Err(Error::Usage(format!(
                    "--insecure-no-password says that there is no password, and {by} gives one: leave one out"
                )));
            }
            None if self.insecure_no_password => return Ok(Secret::new(Vec::new())),
            None => return ask(purpose, prompt),
            Some((_, PasswordSource::File(file))) => from_file(Path::new(file))?,
            Some((_, PasswordSource::Command(command))) => from_command(command)?,
            Some((_, PasswordSource::Variable(password))) => password.into_vec(),
        };
        not_empty(given, purpose)
    }

    /// Whether the password comes from a prompt, so that a wrong one can be typed again.
    pub fn asks(&self) -> bool {
        let given = self.insecure_no_password
            || self.password_file.is_some()
            || self.password_command.is_some()
            || from_environment().is_some();
        !given
    }

    /// Returns the option or the variable that gives the password: `--password-file`, `ONEFOLD_PASSWORD` …
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub fn given_by(&self) -> Result<Option<String>> {
        Ok(self.given()?.map(|(by, _)| by))
    }

    /// Returns the source of the password, and its name for the user. Errors: [`Error::Usage`] where the command line
    /// or the environment names two sources.
    fn given(&self) -> Result<Option<(String, PasswordSource<'_>)>> {
        let file = GivenValue {
            id: "password_file",
            variable: "ONEFOLD_PASSWORD_FILE",
            value: self.password_file.as_ref().map(PasswordSource::File),
        };
        let command = GivenValue {
            id: "password_command",
            variable: "ONEFOLD_PASSWORD_COMMAND",
            value: self.password_command.as_ref().map(PasswordSource::Command),
        };
        let variable = GivenValue {
            id: "",
            variable: PASSWORD_ENV,
            value: from_environment().map(PasswordSource::Variable),
        };
        self.typed
            .one_of("give a password", [file, command, variable])
    }
}

/// Reads the variable; an empty one gives no password, as with the other variables.
fn from_environment() -> Option<OsString> {
    std::env::var_os(PASSWORD_ENV).filter(|password| !password.is_empty())
}

/// Asks at the terminal, whatever the options say and wherever standard input comes from; twice for a new password.
pub fn ask(purpose: Purpose, prompt: &str) -> Result<Secret> {
    if !has_terminal() {
        return Err(match purpose {
            Purpose::Open => Error::NoPassword("the repository".into()),
            Purpose::New => Error::NoNewPassword,
        });
    }
    let mut password = prompt_hidden(prompt)?;
    let mut tries = 1;
    while purpose == Purpose::New && prompt_hidden("once more: ")? != password {
        if tries == PROMPTS_MAX {
            return Err(Error::PasswordsDiffer);
        }
        eprintln!("the two passwords differ, try again");
        tries += 1;
        password = prompt_hidden(prompt)?;
    }
    not_empty(password, purpose)
}

/// Whether there is a terminal that this program can read: a program in the background would be stopped at the first
/// question.
fn has_terminal() -> bool {
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let about = || std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    terminal.is_ok() && listens_to_us(&about()).unwrap_or(true)
}

/// Whether the process group that the terminal listens to is this process's, from the text of `/proc/self/stat`; `None`
/// where that cannot be parsed. In a PID namespace groups from outside are 0, which the system's functions for this do
/// not expect.
fn listens_to_us(about: &str) -> Option<bool> {
    // The program's name, in brackets, may contain any characters.
    let (_, fields) = about.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let (group, listening_to) = (fields.nth(2)?, fields.nth(2)?);
    Some(group == listening_to)
}

/// Returns the first line of a file: for `--password-file` and `--new-password-file`.
pub fn from_file(file: &Path) -> Result<Vec<u8>> {
    let name = file.display();
    let bytes = named_file::read(file, TEXT_BYTES_MAX)
        .map_err(|e| Error::Password(format!("read password file {name}: {e}")))?;
    first_line(&bytes, || format!("the password file {name} is empty"))
}

/// Returns the first line of a command's output.
pub fn from_command(command: &OsString) -> Result<Vec<u8>> {
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env_remove(PASSWORD_ENV)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Error::io("run the password command", e))?;
    if !output.status.success() {
        return Err(Error::Password(format!(
            "the password command ended with {}",
            output.status
        )));
    }
    let nothing = || "the password command prints nothing".into();
    first_line(&output.stdout, nothing)
}

/// Returns the first line without blanks around it and without the mark of an encoding, which nobody types at a prompt.
fn first_line(bytes: &[u8], nothing: impl FnOnce() -> String) -> Result<Vec<u8>> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = text.trim_ascii().split(|b| *b == b'\n');
    match lines.next().unwrap_or_default().trim_ascii_end() {
        b"" => Err(Error::Password(format!(
            "{}: say --insecure-no-password (for a new one, --new-insecure-no-password) if there is to be none",
            nothing()
        ))),
        line => Ok(line.to_vec()),
    }
}

/// Returns the password unchanged; an empty new password is refused.
pub fn not_empty(password: Vec<u8>, purpose: Purpose) -> Result<Secret> {
    if password.is_empty() && purpose == Purpose::New {
        return Err(Error::Password(
            "the new password is empty; say --insecure-no-password (with `key`: --new-insecure-no-password) if that is meant".into(),
        ));
    }
    Ok(Secret::new(password))
}

fn prompt_hidden(prompt: &str) -> Result<Vec<u8>> {
    signal::guard_terminal(|| rpassword::prompt_password(prompt))
        .map(String::into_bytes)
        .map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::NoPassword("the repository".into()),
            _ => Error::io("read the password", e),
        })
}

/// Asks a question that is answered with yes or no. Errors: standard input ends.
pub fn confirm(question: &str) -> Result<bool> {
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|e| Error::io("read the answer", e))?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
