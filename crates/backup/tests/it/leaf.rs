//! Leaves and recipes: round trip, golden bytes, and nothing but errors from damaged ones.
