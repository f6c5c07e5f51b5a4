//! The streaming scan engine and the built-in rule pack.
#![deny(unsafe_code)]

mod validate;

pub use validate::{Outcome, UnknownValidator, Validator};
