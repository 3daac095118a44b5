//! Chooses the containers that are worth rewriting.
//!
//! Invariant: containers that give back most of their bytes come first; the dead bytes of the others are counted as
//! left unused.

use super::plan::{Candidate, SweepPlan};
use super::{SweepOptions, SweepReport};
use crate::container::StreamKind;

impl Candidate {
    /// Whether any rule may have it rewritten.
    pub fn is_one(&self, options: &SweepOptions) -> bool {
        let has_waste = self.share < 1.0 && options.unused_max.is_some();
        self.is_condemned || has_waste || self.is_sparse(options) || self.is_small(options)
    }

    fn is_sparse(&self, options: &SweepOptions) -> bool {
        options.unused_max.is_none() && self.share < options.compact_below
    }

    fn is_small(&self, options: &SweepOptions) -> bool {
        self.stored < options.rewrite_smaller_than
    }
}

/// Moves what is to be rewritten from the candidates to the plan, and counts.
pub fn choose(options: &SweepOptions, report: &mut SweepReport, plan: &mut SweepPlan) {
    let mut candidates = std::mem::take(&mut plan.candidates);
    candidates.sort_by(|a, b| a.share.total_cmp(&b.share).then(a.id.cmp(&b.id)));
    let has_several_small = |stream: StreamKind| {
        let small = candidates.iter().filter(|c| c.stream == stream);
        small.filter(|c| c.is_small(options)).count() > 1
    };
    let several = [StreamKind::Data, StreamKind::Metadata].map(has_several_small);
    let mut unused =
        report.unused_bytes_left + candidates.iter().map(|c| c.dead_bytes).sum::<u64>();
    let used = report
        .stored_bytes
        .saturating_sub(report.dead_bytes + unused);
    let unused_max = options.unused_max.map(|max| max.bytes(used));
    for candidate in candidates {
        let is_worth_it = candidate.is_condemned
            || candidate.is_sparse(options)
            || candidate.is_small(options) && several[candidate.stream as usize]
            || candidate.share < 1.0 && unused_max.is_some_and(|max| unused > max);
        let rewritten = report.compacted_bytes + candidate.stored;
        if is_worth_it && options.rewrite_bytes_max.is_none_or(|max| rewritten <= max) {
            report.compacted_containers += 1;
            report.compacted_bytes = rewritten;
            report.compacted_dead_bytes += candidate.dead_bytes;
            unused -= candidate.dead_bytes;
            plan.compact.push(candidate);
        } else {
            report.unused_bytes_left += candidate.dead_bytes;
        }
    }
    // As they lie, so that a stream stays together.
    plan.compact.sort_unstable_by_key(|candidate| candidate.id);
}
