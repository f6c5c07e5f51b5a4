//! What `decant run` says on standard output: what runs, and how to send a first request through it.

use std::io::Write as _;
use std::net::SocketAddr;

use decant_config::{Config, Mode};

use super::Failure;
use crate::app::Gateway;

/// Says what runs, and how to send a first request through it.
pub(super) fn announce(
    config: &Config,
    gateway: &Gateway,
    proxies: &[SocketAddr],
    admin: SocketAddr,
) -> Result<(), Failure> {
    let text = announcement(config, gateway, proxies, admin);
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::internal(format!("stdout: {error}")))
}

fn announcement(config: &Config, gateway: &Gateway, proxies: &[SocketAddr], admin: SocketAddr) -> String {
    let list =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mode = match config.mode {
        Mode::Enforce => "enforce: what policy or a detector refuses is refused",
        Mode::Observe => "observe: what would be refused is recorded and passes",
    };
    let bottles: Vec<String> =
        config.bottles.iter().map(|bottle| format!("{} (policy {})", bottle.name, bottle.policy)).collect();
    let detectors = gateway.book().detectors.all().len();
    let first = proxies.first().map(ToString::to_string).unwrap_or_default();
    format!(
        "decant {version}\n\
         mode         {mode}\n\
         bottles      {bottles}\n\
         passes       {passes}\n\
         detectors    {detectors}\n\
         proxy        {proxies}\n\
         admin        {admin}\n\
         CA           {ca}\n\
         fingerprint  sha256 {fingerprint}\n\
         \n\
         A first request:\n\
         \n\
         curl --proxy http://{first} --cacert {ca} https://example.com/\n",
        version = env!("CARGO_PKG_VERSION"),
        bottles = bottles.join(", "),
        passes = passes(config),
        proxies = list(proxies),
        ca = gateway.ca_file.display(),
        fingerprint = gateway.leaves.authority().fingerprint(),
    )
}

/// What the policies let through, in a line.
fn passes(config: &Config) -> String {
    let hosts = config.policies.values().flat_map(|policy| &policy.routes).flat_map(|route| &route.hosts);
    let mut names: Vec<String> = hosts.map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    match names.as_slice() {
        [one] if one == "*" => "any public host, inspected both ways".to_owned(),
        names if names.len() <= 6 => names.join(", "),
        names => format!("{} and {} more hosts", names[..6].join(", "), names.len() - 6),
    }
}
