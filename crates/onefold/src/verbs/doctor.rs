//! `onefold doctor`: whether a store in a bucket can hold a repository, and whether several machines can share it.

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;
use crate::repository;

/// Try whether a bucket can hold a repository that several machines share
///
/// Trials run over two connections. They try that exactly one wins of many who write one object at once, that what is
/// written is read and listed at once, and that parts and long lists are right. They take some 1,300 small requests. A
/// trial can refute a store and not prove it. Its objects lie below "doctor/" and are removed at the end. The exit code
/// is 1 where the store cannot be shared. No repository need be there, and no password.
#[derive(clap::Args, Debug)]
pub struct Args {}

#[cfg(not(feature = "remote"))]
pub fn run(_args: &Args, global: &Global, _out: &Out) -> Result<Exit> {
    repository::place(global)?;
    Err(no_bucket())
}

fn no_bucket() -> Error {
    Error::Usage("doctor tries buckets (s3:…): a local folder needs no trial".into())
}

#[cfg(feature = "remote")]
pub use of_bucket::{confirm_shared, run};

#[cfg(feature = "remote")]
mod of_bucket {
    use onefold_remote::doctor::{self, TrialExtent, TrialOutcome, TrialResult};
    use serde_json::json;

    use super::*;
    use crate::bucket::Bucket;
    use crate::out;
    use crate::site::Site;

    /// Columns of what was tried.
    const TRIAL_COLUMNS: usize = 23;

    pub fn run(_args: &Args, global: &Global, out: &Out) -> Result<Exit> {
        let Site::Bucket(bucket) = repository::place(global)? else {
            return Err(no_bucket());
        };
        let mut told = Ok(());
        let findings = bucket.examine(TrialExtent::Full, &mut |finding| {
            told = std::mem::replace(&mut told, Ok(())).and_then(|()| tell(finding, out));
        })?;
        told?;
        match doctor::verdict(&findings) {
            TrialOutcome::Good | TrialOutcome::Note => {
                out.say("nothing speaks against it: several machines may share it")?;
                Ok(Exit::Ok)
            }
            TrialOutcome::Unshared => Err(Error::Failed(
                "this store cannot be shared: a repository needs another one".into(),
            )),
            TrialOutcome::Bad => Err(Error::Failed("a repository cannot work there".into())),
        }
    }

    fn tell(finding: &TrialResult, out: &Out) -> Result<()> {
        if out.json {
            return out.json(&json!({
                "message_type": "trial",
                "trial": finding.trial,
                "verdict": word(finding.verdict),
                "seen": finding.seen,
                "remedy": finding.remedy,
            }));
        }
        let (word, trial) = (word(finding.verdict), finding.trial);
        out.say(format_args!(
            "{word:<9}{trial:<TRIAL_COLUMNS$} {}",
            out::safe(&finding.seen)
        ))?;
        match &finding.remedy {
            Some(remedy) => out.say(format_args!("         {remedy}")),
            None => Ok(()),
        }
    }

    fn word(verdict: TrialOutcome) -> &'static str {
        match verdict {
            TrialOutcome::Good => "ok",
            TrialOutcome::Note => "note",
            TrialOutcome::Unshared => "unshared",
            TrialOutcome::Bad => "bad",
        }
    }

    /// Before a repository is made: that its store can be shared, or that one machine alone is to use it.
    ///
    /// # Errors
    /// [`Error::Failed`]: it cannot.
    pub fn confirm_shared(bucket: &Bucket, is_single_writer: bool) -> Result<()> {
        let findings = bucket.examine(TrialExtent::Quick, &mut |_| {})?;
        let is_wrong = |finding: &&TrialResult| match finding.verdict {
            TrialOutcome::Bad => true,
            TrialOutcome::Unshared => !is_single_writer,
            TrialOutcome::Good | TrialOutcome::Note => false,
        };
        let Some(wrong) = findings.iter().find(is_wrong) else {
            return Ok(());
        };
        let remedy = wrong
            .remedy
            .as_deref()
            .unwrap_or("`onefold doctor` tries all of it");
        Err(Error::Failed(format!(
            "this store cannot hold the repository: {}: {}; {remedy}",
            wrong.trial, wrong.seen
        )))
    }
}
