//! Data of options that have a structure.

use super::wire::{BASE_ALLOCATION, CHANGED_SINCE, Fields, info};

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
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ContextQueries<'a> {
    /// Whether it sent no query at all.
    pub is_empty: bool,
    /// All of the namespace `base`.
    pub base: bool,
    /// `base:allocation`.
    pub allocation: bool,
    /// The first `onefold:changed:BASE`: its base.
    pub changed_since: Option<&'a str>,
}

/// LIST and SET_META_CONTEXT: the export's name, and the queries. Contexts that are not there are left out.
pub fn decode_contexts(data: &[u8]) -> Option<(&str, ContextQueries<'_>)> {
    let mut fields = Fields(data);
    let name = fields.text()?;
    let count = fields.u32()?;
    let mut queries = ContextQueries {
        is_empty: count == 0,
        ..ContextQueries::default()
    };
    for _ in 0..count {
        match fields.text()? {
            BASE_ALLOCATION => queries.allocation = true,
            "base:" => queries.base = true,
            query => {
                let base = query.strip_prefix(CHANGED_SINCE);
                queries.changed_since = queries.changed_since.or(base);
            }
        }
    }
    fields.0.is_empty().then_some((name, queries))
}
