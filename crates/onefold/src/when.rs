//! Times: read from the user in the local time zone, shown in it, and in RFC 3339 in JSON. Below the program nobody asks for a clock.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use onefold_backup::Time;

use crate::error::{Error, Result};

/// What time it is.
pub fn now() -> Time {
    from_timestamp(Timestamp::now())
}

fn from_timestamp(t: Timestamp) -> Time {
    let nanos = t.as_nanosecond();
    Time {
        secs: nanos.div_euclid(1_000_000_000) as i64,
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    }
}

fn timestamp(time: Time) -> Timestamp {
    let nanos = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    Timestamp::from_nanosecond(nanos).unwrap_or(if time.secs < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// `2026-02-03 04:05:06`, in the local time zone.
pub fn local(time: Time) -> String {
    let zoned = timestamp(time).to_zoned(TimeZone::system());
    strtime::format("%Y-%m-%d %H:%M:%S", &zoned).unwrap_or_else(|_| zoned.to_string())
}

/// `2026-02-03T04:05:06.000000007+01:00`, as restic's JSON has it.
pub fn rfc3339(time: Time) -> String {
    let t = timestamp(time);
    let offset = TimeZone::system().to_offset(t);
    t.display_with_offset(offset).to_string()
}

/// The same from nanoseconds since 1970.
pub fn rfc3339_ns(ns: u64) -> String {
    rfc3339(Time {
        secs: (ns / 1_000_000_000) as i64,
        nanos: (ns % 1_000_000_000) as u32,
    })
}

/// A time as the user gives it: `2026-02-03 04:05:06` (seconds or all of the time may be left out), RFC 3339, or `now`.
pub fn parse(text: &str) -> Result<Time> {
    if text == "now" {
        return Ok(now());
    }
    if let Ok(t) = text.parse::<Timestamp>() {
        return Ok(from_timestamp(t));
    }
    let civil = text
        .parse::<civil::DateTime>()
        .or_else(|_| text.parse::<civil::Date>().map(|date| date.at(0, 0, 0, 0)));
    let zoned = civil.and_then(|civil| civil.to_zoned(TimeZone::system()));
    zoned.map(|z| from_timestamp(z.timestamp())).map_err(|_| {
        Error::Usage(format!(
            "{text:?} is no time: write it like \"2026-02-03 04:05:06\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let t = parse("2026-02-03T04:05:06.000000007Z").expect("valid");
        assert_eq!(t.nanos, 7);
        assert_eq!(parse(&rfc3339(t)).expect("valid"), t);
        assert_eq!(
            parse("2026-02-03 04:05").expect("valid"),
            parse("2026-02-03 04:05:00").expect("valid")
        );
        assert_eq!(
            parse("2026-02-03").expect("valid"),
            parse("2026-02-03 00:00:00").expect("valid")
        );
        assert!(parse("yesterday").is_err());
    }

    #[test]
    fn times_outside_of_the_calendar_are_shown_as_its_end() {
        local(Time {
            secs: i64::MAX,
            nanos: 0,
        });
        rfc3339(Time {
            secs: i64::MIN,
            nanos: 999_999_999,
        });
    }
}
