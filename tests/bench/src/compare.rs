//! The comparison: the same loads through the gateway and through what else intercepts TLS, interleaved.
//!
//! Owns which proxies and which loads. Invariant: where a proxy fails a load there is a gap in the table, never a number.

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::ExitCode;

use futures_util::FutureExt;
use http::Version;
use serde_json::{Value, json};

use crate::load::{self, Load};
use crate::peer::Kind;
use crate::plot;
use crate::sides::{Scene, Side};
use crate::{ROUNDS, VERSIONS, median, setting};

/// Mebibytes per transfer; `COMPARE_MIB` changes it.
const TRANSFER_MIB: u64 = 256;

/// Small requests per measurement; `COMPARE_REQUESTS` changes it.
const REQUESTS: u64 = 10_000;

/// Requests on connections of their own per measurement; `COMPARE_CONNECTIONS` changes it.
const CONNECTIONS: u64 = 1_000;

/// Bodies at once; `COMPARE_BODIES` bounds them.
const CROWDS: [u64; 3] = [1, 100, 1_000];

/// A proxy so much slower than the others gets so much less to do.
const SLOW_DIVISOR: u64 = 10;

/// The others.
const PEERS: [(&str, Kind); 5] = [
    ("nginx", Kind::Nginx),
    ("hudsucker", Kind::Hudsucker),
    ("squid", Kind::Squid),
    ("mitmproxy, streaming", Kind::MitmproxyStreaming),
    ("mitmproxy, buffering", Kind::MitmproxyBuffering),
];

/// One load and the names of its figures.
struct Row {
    name: &'static str,
    load: Load,
    figures: &'static [&'static str],
}

/// A line of the table: what was measured, and the median for each side; none for one that failed.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<(&'static str, Option<f64>)>,
}

/// Measures, prints a table, and writes it to `json` and as a plot to `svg`.
pub(crate) async fn run(json: &Path, svg: &Path) -> ExitCode {
    let mut lines = Vec::new();
    for version in VERSIONS {
        let scene = Scene::new(version).await;
        let direct = scene.direct();
        let sides = sides(&scene, version).await;
        for row in rows(version) {
            for line in measure(&row, version, &direct, &sides).await {
                print(&line);
                lines.push(line);
            }
        }
    }
    let written =
        fs::write(json, as_json(&lines).to_string()).and_then(|()| fs::write(svg, plot::svg(&lines)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {}, {}: {error}", json.display(), svg.display());
            ExitCode::FAILURE
        }
    }
}

fn rows(version: Version) -> Vec<Row> {
    let bytes = setting("COMPARE_MIB", TRANSFER_MIB) * 1024 * 1024;
    let count = setting("COMPARE_REQUESTS", REQUESTS);
    let connections = setting("COMPARE_CONNECTIONS", CONNECTIONS);
    let one = |name, load| Row { name, load, figures: &[""] };
    let mut rows = vec![
        one("download", Load::Download { bytes }),
        one("upload", Load::Upload { bytes }),
        one("request, connection kept", Load::Requests { count }),
        one("request, new connection", Load::Connections { count: connections }),
        Row { name: "added latency", load: Load::Timed { count: count / 4 }, figures: &[" p50", " p99"] },
    ];
    if version == Version::HTTP_11 {
        let most = setting("COMPARE_BODIES", u64::MAX);
        let crowds = CROWDS.into_iter().filter(|bodies| *bodies <= most);
        let names = ["resident, 1 body", "resident, 100 bodies", "resident, 1,000 bodies"];
        rows.extend(names.into_iter().zip(crowds).map(|(name, bodies)| one(name, Load::Crowd { bodies })));
    }
    rows
}

async fn sides(scene: &Scene, version: Version) -> Vec<(Side, u64)> {
    let mut sides = vec![
        (scene.scanning("Decant, all detectors", None).await, 1),
        (scene.passing("Decant, no detectors", None).await, 1),
    ];
    for (name, kind) in PEERS {
        // Towards clients squid speaks HTTP/1.1 alone.
        if version == Version::HTTP_2 && kind == Kind::Squid {
            continue;
        }
        let slow = matches!(kind, Kind::MitmproxyStreaming | Kind::MitmproxyBuffering);
        sides.push((scene.peer(name, kind).await, if slow { SLOW_DIVISOR } else { 1 }));
    }
    sides
}

/// Measures one row on all sides in turn; a line for each of its figures.
async fn measure(row: &Row, version: Version, direct: &Side, sides: &[(Side, u64)]) -> Vec<Line> {
    let mut rounds: Vec<Option<Vec<Vec<f64>>>> = vec![Some(Vec::new()); sides.len()];
    for _round in 0..ROUNDS {
        let base = match row.load {
            Load::Timed { .. } => load::measure(row.load, direct, version).await,
            _ => vec![0.0; row.figures.len()],
        };
        for ((side, divisor), rounds) in sides.iter().zip(&mut rounds) {
            let Some(so_far) = rounds else { continue };
            let measured = load::measure(row.load.divided(*divisor), side, version);
            match AssertUnwindSafe(measured).catch_unwind().await {
                Ok(figures) => {
                    so_far.push(figures.iter().zip(&base).map(|(figure, base)| figure - base).collect());
                }
                Err(_failed) => *rounds = None,
            }
        }
    }
    let value = |rounds: &Option<Vec<Vec<f64>>>, at: usize| {
        rounds.as_ref().map(|rounds| median(rounds.iter().map(|figures| figures[at]).collect()))
    };
    let line = |(at, figure): (usize, &&str)| Line {
        name: format!("{}{figure}", row.name),
        version,
        unit: row.load.unit(),
        values: sides.iter().zip(&rounds).map(|((side, _), rounds)| (side.name, value(rounds, at))).collect(),
    };
    row.figures.iter().enumerate().map(line).collect()
}

fn print(line: &Line) {
    println!("{} over {:?}, {}", line.name, line.version, line.unit);
    for (side, value) in &line.values {
        println!("  {side:24} {}", value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
    }
}

fn as_json(lines: &[Line]) -> Value {
    let line = |line: &Line| {
        let values: serde_json::Map<String, Value> =
            line.values.iter().map(|(side, value)| ((*side).to_owned(), json!(value))).collect();
        json!({"name": line.name, "version": format!("{:?}", line.version), "unit": line.unit, "values": values})
    };
    Value::Array(lines.iter().map(line).collect())
}
