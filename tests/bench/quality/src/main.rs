//! Quality side by side: what `decant scan`, betterleaks and detect-secrets find in one corpus and in real text.
//!
//! Owns: the corpus on disk, the runs of the tools over it, and the score. Invariant: every tool reads the same files; a
//! credential counts as found by a report of any kind in one of its lines; all seeds, versions and times are printed.
//! Place: `tests/bench/quality/run` calls it with a Python environment that holds the peers.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod corpus;
mod real;
mod score;
mod tools;

/// Credentials and near misses of each form; `QUALITY_COUNT` changes it.
const COUNT: usize = 50;

/// Mebibytes of real text; `QUALITY_MIB` changes it.
const TEXT_MIB: u64 = 192;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), Some(peers)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: decant-quality FOLDER PEERS [TEXT]...");
        return ExitCode::from(64);
    };
    let sources: Vec<PathBuf> = arguments.collect();
    match run(&folder, &peers, &sources) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quality: {error}");
            ExitCode::from(70)
        }
    }
}

/// Makes the corpus in `folder`, runs every tool over it, prints the table, and says whether the goals were met.
fn run(folder: &Path, peers: &Path, sources: &[PathBuf]) -> std::io::Result<bool> {
    let made = corpus::write(&folder.join("made"), setting("QUALITY_COUNT", COUNT))?;
    let text = real::gather(&folder.join("real"), sources, setting("QUALITY_MIB", TEXT_MIB) << 20)?;
    let mut scores = Vec::new();
    for tool in tools::all(peers) {
        let on_made = tool.run(folder, "made")?;
        let on_text = tool.run(folder, "real")?;
        scores.push(score::of(&tool, &made, &on_made, &text, &on_text));
    }
    score::print(&scores, &made, &text);
    score::write(&folder.join("quality.json"), &scores)?;
    Ok(score::goals(&scores))
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
