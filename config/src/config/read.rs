//! Reads the sections of a gateway's configuration.

mod entries;
mod sections;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{CaFiles, Exception, Listen, Log, Metrics, PolicyTest, Secret, Upstream};
use crate::bottle::Bottle;
use crate::detectors::{DetectorOverride, Newer};
use crate::limits::Limits;
use crate::name::Name;
use crate::policy::{Mode, Policy};
use crate::value::date::Date;
use crate::yaml::{Cx, Fields, Node, Row, Section, path, word};

pub(crate) use entries::{EXCEPTION, SECRET, TEST, TO};
pub(crate) use sections::{ADDRESSES, ALLOCATOR, CA, DETECTORS, LISTEN, LOG, MEMORY, METRICS, TLS, UPSTREAM};

pub(crate) static TOP: Section = Section {
    path: "",
    rows: &[
        Row { key: "version", kind: "1", default: "1", words: "The format." },
        Row {
            key: "mode",
            kind: "enforce | observe",
            default: "enforce",
            words: "Whether verdicts take effect; also per policy and per bottle. Identity, framing, authority, addresses and memory are always enforced.",
        },
        Row { key: "listen", kind: "map", default: "as below", words: "Where the gateway listens." },
        Row {
            key: "state_dir",
            kind: "path",
            default: "the XDG state folder; /var/lib/decant for root",
            words: "CA, findings, fingerprint key and control socket.",
        },
        Row { key: "memory", kind: "map", default: "as below", words: "How much memory may be used." },
        Row { key: "limits", kind: "map", default: "as below", words: "Every timeout, count and size." },
        Row {
            key: "tls",
            kind: "map",
            default: "made once in state_dir",
            words: "The certificate authority.",
        },
        Row {
            key: "upstream",
            kind: "map",
            default: "as below",
            words: "How origins are found and trusted.",
        },
        Row { key: "allocator", kind: "map or null", default: "null", words: "Whose leases become bottles." },
        Row {
            key: "bottles",
            kind: "list of maps",
            default: "loopback clients, as `local`",
            words: "The known senders.",
        },
        Row {
            key: "policies",
            kind: "map of maps",
            default: "`default`: any public host on 80 and 443",
            words: "Policies by name.",
        },
        Row { key: "detectors", kind: "map", default: "as below", words: "Which detectors there are." },
        Row {
            key: "secrets",
            kind: "list of maps",
            default: "[]",
            words: "Known values that leave for named hosts alone, in any encoding.",
        },
        Row {
            key: "exceptions",
            kind: "list of maps",
            default: "[]",
            words: "Findings that are accepted for a time.",
        },
        Row {
            key: "tests",
            kind: "list of maps",
            default: "[]",
            words: "Requests with the verdict they must get; `decant check` runs them.",
        },
        Row { key: "log", kind: "map", default: "as below", words: "What is logged." },
        Row { key: "metrics", kind: "map", default: "as below", words: "How metrics are bounded." },
    ],
};

/// `detectors:` before its files are read.
#[derive(Clone, Debug)]
pub(super) struct DetectorSection {
    pub(super) builtin: bool,
    pub(super) files: Vec<PathBuf>,
    pub(super) newer: Newer,
    pub(super) pinned: Option<Date>,
    pub(super) overrides: Vec<DetectorOverride>,
}

/// A configuration as one tree says it: what it leaves out is the default, or `None` where the caller decides.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) mode: Mode,
    pub(super) listen: Listen,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) memory_budget: Option<u64>,
    pub(super) limits: Limits,
    pub(super) ca: Option<CaFiles>,
    pub(super) upstream: Upstream,
    pub(super) allocator: Option<PathBuf>,
    pub(super) bottles: Vec<Bottle>,
    pub(super) policies: BTreeMap<Name, Policy>,
    pub(super) detectors: DetectorSection,
    pub(super) secrets: Vec<Secret>,
    pub(super) exceptions: Vec<Exception>,
    pub(super) tests: Vec<PolicyTest>,
    pub(super) log: Log,
    pub(super) metrics: Metrics,
}

/// Reads a whole tree.
pub(super) fn top(node: &Node, cx: &mut Cx) -> Option<Top> {
    let map = Fields::open(node, &TOP, cx)?;
    map.optional(cx, "version", crate::detectors::read::version);
    Some(Top {
        mode: map.optional(cx, "mode", word).unwrap_or(Mode::Enforce),
        listen: map.optional(cx, "listen", sections::listen).unwrap_or_default(),
        state_dir: map.optional(cx, "state_dir", path),
        memory_budget: map.optional(cx, "memory", sections::memory).flatten(),
        limits: map.optional(cx, "limits", crate::limits::limits).unwrap_or_default(),
        ca: map.optional(cx, "tls", sections::tls).flatten(),
        upstream: map.optional(cx, "upstream", sections::upstream).unwrap_or_default(),
        allocator: map.optional(cx, "allocator", sections::allocator).flatten(),
        bottles: map.list(cx, "bottles", crate::bottle::read::bottle),
        policies: map.optional(cx, "policies", crate::policy::read::policies).unwrap_or_default(),
        detectors: map.optional(cx, "detectors", sections::detectors).unwrap_or_default(),
        secrets: map.list(cx, "secrets", entries::secret),
        exceptions: map.list(cx, "exceptions", entries::exception),
        tests: map.list(cx, "tests", entries::test),
        log: map.optional(cx, "log", sections::log).unwrap_or_default(),
        metrics: map.optional(cx, "metrics", sections::metrics).unwrap_or_default(),
    })
}
