//! What the environment says that means nothing: who set it is told, and the default holds.

use std::ffi::OsString;

use jiff::tz::TimeZone;

use crate::out::Out;
use crate::progress::{FPS_ENV, fps};

/// Warns of variables that no flag stands for, which the command line would have refused.
pub fn warn_of_nonsense(out: &Out) {
    // By its days `forget` goes.
    if let Some(given) = set("TZ").filter(|_| TimeZone::try_system().is_err()) {
        out.warn(format_args!(
            "TZ is {given:?}, which is no time zone that this machine knows: times are read and shown in UTC"
        ));
    }
    if let Some(given) = set(FPS_ENV).filter(|_| fps().is_none()) {
        out.warn(format_args!(
            "{FPS_ENV} is {given:?}, which is no number above 0: it counts for nothing"
        ));
    }
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
