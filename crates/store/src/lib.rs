//! Containers, sessions, sweep, verify and repair. The store knows no file, path or socket of its users.
#![forbid(unsafe_code)]
