//! `decant status`: what a gateway that runs says of itself.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::Deserialize;

use super::args::AdminArgs;
use super::health::get;
use super::{Exit, Failure, print, printable};

/// The answer of `/v1/status`, as far as it is shown or used here.
#[derive(Deserialize)]
pub(super) struct Status {
    version: String,
    uptime_seconds: u64,
    /// Where bottles send their requests.
    pub(super) proxy: SocketAddr,
    detectors: usize,
    resident_bytes: u64,
    connections: u64,
    ca: Ca,
    bottles: Vec<Bottle>,
}

#[derive(Deserialize)]
struct Ca {
    sha256: String,
    not_after: String,
}

#[derive(Deserialize)]
struct Bottle {
    name: String,
    policy: String,
    mode: String,
    sources: Vec<String>,
    connections: usize,
}

impl Status {
    /// Asks the gateway at `admin`.
    pub(super) fn ask(admin: SocketAddr) -> Result<Self, Failure> {
        serde_json::from_str(&get(admin, "/v1/status")?).map_err(|error| {
            Failure::internal(format!("{admin} answers what this version does not know: {error}"))
        })
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        // A string takes all that is written to it.
        let _ = writeln!(text, "version      {}, up {} s", printable(&self.version), self.uptime_seconds);
        let _ = writeln!(text, "proxy        {}", self.proxy);
        let _ = writeln!(text, "detectors    {}", self.detectors);
        let _ = writeln!(text, "resident     {} KiB", self.resident_bytes / 1024);
        let _ = writeln!(text, "connections  {}", self.connections);
        let (sha256, not_after) = (printable(&self.ca.sha256), printable(&self.ca.not_after));
        let _ = writeln!(text, "ca           sha256 {sha256}, ends {not_after}");
        for bottle in &self.bottles {
            let [name, policy, mode] =
                [&bottle.name, &bottle.policy, &bottle.mode].map(|word| printable(word));
            let sources = printable(&bottle.sources.join(","));
            let connections = bottle.connections;
            let _ = writeln!(
                text,
                "bottle       {name} {mode} policy={policy} from={sources} connections={connections}"
            );
        }
        text
    }
}

/// Runs the command.
pub(super) fn run(args: &AdminArgs) -> Result<Exit, Failure> {
    print(&Status::ask(args.admin)?.shown())
}
