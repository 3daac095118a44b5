//! Filters: sets that may err to one side, in RAM and on flash.
//!
//! | name | where | grows | reads a query |
//! |---|---|---|---|
//! | [`Bloom`], [`BlockedBloom`] | RAM | no | 0 |
//! | [`SingleLayer`] (`flash-single`) | flash, updates buffered in RAM | no | at most 1 |
//! | [`Chain`] (`flash-chain`) | flash, the newest in RAM | yes | up to one a filter |
//! | [`Forest`] (`forest`) | flash, updates buffered in RAM | yes | up to one a layer |
//! | [`Quotient`] (crate `qfilter`) | RAM | yes | 0 |
//!
//! The filters on flash are those of Lu's dissertation, ch. 3. All bits of a key lie in one page of 4 KiB
//! ([`PageShape`]). They are working sets of a run: data that is not yet on flash is lost with the process, unless it
//! is saved (`save`, `load`) when the run ends.

mod bit_layer;
mod blocked;
mod bloom;
mod buffering;
mod chain;
mod forest;
mod page_shape;
mod quotient;
mod saved;
mod single_layer;

pub use blocked::{load_blocked, save_blocked};
pub use bloom::Bloom;
pub use buffering::{Accounting, BufferOptions, Buffering, Victim};
pub use chain::Chain;
pub use forest::{Forest, ForestOptions, ReadCounts, Traverse};
pub use onefold_index::filters::BlockedBloom;
pub(crate) use page_shape::word;
pub use page_shape::{Full, PageShape};
pub use quotient::Quotient;
pub use single_layer::SingleLayer;
