//! Speed side by side: what one gibibyte and one small request cost the gateway, beside nginx doing less.
//!
//! Owns the bars. Invariant: the exit code says whether they were met.

use std::process::ExitCode;

use decant_tests::process::Observed;
use http::Version;

use crate::load::{self, Load};
use crate::peer::Kind;
use crate::sides::{Scene, Side};
use crate::{ROUNDS, VERSIONS, median, setting};

/// Mebibytes per transfer; `SPEED_MIB` changes it.
const TRANSFER_MIB: u64 = 512;

/// Small requests per measurement; `SPEED_REQUESTS` changes it.
const REQUESTS: u64 = 20_000;

/// Most CPU per gibibyte with all detectors, as a multiple of nginx's.
const BAR_SCANNING: f64 = 3.0;

/// Most CPU per gibibyte without detectors, as a multiple of nginx's.
const BAR_PASSING: f64 = 1.0;

/// Most CPU per small request with all detectors, as a multiple of nginx's.
const BAR_REQUEST: f64 = 2.0;

/// What is measured: a load, with a bar for each gateway (scanning, passing) where there is one.
struct Row {
    name: &'static str,
    load: Load,
    bars: [Option<f64>; 2],
}

/// Measures, prints a table, and says whether the bars were met.
pub(crate) async fn run() -> ExitCode {
    let bytes = setting("SPEED_MIB", TRANSFER_MIB) * 1024 * 1024;
    let requests = setting("SPEED_REQUESTS", REQUESTS);
    let rows = [
        Row {
            name: "download",
            load: Load::Download { bytes },
            bars: [Some(BAR_SCANNING), Some(BAR_PASSING)],
        },
        Row { name: "upload", load: Load::Upload { bytes }, bars: [None, None] },
        Row {
            name: "small request",
            load: Load::Requests { count: requests },
            bars: [Some(BAR_REQUEST), None],
        },
    ];
    println!("CPU of the proxy process (user + system), medians of {ROUNDS} interleaved rounds");
    println!("{:14} {:9} {:>10} {:>16} {:>16}", "", "", "nginx", "all detectors", "no detectors");
    let mut missed = 0;
    for version in VERSIONS {
        let scene = Scene::new(version).await;
        let sides = [
            scene.peer("nginx", Kind::Nginx).await,
            scene.scanning("all detectors", None).await,
            scene.passing("no detectors", None).await,
        ];
        for row in &rows {
            missed += measure(row, version, &sides).await;
        }
        for side in &sides {
            let peak = side.process().map_or(0, Observed::peak_resident) >> 20;
            println!("peak resident, {version:?}, {}: {peak} MiB", side.name);
        }
    }
    println!("{missed} bars missed");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures one row, prints it, and returns how many bars it missed.
async fn measure(row: &Row, version: Version, sides: &[Side]) -> usize {
    let mut costs = vec![Vec::new(); sides.len()];
    for _round in 0..ROUNDS {
        for (side, costs) in sides.iter().zip(&mut costs) {
            costs.extend(load::measure(row.load, side, version).await);
        }
    }
    let medians: Vec<f64> = costs.into_iter().map(median).collect();
    let ratios = [medians[1] / medians[0], medians[2] / medians[0]];
    let missed =
        ratios.iter().zip(row.bars).filter(|(ratio, bar)| bar.is_some_and(|bar| **ratio > bar)).count();
    let shown = |at: usize| {
        let bar = row.bars[at - 1].map_or_else(String::new, |bar| format!(" (<= {bar})"));
        format!("{:.2} = {:.2}x{bar}", medians[at], ratios[at - 1])
    };
    let (name, unit) = (row.name, row.load.unit());
    println!("{name:14} {version:?} {:>7.2} {unit:6} {:>22} {:>22}", medians[0], shown(1), shown(2));
    missed
}
