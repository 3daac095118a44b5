//! Parameters of a named algorithm, as users write them: `NAME:key=value,…`.
//!
//! Invariant: every value of [`Knobs`] is in the range that its [`Knob`] names. A key that is not given has no
//! value: the algorithm uses its own default.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A parameter that a user may set.
///
/// ```
/// use onefold_chunk::knobs::{Knob, Values};
///
/// let bits = Knob { key: "bits", values: Values::Whole(1, 30), default: "13", about: "bits of the pattern" };
/// assert_eq!(bits.values.to_string(), "1 to 30");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The key, as it is written.
    pub key: &'static str,
    /// The values that the parameter may have.
    pub values: Values,
    /// The paper's default, as it is shown.
    pub default: &'static str,
    /// Meaning of the parameter, with its unit.
    pub about: &'static str,
}

/// The allowed values of a parameter.
///
/// ```
/// use onefold_chunk::knobs::Values;
///
/// assert_eq!(Values::PowerOfTwo(1, 64).to_string(), "a power of two, 1 to 64");
/// assert_eq!(Values::Bytes(65_536, 1 << 40).to_string(), "64K to 1T");
/// assert_eq!(Values::Word(&["linear", "lru"]).to_string(), "linear, lru");
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Values {
    /// A whole number, from the first to the second.
    Whole(u64, u64),
    /// A whole number that is a power of two, from the first to the second.
    PowerOfTwo(u64, u64),
    /// A number, from the first to the second.
    Real(f64, f64),
    /// Bytes, from the first to the second; `K`, `M`, `G` and `T` stand for powers of 1,024.
    Bytes(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

impl core::fmt::Display for Values {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Values::Whole(least, most) => write!(f, "{least} to {most}"),
            Values::PowerOfTwo(least, most) => write!(f, "a power of two, {least} to {most}"),
            Values::Real(least, most) => write!(f, "{least} to {most}"),
            Values::Bytes(least, most) => {
                let (least, least_unit) = in_unit(*least);
                let (most, most_unit) = in_unit(*most);
                write!(f, "{least}{least_unit} to {most}{most_unit}")
            }
            Values::Word(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// A value that was set.
#[derive(Clone, Copy, PartialEq, Debug)]
enum KnobValue {
    Whole(u64),
    Real(f64),
    Word(&'static str),
}

/// The parameters that a user set, each in its range.
///
/// ```
/// use onefold_chunk::knobs::{Knob, Knobs, Values};
///
/// let known = [Knob { key: "rate", values: Values::Real(0.0, 1.0), default: "1", about: "part that is counted" }];
/// let knobs = Knobs::parse("fbc", "rate=0.5", &known)?;
/// assert_eq!((knobs.real("rate"), knobs.whole("rate")), (Some(0.5), None));
/// # Ok::<(), onefold_chunk::knobs::BadKnob>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Knobs(Vec<(&'static str, KnobValue)>);

/// A parameter that does not exist, or a value out of range; the message lists the allowed ones.
///
/// ```
/// use onefold_chunk::knobs::{Knob, Knobs, Values};
///
/// let known = [Knob { key: "bits", values: Values::Whole(1, 30), default: "13", about: "bits of the pattern" }];
/// let error = Knobs::parse("inc-k", "bits=31", &known).unwrap_err();
/// assert_eq!(error.to_string(), "inc-k:bits=31: bits is 1 to 30");
/// assert_eq!(Knobs::parse("inc-k", "bits=14", &known).unwrap().whole("bits"), Some(14));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadKnob(pub String);

impl core::fmt::Display for BadKnob {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadKnob {}

/// The name in `NAME` or `NAME:key=value,…`, and the part behind the colon, which may be empty.
///
/// ```
/// use onefold_chunk::knobs::split;
///
/// assert_eq!(split("rabin:bits=13,min=2048"), ("rabin", "bits=13,min=2048"));
/// assert_eq!(split("rabin"), ("rabin", ""));
/// ```
pub fn split(text: &str) -> (&str, &str) {
    text.split_once(':').unwrap_or((text, ""))
}

impl Knobs {
    /// Parses `text`, the part behind `name:`, into values of the `known` parameters.
    ///
    /// # Errors
    /// [`BadKnob`]: a key that is unknown or given twice, or a value that is out of range.
    pub fn parse(name: &str, text: &str, known: &[Knob]) -> Result<Knobs, BadKnob> {
        let mut knobs = Knobs::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let bad = |what: String| BadKnob(format!("{name}:{part}: {what}"));
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| bad("expected key=value".to_string()))?;
            let knob = known.iter().find(|knob| knob.key == key);
            let knob = knob.ok_or_else(|| bad(unknown(name, key, known)))?;
            if knobs.0.iter().any(|(other, _)| *other == key) {
                return Err(bad(format!("{key} is set twice")));
            }
            let value = knob.values.parse(value);
            let value = value.ok_or_else(|| bad(format!("{key} is {}", knob.values)))?;
            knobs.0.push((knob.key, value));
        }
        Ok(knobs)
    }

    /// The whole number that `key` was set to.
    pub fn whole(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            KnobValue::Whole(number) => Some(number),
            KnobValue::Real(_) | KnobValue::Word(_) => None,
        }
    }

    /// The number that `key` was set to.
    pub fn real(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            KnobValue::Whole(number) => Some(number as f64),
            KnobValue::Real(number) => Some(number),
            KnobValue::Word(_) => None,
        }
    }

    /// The word that `key` was set to.
    pub fn word(&self, key: &str) -> Option<&'static str> {
        match self.value(key)? {
            KnobValue::Word(word) => Some(word),
            KnobValue::Whole(_) | KnobValue::Real(_) => None,
        }
    }

    /// Whether nothing was set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn value(&self, key: &str) -> Option<KnobValue> {
        let found = self.0.iter().find(|(other, _)| *other == key);
        found.map(|(_, value)| *value)
    }
}

