//! Reads: staging first, then the engine, all reads of one call together.

use std::sync::Arc;

use onefold_chunk::fingerprints;

use super::split::Span;
use super::staging::Staged;
use super::state::FrontShared;
use crate::{Buffer, ChunkRead, Completion, HeadId, Lbn, Request, Result};

/// Neighbouring bytes of a request that come from one place.
struct ReadSegment {
    bytes: usize,
    from: From,
}

enum From {
    /// A chunk in staging, from this byte on.
    Staging(Staged, usize),
    /// Whole chunks of the engine.
    Engine(u64),
    /// A part of a chunk of the engine, from this byte on.
    Part(u64, usize),
}

impl FrontShared {
    /// Carries out reads and answers them.
    pub fn read(self: &Arc<Self>, head: HeadId, mut requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        for request in &mut requests {
            let taken = std::mem::replace(&mut request.completion, Completion::new(drop));
            request.completion = self.measured(request.op, taken);
        }
        let all = self.fill(head, &mut requests);
        let alone = all.is_err() && requests.len() > 1;
        for mut request in requests {
            // One that fails must not fail the others.
            let result = if alone {
                self.fill(head, std::slice::from_mut(&mut request))
            } else {
                all.clone()
            };
            self.counters.read_done(request.bytes);
            request.completion.done(result.map(|()| request.buffer));
        }
    }

    /// Fills the buffers of `requests`.
    fn fill(&self, head: HeadId, requests: &mut [Request]) -> Result<()> {
        let plans: Vec<_> = {
            let state = self.lock();
            let plan = |request: &Request| {
                let span = self.span(request.offset, request.bytes);
                self.segments(span, |lbn| state.staging.get(head, lbn).cloned())
            };
            requests.iter().map(plan).collect()
        };
        let parts = plans
            .iter()
            .flatten()
            .filter(|segment| matches!(segment.from, From::Part(..)));
        let mut bounces: Vec<_> = parts
            .map(|_| Buffer::zeroed(self.chunk_bytes as usize))
            .collect();
        let (mut plain, mut prefetched) = (Vec::new(), Vec::new());
        let mut of_parts = Vec::new();
        let mut bounce = bounces.iter_mut();
        for (request, plan) in requests.iter_mut().zip(&plans) {
            let reads = if self.is_copied(head, request) {
                &mut prefetched
            } else {
                &mut plain
            };
            let mut rest = &mut request.buffer[..];
            for segment in plan {
                let (now, later) = rest.split_at_mut(segment.bytes);
                rest = later;
                match &segment.from {
                    From::Staging(staged, skip) => {
                        now.copy_from_slice(&staged.bytes()[*skip..*skip + segment.bytes]);
                    }
                    From::Engine(lbn) => reads.push(ChunkRead {
                        lbn: Lbn(*lbn),
                        buffer: now,
                    }),
                    From::Part(lbn, skip) => {
                        if let Some(bounce) = bounce.next() {
                            of_parts.push((now, *skip));
                            reads.push(ChunkRead {
                                lbn: Lbn(*lbn),
                                buffer: bounce,
                            });
                        }
                    }
                }
            }
        }
        if !plain.is_empty() {
            self.reader.read(head, &mut plain)?;
        }
        if !prefetched.is_empty() {
            self.read_and_remember(head, &mut prefetched)?;
        }
        drop((plain, prefetched));
        for ((now, skip), bounce) in of_parts.into_iter().zip(&bounces) {
            now.copy_from_slice(&bounce[skip..skip + now.len()]);
        }
        Ok(())
    }

    /// Whether what a request reads is written elsewhere soon, as far as hints tell.
    fn is_copied(&self, head: HeadId, request: &Request) -> bool {
        let touched = || self.span(request.offset, request.bytes).touched();
        request.hints.prefetch || request.bytes > 0 && self.is_prefetched(head, touched())
    }

    /// Reads chunks of which copies will be written: the engine is to know them then without its index.
    fn read_and_remember(&self, head: HeadId, reads: &mut [ChunkRead<'_>]) -> Result<()> {
        let bytes: usize = reads.iter().map(|read| read.buffer.len()).sum();
        let chunks = bytes / self.chunk_bytes as usize;
        self.counters.prefetch_read(chunks as u64);
        let name = |chunks: &[&[u8]]| fingerprints(Some(&self.hash_key), chunks.iter().copied());
        self.reader.read_and_remember(head, reads, &name)
    }

    pub fn span(&self, offset: u64, bytes: u64) -> Span {
        Span {
            offset,
            bytes,
            chunk_bytes: u64::from(self.chunk_bytes),
        }
    }

    /// Where each byte of a span comes from, in order.
    fn segments(&self, span: Span, staged: impl Fn(u64) -> Option<Staged>) -> Vec<ReadSegment> {
        let mut segments: Vec<ReadSegment> = Vec::new();
        if span.bytes == 0 {
            return segments;
        }
        for lbn in span.touched() {
            let within = span.within(lbn);
            let is_whole = within.len() == self.chunk_bytes as usize;
            let from = match staged(lbn) {
                Some(staged) => From::Staging(staged, within.start),
                None if is_whole => From::Engine(lbn),
                None => From::Part(lbn, within.start),
            };
            if let (From::Engine(_), Some(last)) = (&from, segments.last_mut())
                && matches!(last.from, From::Engine(_))
            {
                last.bytes += within.len();
                continue;
            }
            segments.push(ReadSegment {
                bytes: within.len(),
                from,
            });
        }
        segments
    }
}
