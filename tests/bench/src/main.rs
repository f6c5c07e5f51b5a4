//! Measurements of the gateway beside other proxies: `decant-speed` holds it to bars beside nginx, `decant-speed compare
//! --json FILE --svg FILE` puts it beside nginx, hudsucker, squid and mitmproxy, `decant-speed against PROGRAM` beside
//! another build of itself.
//!
//! Owns: one origin, one client, and the proxies between them; a run of each in turn, three rounds, medians. Invariant:
//! only the proxies' own CPU time is counted (user and system, from `/proc`), and every byte and answer is checked.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use http::Version;

mod against;
mod body;
mod compare;
mod load;
mod peer;
mod plot;
mod sides;
mod speed;

/// Rounds; the figures are their medians.
const ROUNDS: usize = 3;

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => speed::run().await,
        ["compare", "--json", json, "--svg", svg] => compare::run(json.as_ref(), svg.as_ref()).await,
        ["against", program] => against::run(program.as_ref()).await,
        _ => {
            eprintln!("usage: decant-speed [compare --json FILE --svg FILE | against PROGRAM]");
            ExitCode::from(64)
        }
    }
}

/// The middle one.
fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
