//! `decant`: the gateway's command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    decant_proxy::cli::main(std::env::args_os())
}
