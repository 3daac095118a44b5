//! Data of options that have a structure.

use super::wire::{BASE_ALLOCATION, Fields, info};

/// INFO and GO: the export's name, and whether the client asks for its canonical name.
pub fn decode_go(data: &[u8]) -> Option<(&str, bool)> {
    let mut fields = Fields(data);
    let name = fields.text()?;
    let count = fields.u16()?;
    let mut wants_name = false;
    for _ in 0..count {
        wants_name |= fields.u16()? == info::NAME;
    }
    fields.0.is_empty().then_some((name, wants_name))
}

/// The metadata contexts that a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum Query {
    /// The client sent no query.
    Nothing,
    /// Contexts that are not there.
    Unknown,
    /// All of the namespace `base`.
    Namespace,
    /// `base:allocation`.
    Allocation,
}

/// LIST and SET_META_CONTEXT: the export's name, and the strongest of the queries.
pub fn decode_contexts(data: &[u8]) -> Option<(&str, Query)> {
    let mut fields = Fields(data);
    let name = fields.text()?;
    let count = fields.u32()?;
    let mut strongest = Query::Nothing;
    for _ in 0..count {
        let query = match fields.text()? {
            BASE_ALLOCATION => Query::Allocation,
            "base:" => Query::Namespace,
            _ => Query::Unknown,
        };
        if query > strongest {
            strongest = query;
        }
    }
    fields.0.is_empty().then_some((name, strongest))
}
