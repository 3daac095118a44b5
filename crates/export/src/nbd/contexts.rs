//! Block status: what the metadata contexts that a client has chosen tell of a range.

use std::ops::Range;
use std::sync::Arc;

use onefold_volume::{BlockDevice, ExtentKind};

use super::exports::Differences;
use super::wire;

/// The metadata contexts that a client has chosen.
#[derive(Clone, Default)]
pub struct Contexts {
    /// `base:allocation`.
    pub allocation: bool,
    /// `onefold:changed:BASE`.
    pub changes: Option<Arc<dyn Differences>>,
}

impl Contexts {
    /// Whether none was chosen.
    pub fn are_none(&self) -> bool {
        !self.allocation && self.changes.is_none()
    }

    /// Answers of all of them about a range of the device: a number, and at most `most` stretches with their flags.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn told(
        &self,
        device: &dyn BlockDevice,
        range: Range<u64>,
        most: usize,
    ) -> onefold_volume::Result<Vec<ContextStatus>> {
        let mut all = Vec::new();
        if self.allocation {
            let mut stretches = FlaggedStretches::new(most);
            device.extents(range.clone(), &mut |stretch, kind| {
                let flags = match kind {
                    ExtentKind::Data => 0,
                    ExtentKind::Hole => wire::STATE_HOLE | wire::STATE_ZERO,
                };
                stretches.add(stretch, flags)
            })?;
            all.push(ContextStatus {
                context: wire::BASE_ALLOCATION_ID,
                stretches: stretches.known,
            });
        }
        if let Some(changes) = &self.changes {
            let mut stretches = FlaggedStretches::new(most);
            changes.visit(range, &mut |stretch, may_differ| {
                let flags = if may_differ { wire::MAY_DIFFER } else { 0 };
                stretches.add(stretch, flags)
            })?;
            all.push(ContextStatus {
                context: wire::CHANGED_SINCE_ID,
                stretches: stretches.known,
            });
        }
        Ok(all)
    }
}

/// The answer of one context about a range.
pub struct ContextStatus {
    /// Its number.
    pub context: u32,
    /// Stretches of the range, from its beginning on.
    pub stretches: Vec<FlaggedStretch>,
}

/// A stretch that has the same flags all over.
pub struct FlaggedStretch {
    /// Its length.
    pub bytes: u64,
    /// Flags, as the context defines them.
    pub flags: u32,
}

/// Neighbouring stretches of different flags, of which there are at most `most`.
struct FlaggedStretches {
    known: Vec<FlaggedStretch>,
    most: usize,
}

impl FlaggedStretches {
    fn new(most: usize) -> Self {
        Self {
            known: Vec::new(),
            most,
        }
    }

    /// Adds one behind the others; `false` where that would be too many.
    fn add(&mut self, stretch: Range<u64>, flags: u32) -> bool {
        let (bytes, is_full) = (stretch.end - stretch.start, self.known.len() == self.most);
        match self.known.last_mut() {
            Some(last) if last.flags == flags => last.bytes += bytes,
            _ if is_full => return false,
            _ => self.known.push(FlaggedStretch { bytes, flags }),
        }
        true
    }
}
