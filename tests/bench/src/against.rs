//! This build of the gateway beside another one: did a change cost anything?
//!
//! Invariant: both carry the same loads in turn, and what counts is the CPU time of all rounds together: the kernel
//! tells it in hundredths of a second.

use std::path::Path;
use std::process::ExitCode;

use http::Version;

use crate::load::{self, Load};
use crate::sides::{Scene, Side};
use crate::{VERSIONS, setting};

/// Mebibytes per transfer; `SPEED_MIB` changes it.
const TRANSFER_MIB: u64 = 512;

/// Small requests per measurement; `SPEED_REQUESTS` changes it.
const REQUESTS: u64 = 20_000;

/// Rounds; `SPEED_ROUNDS` changes it.
const ROUNDS: u64 = 7;

/// What this build may cost, as a multiple of the other's.
const BAR: f64 = 1.03;

/// The rows that are measured begin with this; `SPEED_ONLY` sets it.
fn is_asked_for(row: &str) -> bool {
    std::env::var("SPEED_ONLY").map_or(true, |only| row.starts_with(&only))
}

/// Measures this build and the one at `other`, prints a table, and says whether this one costs no more.
pub(crate) async fn run(other: &Path) -> ExitCode {
    let bytes = setting("SPEED_MIB", TRANSFER_MIB) * 1024 * 1024;
    let count = setting("SPEED_REQUESTS", REQUESTS);
    let loads = [
        ("download", Load::Download { bytes }),
        ("upload", Load::Upload { bytes }),
        ("small request", Load::Requests { count }),
    ];
    println!("CPU of the gateway's process (user + system), beside {}", other.display());
    println!("{:14} {:9} {:14} {:>7} {:>7}", "", "", "", "other", "this");
    let mut dearer = 0;
    for version in VERSIONS {
        let scene = Scene::new(version).await;
        let scanning = [scene.scanning("other", Some(other)).await, scene.scanning("this", None).await];
        let passing = [scene.passing("other", Some(other)).await, scene.passing("this", None).await];
        for (what, sides) in [("all detectors", scanning), ("no detectors", passing)] {
            for (name, load) in loads {
                let row = format!("{name:14} {version:?}  {what:14}");
                if !is_asked_for(&row) {
                    continue;
                }
                let [other, this] = means(load, version, &sides).await;
                let (ratio, unit) = (this / other, load.unit());
                dearer += usize::from(ratio > BAR);
                println!("{row} {other:>7.2} {this:>7.2} {unit:5} = {ratio:.3}x");
            }
        }
    }
    println!("{dearer} above {BAR}x");
    if dearer == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The mean cost on each side. Which one begins changes from round to round.
async fn means(load: Load, version: Version, sides: &[Side; 2]) -> [f64; 2] {
    let rounds = setting("SPEED_ROUNDS", ROUNDS);
    let mut sums = [0.0; 2];
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            sums[at] += load::measure(load, &sides[at], version).await[0];
        }
    }
    sums.map(|sum| sum / rounds as f64)
}
