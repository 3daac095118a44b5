//! Decides from what `stat` gives whether an entry is as the parent snapshot has it.
//!
//! Times on disk come in steps: a clock tick of up to 10 ms on Linux's own file systems, whole seconds or two on
//! others. A file that was read and then changed within one step looks unchanged for ever. So an entry whose ctime lies
//! less than a step before the parent began to read, or after that, is not trusted: it is read once more, as git does
//! with its index ("racily clean"). The next snapshot begins later, and trusts it.
//!
//! Invariant: trusted files have not changed since they were read, as far as the file system's ctime can be believed.

use super::Options;
use super::hint::Hint;
use crate::{Content, Entry, Flags, Time};

/// Step of the kernel's clock, in nanoseconds: more than one tick (10 ms at 100 Hz).
const STEP_NS: u64 = 20_000_000;
/// Step of times without nanoseconds, in nanoseconds: the file system may count in twos of seconds, as FAT does.
const COARSE_STEP_NS: u64 = 2_000_000_000;

/// Whether size, times and inode are those of the parent's entry, as far as `options` look at them.
pub fn looks_unchanged(options: &Options, now: &Entry, before: &Entry) -> bool {
    (now.size, now.mtime) == (before.size, before.mtime)
        && (options.ignore_ctime || now.ctime == before.ctime)
        && (options.ignore_inode || now.inode == before.inode)
        && !before.flags.has(Flags::CHANGED_WHILE_READ)
        && !before.flags.has(Flags::UNREADABLE)
        && !before.flags.has(Flags::UNLISTED)
}

/// Whether a change after the parent read the file would show in its times. The parent began to read at `started_ns`, 0
/// where that is not known.
pub fn is_settled(options: &Options, before: &Entry, started_ns: u64) -> bool {
    let time = if options.ignore_ctime {
        before.mtime
    } else {
        before.ctime
    };
    let step = if time.nanos == 0 {
        COARSE_STEP_NS
    } else {
        STEP_NS
    };
    started_ns == 0 || nanos(time).saturating_add(step) <= started_ns
}

/// The parent's entry of a file that is read.
pub struct Before {
    pub entry: Box<Entry>,
    looks: ParentMatch,
}

/// The kind of difference between an entry and the parent's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParentMatch {
    Changed,
    /// The entry looks the same, but may have changed without a sign.
    Doubtful,
    /// The entry looks the same, and is read only because chunks are not where the parent says.
    Unchanged,
}

impl Before {
    /// Wraps the parent's entry of a file that has changed.
    pub fn changed(entry: Entry) -> Self {
        Self::new(entry, ParentMatch::Changed)
    }

    /// Wraps the parent's entry of a file that may have changed without a sign.
    pub fn doubtful(entry: Entry) -> Self {
        Self::new(entry, ParentMatch::Doubtful)
    }

    /// Wraps the parent's entry of a file that has not changed, and some of whose chunks were moved or are lost.
    pub fn trusted(entry: Entry) -> Self {
        Self::new(entry, ParentMatch::Unchanged)
    }

    fn new(entry: Entry, looks: ParentMatch) -> Self {
        Self {
            entry: entry.into(),
            looks,
        }
    }

    /// Returns the hint for a reader about to read the file, whose entry is `now`.
    pub fn hint(&self, now: &Entry) -> Hint {
        let content = || self.entry.content.clone();
        let looks = |entry: &Entry| (entry.size, entry.mtime, entry.inode);
        match self.looks {
            ParentMatch::Doubtful => Hint::Same(content()),
            ParentMatch::Unchanged => Hint::Lost,
            ParentMatch::Changed if looks(&self.entry) == looks(now) => Hint::Touched(content()),
            ParentMatch::Changed => Hint::Nothing,
        }
    }

    /// Returns whether the file, as it was read `now`, is unchanged. The places of its chunks do not count: a repair or
    /// a sweep moves them.
    pub fn agrees_with(mut self, now: &mut Entry) -> bool {
        let agrees = match self.looks {
            ParentMatch::Changed => false,
            ParentMatch::Doubtful => {
                let is_same = self.entry.content.is_as(&now.content);
                if is_same && now.content.digest.is_none() {
                    // The same bytes have the same digest.
                    now.content.digest = self.entry.content.digest;
                }
                is_same
            }
            ParentMatch::Unchanged => true,
        };
        if !agrees {
            return false;
        }
        self.entry.content = Content::default();
        let content = std::mem::take(&mut now.content);
        let is_same = *self.entry == *now;
        now.content = content;
        is_same
    }
}

/// Converts a time to nanoseconds since 1970; 0 for times before.
pub fn nanos(time: Time) -> u64 {
    (time.secs.max(0) as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(time.nanos.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn settled(secs: i64, nanos: u32) -> bool {
        let mut before = Entry::new(b"name".to_vec(), Kind::File);
        before.ctime = Time { secs, nanos };
        is_settled(&Options::default(), &before, 100_000_000_000)
    }

    #[test]
    fn what_changed_within_a_step_of_the_reading_is_not_trusted() {
        assert!(settled(99, 979_000_000));
        assert!(!settled(99, 981_000_000));
        assert!(!settled(100, 1));
        // On a file system of whole seconds.
        assert!(settled(98, 0));
        assert!(!settled(99, 0));
    }

    #[test]
    fn what_has_the_chunks_that_it_had_has_their_digest() {
        let mut before = Entry::new(b"name".to_vec(), Kind::File);
        before.content.items = vec![crate::Item::Hole { len: 1 }];
        let mut now = before.clone();
        let digest = Some(onefold_store::digest::Digest([7; 16]));
        before.content.digest = digest;
        assert!(Before::doubtful(before.clone()).agrees_with(&mut now));
        assert_eq!(now.content.digest, digest);
        let mut other = before.clone();
        other.content = Content::default();
        assert!(!Before::doubtful(before).agrees_with(&mut other));
        assert_eq!(other.content.digest, None);
    }

    #[test]
    fn where_the_start_is_not_known_all_is_trusted() {
        let before = Entry::new(b"name".to_vec(), Kind::File);
        assert!(is_settled(&Options::default(), &before, 0));
    }
}
