//! `decant status`: what a gateway that runs says of itself.

use std::net::SocketAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::args::AdminArgs;
use super::health::get;
use super::{Exit, Failure, print, printable};

/// The answer of `/v1/status`, as far as it is shown or used here. What the worker says is absent while none serves.
#[derive(Deserialize)]
pub(super) struct Status {
    supervisor: Supervisor,
    #[serde(flatten)]
    gateway: Option<Gateway>,
}

#[derive(Deserialize)]
struct Supervisor {
    version: String,
    uptime_seconds: u64,
    workers: usize,
    restarts: u64,
    trouble: Option<String>,
    last_words: Option<LastWords>,
}

#[derive(Deserialize)]
struct LastWords {
    at: String,
    words: String,
    exchanges: u64,
    #[serde(default)]
    bottles: Vec<String>,
    panic: Option<String>,
}

#[derive(Deserialize)]
struct Gateway {
    /// Where bottles send their requests.
    proxy: SocketAddr,
    detectors: usize,
    resident_bytes: u64,
    connections: u64,
    exchanges: u64,
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
    origin: String,
    policy: String,
    mode: String,
    sources: Vec<String>,
    connections: usize,
    barred: Option<String>,
    cut_off_seconds: Option<u64>,
}

/// A finding, as far as it is shown here.
#[derive(Deserialize)]
struct Finding {
    time: String,
    id: String,
    bottle: String,
    detector: String,
    host: String,
    action: String,
}

/// Findings that are shown.
const FINDINGS_SHOWN: usize = 5;

impl Status {
    /// Asks the gateway at `admin`.
    pub(super) fn ask(admin: SocketAddr) -> Result<Self, Failure> {
        read(admin, "/v1/status")
    }

    /// Where bottles send their requests.
    ///
    /// # Errors
    /// When no worker serves.
    pub(super) fn proxy(&self) -> Result<SocketAddr, Failure> {
        let gateway = self.gateway.as_ref();
        gateway.map(|gateway| gateway.proxy).ok_or_else(|| Failure::internal("the gateway has no worker now"))
    }

    fn lines(&self) -> Vec<String> {
        let one = &self.supervisor;
        let mut lines = vec![
            format!("version      {}, up {} s", one.version, one.uptime_seconds),
            format!("workers      {}, {} died", one.workers, one.restarts),
        ];
        lines.extend(one.trouble.as_ref().map(|trouble| format!("trouble      {trouble}")));
        if let Some(last) = &one.last_words {
            let panic = last.panic.as_ref().map(|panic| format!(", panic: {panic}")).unwrap_or_default();
            let (at, words, exchanges) = (&last.at, &last.words, last.exchanges);
            let bottles = last.bottles.join(",");
            lines.push(format!(
                "last death   {at} {words}, {exchanges} exchanges in flight, begun by [{bottles}]{panic}"
            ));
        }
        lines.extend(self.gateway.iter().flat_map(Gateway::lines));
        lines
    }
}

impl Gateway {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("proxy        {}", self.proxy),
            format!("detectors    {}", self.detectors),
            format!("resident     {} KiB", self.resident_bytes / 1024),
            format!("connections  {}", self.connections),
            format!("exchanges    {}", self.exchanges),
            format!("ca           sha256 {}, ends {}", self.ca.sha256, self.ca.not_after),
        ];
        lines.extend(self.bottles.iter().map(Bottle::line));
        lines
    }
}

impl Bottle {
    fn line(&self) -> String {
        let Self { name, origin, policy, mode, connections, .. } = self;
        let barred = self.barred.as_ref().map(|cause| format!(" barred={cause}")).unwrap_or_default();
        let cut_off = self.cut_off_seconds.map(|left| format!(" cut_off={left}s")).unwrap_or_default();
        let sources = self.sources.join(",");
        format!(
            "bottle       {name} {mode} policy={policy} from={sources} by={origin} connections={connections}{barred}{cut_off}"
        )
    }
}

impl Finding {
    fn line(&self) -> String {
        let Self { time, id, bottle, detector, host, action } = self;
        format!("finding      {time} {id} {bottle} {detector} to {host}: {action}")
    }
}

fn read<T: DeserializeOwned>(admin: SocketAddr, path: &str) -> Result<T, Failure> {
    serde_json::from_str(&get(admin, path)?).map_err(|error| {
        Failure::internal(format!("{admin} answers what this version does not know: {error}"))
    })
}

/// Runs the command.
pub(super) fn run(args: &AdminArgs) -> Result<Exit, Failure> {
    let mut lines = Status::ask(args.admin)?.lines();
    let findings: Vec<Finding> = read(args.admin, &format!("/v1/findings?limit={FINDINGS_SHOWN}"))?;
    lines.extend(findings.iter().map(Finding::line));
    print(&lines.iter().map(|line| printable(line) + "\n").collect::<String>())
}
