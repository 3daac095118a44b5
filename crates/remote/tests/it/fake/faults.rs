//! Faults of a fake server.

use onefold_io::Random;

/// Fate of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request is answered with this status and code, and not done.
    Status(u16, &'static str),
    /// The request is not done, and no answer comes.
    Refused,
    /// The request is done, and no answer comes.
    AnswerLost,
    /// No answer comes; it is done so many requests later.
    Late(u64),
    /// The request is done, and done again so many requests later.
    Doubled(u64),
    /// The request is done, and the answer's body ends in the middle.
    Truncated,
    /// The request is done, and nothing more is heard on that connection.
    Stalled,
}

/// How often each thing goes wrong, in requests of 10,000.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rates {
    pub busy: u64,
    pub refused: u64,
    pub answer_lost: u64,
    pub late: u64,
    pub doubled: u64,
    pub truncated: u64,
}

impl Rates {
    pub fn strike(&self, random: &mut Random) -> Option<Fault> {
        let later = 1 + random.below(30);
        let faults = [
            (self.busy, Fault::Status(503, "SlowDown")),
            (self.refused, Fault::Refused),
            (self.answer_lost, Fault::AnswerLost),
            (self.late, Fault::Late(later)),
            (self.doubled, Fault::Doubled(later)),
            (self.truncated, Fault::Truncated),
        ];
        let mut drawn = random.below(10_000);
        faults.into_iter().find_map(|(rate, fault)| {
            let strikes = drawn < rate;
            drawn = drawn.saturating_sub(rate);
            strikes.then_some(fault)
        })
    }
}

/// Treatment of conditional requests by a server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Dialect {
    /// Each conditional request is one step.
    #[default]
    Atomic,
    /// The server looks whether the condition holds, and writes two requests later: two can win.
    LooksThenWrites,
    /// The server takes no notice of conditions.
    IgnoresConditions,
    /// A tag, the MD5 of its bytes, is there a moment before the bytes: the next reading gives it with the bytes
    /// before.
    TagsBeforeBytes,
}
