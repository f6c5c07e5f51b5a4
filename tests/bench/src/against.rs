//! This build of the gateway beside another one: did a change cost anything?
//!
//! Invariant: both carry the same loads in turn, each round in processes of its own, and what counts is the round that cost
//! least on each side: whatever else the machine does can only add to it, and where a process happens to lie in memory makes a
//! tenth. The kernel tells CPU time in hundredths of a second, so loads are long.

use std::path::Path;
use std::process::ExitCode;

use http::Version;

use crate::load::{self, Load};
use crate::sides::Scene;
use crate::{VERSIONS, setting};

/// Mebibytes per transfer; `SPEED_MIB` changes it.
const TRANSFER_MIB: u64 = 512;

/// Small requests per measurement; `SPEED_REQUESTS` changes it.
const REQUESTS: u64 = 20_000;

/// Rounds; `SPEED_ROUNDS` changes it.
const ROUNDS: u64 = 9;

/// What this build may cost, as a multiple of the other's.
const BAR: f64 = 1.03;

/// The rows that are measured begin with this; `SPEED_ONLY` sets it.
fn is_asked_for(row: &str) -> bool {
    std::env::var("SPEED_ONLY").map_or(true, |only| row.starts_with(&only))
}

/// Measures this build and the one at `other`, prints a table, and says whether this one costs no more.
pub(crate) async fn run(other: &Path) -> ExitCode {
    println!("CPU of the gateway's process (user + system), beside {}", other.display());
    println!("{:14} {:9} {:14} {:>7} {:>7}", "", "", "", "other", "this");
    let mut dearer = 0;
    for version in VERSIONS {
        let scene = Scene::new(version).await;
        for scans in [true, false] {
            dearer += compare(&scene, version, scans, other).await;
        }
    }
    println!("{dearer} above {BAR}x");
    if dearer == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The rows of one version, with all detectors or with none; returns how many are above the bar.
async fn compare(scene: &Scene, version: Version, scans: bool, other: &Path) -> usize {
    let bytes = setting("SPEED_MIB", TRANSFER_MIB) * 1024 * 1024;
    let count = setting("SPEED_REQUESTS", REQUESTS);
    let loads = [
        ("download", Load::Download { bytes }),
        ("upload", Load::Upload { bytes }),
        ("small request", Load::Requests { count }),
    ];
    let what = if scans { "all detectors" } else { "no detectors" };
    let mut rows: Vec<_> = loads
        .map(|(name, load)| (format!("{name:14} {version:?}  {what:14}"), load, [f64::INFINITY; 2]))
        .into_iter()
        .filter(|(row, ..)| is_asked_for(row))
        .collect();
    let rounds = if rows.is_empty() { 0 } else { setting("SPEED_ROUNDS", ROUNDS) };
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let program = (at == 0).then_some(other);
            let side = if scans {
                scene.scanning("gateway", program).await
            } else {
                scene.passing("gateway", program).await
            };
            for (_, load, least) in &mut rows {
                least[at] = load::measure(*load, &side, version).await[0].min(least[at]);
            }
        }
    }
    let mut dearer = 0;
    for (row, load, [other, this]) in rows {
        let (ratio, unit) = (this / other, load.unit());
        dearer += usize::from(ratio > BAR);
        println!("{row} {other:>7.2} {this:>7.2} {unit:5} = {ratio:.3}x");
    }
    dearer
}
