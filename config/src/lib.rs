//! Configuration text to checked, typed values: every setting and limit by name.
#![forbid(unsafe_code)]
