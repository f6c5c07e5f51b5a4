//! The reference as a document: every key with what may stand there, its default and its meaning.
//!
//! Generated, and committed as `config/reference.md` for people who read the repository; a test holds the two together.

use std::fmt::Write as _;

use super::{ReferenceRow, allocator_reference, reference};
use crate::config::READING_LIMITS as FILES;
use crate::problem::READING_LIMITS as PROBLEMS;
use crate::yaml::READING_LIMITS as TREES;

const HEAD: &str = "# The configuration, key by key\n\n\
    Printed by `decant reference`; `decant check` holds a file against it. Unknown and duplicate keys are refused. \
    Relative paths start at the file that holds them. Sizes are bytes or a number with `KiB`, `MiB` or `GiB`; durations \
    a number with `ms`, `s`, `m`, `h` or `d`. `[]` behind a key means each item of its list, `NAME` any name. A list of \
    single values may be written as one value where it has one.\n";

const ALLOCATOR: &str = "\n# The allocator's configuration\n\nRead by `decant-allocator serve`.\n";

const READING: &str = "\n# What is read at most\n\n\
    These do not change: a configuration is read before any setting is known.\n\n\
    | what | at most |\n|---|---|\n";

/// The whole reference in Markdown.
#[must_use]
pub fn reference_document() -> String {
    let (files, gateway): (Vec<_>, Vec<_>) =
        reference().into_iter().partition(|row| row.path.starts_with(DETECTOR_FILE));
    let mut text = HEAD.to_owned();
    tables(&gateway, &mut text);
    text.push_str(
        "\n# A detector file\n\nNamed by `detectors.files`; the built-in ones are such files too.\n",
    );
    tables(&files, &mut text);
    text.push_str(ALLOCATOR);
    tables(&allocator_reference(), &mut text);
    text.push_str(READING);
    for (what, most) in FILES.iter().chain(TREES).chain(PROBLEMS) {
        line(&mut text, &[what, &most.to_string()]);
    }
    text
}

const DETECTOR_FILE: &str = "(detector file) ";

/// One table a section, in the order of the rows.
fn tables(rows: &[ReferenceRow], text: &mut String) {
    let mut section = None;
    for row in rows {
        let path = row.path.strip_prefix(DETECTOR_FILE).unwrap_or(&row.path);
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
        if section != Some(parent) {
            section = Some(parent);
            let title = if parent.is_empty() { "At the top".to_owned() } else { format!("`{parent}`") };
            // A string takes all that is written to it.
            let _ = writeln!(text, "\n## {title}\n\n| key | what | default | meaning |\n|---|---|---|---|");
        }
        line(text, &[&format!("`{key}`"), &row.kind, &row.default, &row.words]);
    }
}

/// One line of a table.
fn line(text: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(text, "| {} ", cell.replace('|', "\\|"));
    }
    text.push_str("|\n");
}
