//! Speed side by side: what one gibibyte and one small request cost the gateway, beside nginx doing less.
//!
//! Owns: one origin, one client, nginx as a TLS reverse proxy to the origin, and gateways with all detectors and with
//! none; a run of each in turn, three rounds, medians. Invariant: only the proxies' own CPU time is counted (user and
//! system, from `/proc`), every byte and answer is checked, and the exit code says whether the bars were met.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use http::Version;

use load::Load;
use sides::Side;

mod body;
mod load;
mod nginx;
mod sides;

/// Rounds; the figures are their medians.
const ROUNDS: usize = 3;

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

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// What is measured: a load, with a bar for each gateway (scanning, passing) where there is one.
struct Row {
    name: &'static str,
    load: Load,
    unit: &'static str,
    bars: [Option<f64>; 2],
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let bytes = setting("SPEED_MIB", TRANSFER_MIB) * 1024 * 1024;
    let requests = setting("SPEED_REQUESTS", REQUESTS);
    let rows = [
        Row {
            name: "download",
            load: Load::Download { bytes },
            unit: "s/GiB",
            bars: [Some(BAR_SCANNING), Some(BAR_PASSING)],
        },
        Row { name: "upload", load: Load::Upload { bytes }, unit: "s/GiB", bars: [None, None] },
        Row {
            name: "small request",
            load: Load::Requests { count: requests },
            unit: "µs",
            bars: [Some(BAR_REQUEST), None],
        },
    ];
    println!("CPU of the proxy process (user + system), medians of {ROUNDS} interleaved rounds");
    println!("{:14} {:9} {:>10} {:>16} {:>16}", "", "", "nginx", "all detectors", "no detectors");
    let mut missed = 0;
    for version in VERSIONS {
        let sides = Side::all(version).await;
        for row in &rows {
            missed += measure(row, version, &sides).await;
        }
        for side in &sides {
            println!(
                "peak resident, {version:?}, {}: {} MiB",
                side.name,
                side.process().peak_resident() >> 20
            );
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
            let before = side.process().cpu();
            load::run(&row.load, side, version).await;
            costs.push(row.load.per_unit(side.process().cpu() - before));
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
    let (name, unit) = (row.name, row.unit);
    println!("{name:14} {version:?} {:>7.2} {unit:6} {:>22} {:>22}", medians[0], shown(1), shown(2));
    missed
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
