//! `decant reference`: every key of a configuration, from the tables that the readers go by.

use std::fmt::Write as _;

use super::args::ReferenceArgs;
use super::{Exit, Failure, print, printable};

/// Runs the command.
pub(super) fn run(args: &ReferenceArgs) -> Result<Exit, Failure> {
    let Some(wanted) = &args.key else { return print(&decant_config::reference_document()) };
    let mut text = String::new();
    for row in decant_config::reference().iter().filter(|row| row.path.contains(wanted)) {
        // A string takes all that is written to it.
        let _ = writeln!(text, "{}\n    {}; default: {}\n    {}", row.path, row.kind, row.default, row.words);
    }
    if text.is_empty() {
        return Err(Failure::usage(format!("no key is called `{}`", printable(wanted))));
    }
    print(&text)
}
