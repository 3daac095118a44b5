//! Tests of the store over folders in memory.

mod round_trip;
