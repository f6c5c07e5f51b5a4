//! The binary: see the library.
#![forbid(unsafe_code)]

fn main() {}
