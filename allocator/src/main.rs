//! The binary: see the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    decant_allocator::cli::main()
}
