//! `decant presets`: what `use: NAME` stands for.

use std::fmt::Write as _;

use super::args::PresetsArgs;
use super::{Exit, Failure, print, printable};

/// Runs the command.
pub(super) fn run(args: &PresetsArgs) -> Result<Exit, Failure> {
    let Some(name) = &args.name else { return print(&list()) };
    match decant_config::preset(name) {
        Some(preset) => print(preset.yaml),
        None => Err(Failure::usage(format!(
            "no preset is called `{}`; `decant presets` lists them",
            printable(name)
        ))),
    }
}

fn list() -> String {
    let mut text = String::new();
    for preset in decant_config::presets() {
        let (name, checked, words) = (&preset.name, &preset.checked, &preset.description);
        // A string takes all that is written to it.
        let _ = writeln!(text, "{name:<12} checked {checked}  {words}");
    }
    text
}
