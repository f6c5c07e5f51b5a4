//! The whole configuration of a gateway, checked.
//!
//! Invariant: a [`Config`] exists only complete: every reference resolves, every value is in range, every path is
//! absolute or relative to the working directory, never to a file.

mod check;
mod files;
pub(crate) mod read;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use crate::bottle::{Bottle, SecretSource};
use crate::detectors::{DetectorsConfig, Surface};
use crate::host::{Host, HostPattern};
use crate::inputs::Inputs;
use crate::keyword::keywords;
use crate::limits::Limits;
use crate::name::Name;
use crate::policy::{MatchAction, Mode, Policy};
use crate::problem::Location;
use crate::value::date::Date;

pub use files::{Environment, Overrides, Texts, load, load_texts, parse, parse_detectors};
pub(crate) use files::{READING_LIMITS, Reading};

/// A gateway's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether verdicts take effect, where neither policy nor bottle says.
    pub mode: Mode,
    /// Where it listens.
    pub listen: Listen,
    /// CA, logs, fingerprint key, control socket.
    pub state_dir: PathBuf,
    /// The memory budget in bytes; `None`: from the cgroup limit.
    pub memory_budget: Option<u64>,
    /// Every timeout, count and size.
    pub limits: Limits,
    /// The certificate authority; `None`: made once in `state_dir`.
    pub ca: Option<CaFiles>,
    /// How origins are found and trusted.
    pub upstream: Upstream,
    /// The allocator's gateway socket; `None`: no leases.
    pub allocator: Option<PathBuf>,
    /// The known bottles, in the order they were written.
    pub bottles: Vec<Bottle>,
    /// The policies by name.
    pub policies: BTreeMap<Name, Policy>,
    /// The detectors.
    pub detectors: DetectorsConfig,
    /// Known values that leave for named hosts alone.
    pub secrets: Vec<Secret>,
    /// Findings that are accepted for a time.
    pub exceptions: Vec<Exception>,
    /// Requests with the verdict they must get.
    pub tests: Vec<PolicyTest>,
    /// What is logged.
    pub log: Log,
    /// How metrics are bounded.
    pub metrics: Metrics,
    /// Digest of the configuration's text in effect: its own files, detector files and flags; no secret, key or certificate.
    pub sha256: [u8; 32],
    /// The files it was made of, and those it names.
    pub inputs: Inputs,
    /// What its own files and its detector files said.
    pub texts: Texts,
}

/// Where the gateway listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The proxy's addresses.
    pub proxy: Vec<SocketAddr>,
    /// The admin address.
    pub admin: SocketAddr,
    /// Who may speak to the admin address.
    pub admin_from: Vec<IpNet>,
    /// What the host's network must guarantee.
    pub isolation: Isolation,
}

keywords! {
    /// Whether the gateway insists on a host that keeps bottles apart.
    pub enum Isolation {
        /// Nothing is checked.
        Off = "off",
        /// Refuse to start where IP forwarding is on or reverse-path filtering off.
        Required = "required",
    }
}

/// A certificate authority that the operator brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaFiles {
    /// The certificate, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// How origins are found and trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Whose certificates are trusted; never empty.
    pub roots: Vec<Roots>,
    /// Who resolves names.
    pub resolvers: Resolvers,
    /// Fixed answers, by name in canonical form.
    pub resolve: BTreeMap<Name, Vec<IpAddr>>,
    /// Networks that may be dialled beyond the public ones.
    pub allow_addresses: Vec<IpNet>,
    /// Networks that are never dialled, whatever is allowed.
    pub refuse_addresses: Vec<IpNet>,
}

/// A set of root certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Those built in.
    Bundled,
    /// Those of the host.
    System,
    /// A PEM file.
    File(PathBuf),
}

/// Who resolves names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolvers {
    /// Those of `/etc/resolv.conf`, without Docker's embedded one.
    System,
    /// These; port 53 unless given.
    Addresses(Vec<SocketAddr>),
    /// Those of a file in the format of `resolv.conf`.
    File(PathBuf),
}

/// A known value, or several of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name in findings that operators see.
    pub name: Name,
    /// Where the value is kept.
    pub from: SecretFrom,
    /// The hosts it may leave for; empty: none.
    pub hosts: Vec<HostPattern>,
    /// The surfaces on those hosts; empty: every one.
    pub surfaces: Vec<Surface>,
    /// Where it was written.
    pub at: Location,
}

/// Where known values come from; never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFrom {
    /// One is kept there.
    Value(SecretSource),
    /// Every file of a folder is one, named after the file; see [`secret_files`](crate::secret_files).
    Folder(PathBuf),
    /// It is made here, another one for each bottle, and belongs nowhere.
    Canary,
}

/// A finding that is accepted until a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its name.
    pub name: Name,
    /// The detector it speaks of.
    pub detector: Name,
    /// The bottles; empty: all.
    pub bottles: Vec<Name>,
    /// The hosts; empty: all.
    pub hosts: Vec<HostPattern>,
    /// The surfaces; empty: all.
    pub surfaces: Vec<Surface>,
    /// Fingerprints of accepted values as findings show them; empty: all.
    pub fingerprints: Vec<[u8; 8]>,
    /// What a match leads to instead: alert or redact.
    pub action: MatchAction,
    /// The last day on which it holds.
    pub until: Date,
    /// Why.
    pub reason: String,
    /// Where it was written.
    pub at: Location,
}

impl Exception {
    /// True when it still holds on `today`.
    #[must_use]
    pub fn is_live(&self, today: Date) -> bool {
        today <= self.until
    }
}

/// A request with the verdict it must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTest {
    /// Its name, where it has one.
    pub name: Option<Name>,
    /// Who sends it.
    pub bottle: Name,
    /// The method, in upper case.
    pub method: String,
    /// `https` or `http`.
    pub scheme: String,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The path with its query; `/` at least.
    pub path: String,
    /// Header fields in the order written.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: TestBody,
    /// The verdict it must get.
    pub expect: Expect,
    /// Where it was written.
    pub at: Location,
}

/// The body of a [`PolicyTest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestBody {
    /// None.
    Empty,
    /// This text.
    Text(String),
    /// The bytes of a file.
    File(PathBuf),
}

/// The verdict that a [`PolicyTest`] must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It passes.
    Allow,
    /// Policy refuses it.
    Policy,
    /// A known value is in it that may not go there.
    Secret,
    /// This detector finds something that it blocks or redacts.
    Detector(Name),
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// From which level on.
    pub level: LogLevel,
    /// In which form.
    pub format: LogFormat,
    /// Which exchanges get a line.
    pub exchanges: ExchangeLog,
}

keywords! {
    /// The level from which on lines are written.
    pub enum LogLevel {
        /// Failures alone.
        Error = "error",
        /// What an operator should look at.
        Warn = "warn",
        /// What happens seldom.
        Info = "info",
        /// Every exchange's steps.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

keywords! {
    /// The form of a log line.
    pub enum LogFormat {
        /// One JSON object a line.
        Json = "json",
        /// For people.
        Text = "text",
    }
}

keywords! {
    /// Which exchanges get a line in the exchange log.
    pub enum ExchangeLog {
        /// Every one.
        All = "all",
        /// Those refused, or that would have been.
        Refused = "refused",
        /// None.
        Off = "off",
    }
}

/// How metrics are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Bottles with series of their own; the others share `other`.
    pub bottles: usize,
}
