//! The crate from the outside: what is accepted, what is refused and with which words, and how files merge.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod accepted;
mod allocator;
mod arbitrary;
mod merging;
mod presets;
mod problems;
mod reference;
