//! One head as a block device.

use std::ops::Range;
use std::sync::Arc;

use super::heads::HeadSize;
use super::split::{self, Span};
use super::state::FrontShared;
use crate::{BlockDevice, Error, ExtentKind, Geometry, HeadId, Op, Request, Result, Visit};

/// A head, served by a front.
pub(super) struct Device {
    shared: Arc<FrontShared>,
    head: HeadId,
    /// As it was when the device was made.
    first_geometry: Geometry,
    size: Arc<HeadSize>,
}

impl Device {
    pub fn new(
        shared: Arc<FrontShared>,
        head: HeadId,
        first_geometry: Geometry,
        size: Arc<HeadSize>,
    ) -> Self {
        Self {
            shared,
            head,
            first_geometry,
            size,
        }
    }

    fn start(&self, request: Request) {
        let Request { op, fua, hints, .. } = request;
        let shared = &self.shared;
        let (span, buffer) = (self.span(&request), request.buffer);
        let completion = shared.measured(op, request.completion);
        match op {
            Op::Read => {}
            Op::Flush => shared.flush(completion, buffer),
            _ if span.bytes == 0 && fua => shared.flush(completion, buffer),
            _ if span.bytes == 0 => completion.done(Ok(buffer)),
            Op::Write => shared.write(self.head, span, buffer, hints, fua, completion),
            Op::Discard => shared.discard(self.head, span.whole(), buffer, fua, completion),
            Op::WriteZeroes => shared.write_zeroes(self.head, span, buffer, hints, fua, completion),
        }
    }

    fn span(&self, request: &Request) -> Span {
        Span {
            offset: request.offset,
            bytes: request.bytes,
            chunk_bytes: u64::from(self.first_geometry.chunk_bytes),
        }
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.size.bytes(),
            ..self.first_geometry.clone()
        }
    }

    /// Requests that need no waiting are begun first, then all reads go to the engine together, then the rest waits its
    /// turn.
    fn submit(&self, requests: &mut Vec<Request>) {
        let geometry = self.geometry();
        if self.size.is_gone() {
            let gone = requests.drain(..).map(|request| request.completion);
            return gone.for_each(|completion| completion.done(Err(Error::Closing)));
        }
        let mut reads = Vec::new();
        let mut others = Vec::with_capacity(requests.len());
        for request in requests.drain(..) {
            match split::check(&request, &geometry) {
                Err(error) => request.completion.done(Err(error)),
                Ok(()) if request.op == Op::Read => reads.push(request),
                Ok(()) => others.push(request),
            }
        }
        let mut others = others.into_iter().peekable();
        while let Some(request) =
            others.next_if(|request| self.shared.has_room(request.buffer.len()))
        {
            self.start(request);
        }
        self.shared.read(self.head, reads);
        others.for_each(|request| self.start(request));
    }

    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        let bytes = self.size.bytes();
        if range.start > range.end || range.end > bytes {
            return Err(Error::Invalid {
                what: format!(
                    "bytes {} to {} lie beyond the device's {bytes}",
                    range.start, range.end
                ),
            });
        }
        if range.is_empty() {
            return Ok(());
        }
        let chunk_bytes = u64::from(self.first_geometry.chunk_bytes);
        let touched = Span {
            offset: range.start,
            bytes: range.end - range.start,
            chunk_bytes,
        }
        .touched();
        let in_bytes = |lbns: Range<u64>| {
            (lbns.start * chunk_bytes).max(range.start)..(lbns.end * chunk_bytes).min(range.end)
        };
        // Staging first: what leaves it meanwhile is with the engine.
        let staged = self
            .shared
            .lock()
            .staging
            .within(self.head, touched.clone());
        let mut visit = |lbns, kind| visit(in_bytes(lbns), kind);
        let mut stretches = Stretches::new(&mut visit);
        let mut staged = staged.into_iter().peekable();
        self.shared
            .reader
            .extents(self.head, touched, &mut |lbns, kind| {
                let mut at = lbns.start;
                while let Some(lbn) = staged.next_if(|lbn| *lbn < lbns.end) {
                    stretches.add(at..lbn, kind);
                    stretches.add(lbn..lbn + 1, ExtentKind::Data);
                    at = lbn + 1;
                }
                stretches.add(at..lbns.end, kind);
                stretches.is_wanted
            })?;
        stretches.end();
        Ok(())
    }
}

/// Joins neighbouring stretches of one kind.
struct Stretches<'a> {
    visit: Visit<'a>,
    open: Option<(Range<u64>, ExtentKind)>,
    is_wanted: bool,
}

impl<'a> Stretches<'a> {
    fn new(visit: Visit<'a>) -> Self {
        Self {
            visit,
            open: None,
            is_wanted: true,
        }
    }

    fn add(&mut self, lbns: Range<u64>, kind: ExtentKind) {
        if lbns.is_empty() {
            return;
        }
        match &mut self.open {
            Some((open, of)) if *of == kind => open.end = lbns.end,
            _ => {
                self.end();
                self.open = Some((lbns, kind));
            }
        }
    }

    fn end(&mut self) {
        if let Some((lbns, kind)) = self.open.take()
            && self.is_wanted
        {
            self.is_wanted = (self.visit)(lbns, kind);
        }
    }
}