impl Values {
    fn parse(&self, text: &str) -> Option<KnobValue> {
        match self {
            Values::Whole(least, most) => {
                let number = text.parse().ok()?;
                (*least..=*most)
                    .contains(&number)
                    .then_some(KnobValue::Whole(number))
            }
            Values::PowerOfTwo(least, most) => {
                let number: u64 = text.parse().ok()?;
                let fits = number.is_power_of_two() && (*least..=*most).contains(&number);
                fits.then_some(KnobValue::Whole(number))
            }
            Values::Real(least, most) => {
                let number = text.parse().ok()?;
                (*least..=*most)
                    .contains(&number)
                    .then_some(KnobValue::Real(number))
            }
            Values::Bytes(least, most) => {
                let number = parse_bytes(text)?;
                (*least..=*most)
                    .contains(&number)
                    .then_some(KnobValue::Whole(number))
            }
            Values::Word(words) => {
                let word = words.iter().find(|word| **word == text)?;
                Some(KnobValue::Word(word))
            }
        }
    }
}

/// Units of bytes, each 1,024 times the one before.
const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];

/// A number of bytes in the largest unit of which it is a whole number.
fn in_unit(bytes: u64) -> (u64, &'static str) {
    let (mut number, mut units) = (bytes, UNITS.into_iter());
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if number == 0 || !number.is_multiple_of(1024) {
            break;
        }
        (number, unit) = (number / 1024, larger);
    }
    (number, unit)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let power = UNITS.iter().position(|known| *known == unit)?;
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1024_u64.checked_pow(power as u32)?)
}

fn unknown(name: &str, key: &str, known: &[Knob]) -> String {
    let keys: Vec<_> = known.iter().map(|knob| knob.key).collect();
    if keys.is_empty() {
        format!("{name} has no parameters")
    } else {
        format!("{name} has no {key:?}; there are {}", keys.join(", "))
    }
}
