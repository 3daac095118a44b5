//! `onefold unlock`: does nothing, and says so, for scripts made for restic. The kernel has released the locks of dead
//! processes.

use serde_json::json;

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::{self, Out};
use crate::{json, repository};

/// Do nothing: locks end with their process, so none is ever left to be removed
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Taken as restic's; those who are at work are not disturbed
    #[arg(long)]
    pub remove_all: bool,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let sessions = repository::open(global, "a look at locks")?.sessions()?;
    if out.json {
        let sessions: Vec<_> = sessions.iter().map(json::session).collect();
        out.json(&json!({"message_type": "summary", "sessions": sessions}))?;
    }
    out.say(match sessions.len() {
        0 => "nothing is locked".to_owned(),
        _ => "nothing needs unlocking: what is running ends its locks itself".into(),
    })?;
    for session in &sessions {
        out.say(format_args!("  {}", out::safe(&session.to_string())))?;
    }
    if args.remove_all && !sessions.is_empty() {
        out.say("to end one, end its process")?;
    }
    Ok(Exit::Ok)
}
