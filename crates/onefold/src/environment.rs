//! Variables of the environment that make no sense: the user is warned, and the default is used.

use std::ffi::OsString;

use jiff::tz::TimeZone;

use crate::out::Out;
use crate::progress::{FPS_ENV, fps};

/// Warns of variables without a flag; the command line checks the others.
pub fn warn_of_nonsense(out: &Out) {
    // `forget` counts days in this zone.
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
