//! Tests of the chunkers.

mod sieve;
