//! Times: read from the user in the local time zone, shown in it, and in RFC 3339 in JSON. The engine never asks for
//! the time itself.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use onefold_backup::Time;

/// Returns the current time.
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

/// Returns a time as `2026-02-03 04:05:06`, in the local time zone.
pub fn local(time: Time) -> String {
    let zoned = timestamp(time).to_zoned(TimeZone::system());
    strtime::format("%Y-%m-%d %H:%M:%S", &zoned).unwrap_or_else(|_| zoned.to_string())
}

/// Returns a time as `2026-02-03T04:05:06.000000007+01:00`, as restic's JSON has it.
pub fn rfc3339(time: Time) -> String {
    let t = timestamp(time);
    let offset = TimeZone::system().to_offset(t);
    t.display_with_offset(offset).to_string()
}

/// Returns nanoseconds since 1970 as [`rfc3339`] does.
pub fn rfc3339_ns(ns: u64) -> String {
    rfc3339(Time {
        secs: (ns / 1_000_000_000) as i64,
        nanos: (ns % 1_000_000_000) as u32,
    })
}

/// Formats of times with an offset, as restic reads them.
const OFFSET_FORMATS: [&str; 2] = ["%Y-%m-%d %H:%M:%S %z", "%d.%m.%Y %H:%M:%S %z"];

/// Parses the user's time: `2026-02-03 04:05:06` (seconds or the whole time may be left out, the date may be
/// `03.02.2026`, and an offset such as `+0100` may follow the seconds), RFC 3339, or `now`. Errors: a sentence for the
/// user.
pub fn parse(text: &str) -> Result<Time, String> {
    if text == "now" {
        return Ok(now());
    }
    if let Ok(t) = text.parse::<Timestamp>() {
        return Ok(from_timestamp(t));
    }
    if let Some(t) = OFFSET_FORMATS.iter().find_map(|format| {
        let read = strtime::parse(format, text).and_then(|time| time.to_timestamp());
        read.ok()
    }) {
        return Ok(from_timestamp(t));
    }
    let german = || -> Result<civil::DateTime, jiff::Error> {
        let (date, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
        let date = civil::Date::strptime("%d.%m.%Y", date)?;
        Ok(date.to_datetime(time.parse::<civil::Time>()?))
    };
    let civil = text
        .parse::<civil::DateTime>()
        .or_else(|_| german())
        .or_else(|_| text.parse::<civil::Date>().map(|date| date.at(0, 0, 0, 0)));
    let zoned = civil.and_then(|civil| civil.to_zoned(TimeZone::system()));
    zoned
        .map(|z| from_timestamp(z.timestamp()))
        .map_err(|_| format!("{text:?} is no time: write it like \"2026-02-03 04:05:06\""))
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
        for other in ["03.02.2026", "03.02.2026 00:00", "03.02.2026 00:00:00"] {
            assert_eq!(
                parse(other).expect(other),
                parse("2026-02-03").expect("valid")
            );
        }
        for other in ["2026-02-03 05:05:06 +0100", "03.02.2026 05:05:06 +0100"] {
            let utc = parse("2026-02-03T04:05:06Z").expect("valid");
            assert_eq!(parse(other).expect(other), utc);
        }
        for none in [
            "yesterday",
            "33.02.2026",
            "03.02.2026 25:00",
            "2026-02-03 05:05:06 +01",
        ] {
            assert!(parse(none).is_err(), "{none}");
        }
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
