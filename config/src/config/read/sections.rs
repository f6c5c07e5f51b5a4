//! Reads the sections that are one map each.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::DetectorSection;
use crate::config::{
    CaFiles, ExchangeLog, Isolation, Listen, Log, LogFormat, LogLevel, Metrics, Resolvers, Roots, Upstream,
};
use crate::detectors::Newer;
use crate::detectors::read::detector_override;
use crate::host::Host;
use crate::name::Name;
use crate::problem::quoted;
use crate::suggest::{did_you_mean, nearest};
use crate::value::digits;
use crate::value::network::{parse_address, parse_network, parse_socket_address};
use crate::value::size::{MIB, parse_size, show_size};
use crate::yaml::{Cx, Fields, Node, Row, Section, Value, path, word};

/// The smallest memory budget that a gateway can serve anything in.
const BUDGET_LEAST: u64 = 16 * MIB;

/// Bottles with series of their own at most.
const METRIC_BOTTLES_MAX: u64 = 100_000;

const DNS_PORT: u16 = 53;

pub(crate) static LISTEN: Section = Section {
    path: "listen",
    rows: &[
        Row {
            key: "proxy",
            kind: "list of addresses with port",
            default: "127.0.0.1:9099",
            words: "Where bottles connect.",
        },
        Row {
            key: "admin",
            kind: "address with port",
            default: "127.0.0.1:9190",
            words: "Health, metrics and status; never on an address of a session network.",
        },
        Row {
            key: "admin_from",
            kind: "list of networks",
            default: "[127.0.0.0/8, ::1]",
            words: "Who may speak to the admin address.",
        },
        Row {
            key: "isolation",
            kind: "off | required",
            default: "off",
            words: "`required`: refuse to start where IP forwarding is on or reverse-path filtering off.",
        },
    ],
};

pub(crate) static MEMORY: Section = Section {
    path: "memory",
    rows: &[Row {
        key: "budget",
        kind: "auto | size",
        default: "auto",
        words: "`auto`: from the cgroup limit, 64MiB where there is none.",
    }],
};

pub(crate) static TLS: Section = Section {
    path: "tls",
    rows: &[Row {
        key: "ca",
        kind: "map",
        default: "made once in state_dir",
        words: "A certificate authority of your own.",
    }],
};

pub(crate) static CA: Section = Section {
    path: "tls.ca",
    rows: &[
        Row { key: "cert", kind: "path", default: "required", words: "Its certificate, PEM." },
        Row { key: "key", kind: "path", default: "required", words: "Its private key, PEM." },
    ],
};

pub(crate) static UPSTREAM: Section = Section {
    path: "upstream",
    rows: &[
        Row {
            key: "roots",
            kind: "list of bundled, system or paths",
            default: "bundled",
            words: "Whose certificates are trusted.",
        },
        Row {
            key: "resolvers",
            kind: "system | list of addresses | {file: PATH}",
            default: "system",
            words: "Who resolves names. Docker's embedded resolver is never used.",
        },
        Row { key: "resolve", kind: "map of addresses by host", default: "{}", words: "Fixed answers." },
        Row { key: "addresses", kind: "map", default: "as below", words: "Which addresses may be dialled." },
    ],
};

pub(crate) static ADDRESSES: Section = Section {
    path: "upstream.addresses",
    rows: &[
        Row {
            key: "allow",
            kind: "list of networks",
            default: "[]",
            words: "Networks beyond the public ones. Cloud metadata, the leases' networks and the gateway's own addresses stay refused; loopback passes only if named here.",
        },
        Row {
            key: "refuse",
            kind: "list of networks",
            default: "[]",
            words: "Networks that are never reached, whatever `allow` says: the host's own addresses where the gateway runs in a container.",
        },
    ],
};

pub(crate) static ALLOCATOR: Section = Section {
    path: "allocator",
    rows: &[Row {
        key: "socket",
        kind: "path",
        default: "/run/decant/gateway.sock",
        words: "The allocator's gateway socket.",
    }],
};

pub(crate) static DETECTORS: Section = Section {
    path: "detectors",
    rows: &[
        Row {
            key: "builtin",
            kind: "true | false",
            default: "true",
            words: "Whether the built-in pack runs.",
        },
        Row {
            key: "files",
            kind: "list of paths",
            default: "[]",
            words: "Detector files; a later detector replaces an earlier one of its id.",
        },
        Row {
            key: "newer",
            kind: "act | alert",
            default: "act",
            words: "`alert`: built-in detectors added after `pinned` only alert.",
        },
        Row {
            key: "pinned",
            kind: "date",
            default: "none",
            words: "The date of the pack that was approved.",
        },
        Row {
            key: "overrides",
            kind: "list of maps",
            default: "[]",
            words: "Changes to detectors, as in a detector file; applied last.",
        },
    ],
};

pub(crate) static LOG: Section = Section {
    path: "log",
    rows: &[
        Row {
            key: "level",
            kind: "error | warn | info | debug | trace",
            default: "info",
            words: "From which level on lines are written.",
        },
        Row { key: "format", kind: "json | text", default: "json", words: "The form of a line." },
        Row {
            key: "exchanges",
            kind: "all | refused | off",
            default: "refused",
            words: "Which exchanges get a line.",
        },
    ],
};

pub(crate) static METRICS: Section = Section {
    path: "metrics",
    rows: &[Row {
        key: "bottles",
        kind: "number",
        default: "256",
        words: "Live bottles with series of their own; the others share `other`.",
    }],
};

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let own = ["127.0.0.0/8", "::1/128"].map(|text| text.parse().expect("a network"));
        Self {
            proxy: vec![loopback(9099)],
            admin: loopback(9190),
            admin_from: own.to_vec(),
            isolation: Isolation::Off,
        }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        let (roots, resolvers) = (vec![Roots::Bundled], Resolvers::System);
        Self {
            roots,
            resolvers,
            resolve: BTreeMap::new(),
            allow_addresses: Vec::new(),
            refuse_addresses: Vec::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Json, exchanges: ExchangeLog::Refused }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { bottles: 256 }
    }
}

impl Default for DetectorSection {
    fn default() -> Self {
        Self { builtin: true, files: Vec::new(), newer: Newer::Act, pinned: None, overrides: Vec::new() }
    }
}

pub(super) fn listen(node: &Node, cx: &mut Cx) -> Option<Listen> {
    let map = Fields::open(node, &LISTEN, cx)?;
    let address = |node: &Node, cx: &mut Cx| node.parsed(cx, parse_socket_address);
    let default = Listen::default();
    let proxy = map.get("proxy").map(|_| map.scalars(cx, "proxy", address));
    Some(Listen {
        proxy: proxy.unwrap_or(default.proxy),
        admin: map.optional(cx, "admin", address).unwrap_or(default.admin),
        admin_from: map
            .any_scalars(cx, "admin_from", |node, cx| node.parsed(cx, parse_network))
            .unwrap_or(default.admin_from),
        isolation: map.optional(cx, "isolation", word).unwrap_or(default.isolation),
    })
}

pub(super) fn memory(node: &Node, cx: &mut Cx) -> Option<Option<u64>> {
    Fields::open(node, &MEMORY, cx)?.optional(cx, "budget", |node, cx| {
        node.parsed(cx, |text| match text {
            "auto" => Ok(None),
            _ => budget(text).map(Some),
        })
    })
}

fn budget(text: &str) -> Result<u64, String> {
    let bytes =
        parse_size(text).map_err(|_| format!("{} is not `auto` or a size like 48MiB", quoted(text)))?;
    if bytes < BUDGET_LEAST {
        return Err(format!(
            "{} is too little to serve anything: write {} or more",
            quoted(text),
            show_size(BUDGET_LEAST)
        ));
    }
    Ok(bytes)
}

pub(super) fn tls(node: &Node, cx: &mut Cx) -> Option<Option<CaFiles>> {
    let map = Fields::open(node, &TLS, cx)?;
    Some(map.optional(cx, "ca", |node, cx| {
        let map = Fields::open(node, &CA, cx)?;
        let cert = map.required_in_whole(cx, "cert", path);
        let key = map.required_in_whole(cx, "key", path);
        Some(CaFiles { cert: cert?, key: key? })
    }))
}

pub(super) fn upstream(node: &Node, cx: &mut Cx) -> Option<Upstream> {
    let map = Fields::open(node, &UPSTREAM, cx)?;
    let default = Upstream::default();
    let roots = map.get("roots").map(|_| map.scalars(cx, "roots", roots));
    let resolvers = map.optional(cx, "resolvers", resolvers);
    let resolve = map.optional(cx, "resolve", resolve);
    let addresses = map.optional(cx, "addresses", |node, cx| {
        let map = Fields::open(node, &ADDRESSES, cx)?;
        let mut networks =
            |key| map.any_scalars(cx, key, |node, cx| node.parsed(cx, parse_network)).unwrap_or_default();
        Some((networks("allow"), networks("refuse")))
    });
    let (allow_addresses, refuse_addresses) = addresses.unwrap_or_default();
    Some(Upstream {
        roots: roots.unwrap_or(default.roots),
        resolvers: resolvers.unwrap_or(default.resolvers),
        resolve: resolve.unwrap_or_default(),
        allow_addresses,
        refuse_addresses,
    })
}

fn roots(node: &Node, cx: &mut Cx) -> Option<Roots> {
    match node.text(cx)? {
        "bundled" => Some(Roots::Bundled),
        "system" => Some(Roots::System),
        // A bare word that is nearly one of the two is a slip, not a file.
        text if nearest(text, ["bundled", "system"]).is_some() => {
            let hint = did_you_mean(text, ["bundled", "system"]);
            cx.refuse(node, format!("{} is not `bundled`, `system` or a path{hint}", quoted(text)))
        }
        _ => node.path(cx).map(Roots::File),
    }
}

fn resolvers(node: &Node, cx: &mut Cx) -> Option<Resolvers> {
    if let Value::Map(entries) = &node.value {
        return match entries.as_slice() {
            [(key, file)] if key.text == "file" => file.path(cx).map(Resolvers::File),
            _ => cx.refuse(node, "write `system`, a list of addresses, or {file: PATH}"),
        };
    }
    if node.as_text() == Some("system") {
        return Some(Resolvers::System);
    }
    let items = node.scalars(cx)?;
    crate::yaml::not_empty(node, items, cx)?;
    Some(Resolvers::Addresses(crate::yaml::read_all(items, cx, |node, cx| node.parsed(cx, resolver))))
}

fn resolver(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, DNS_PORT)),
        Err(_) => text.parse().map_err(|_| {
            format!("{} is not `system` or an address like 9.9.9.9 or 9.9.9.9:53", quoted(text))
        }),
    }
}

fn resolve(node: &Node, cx: &mut Cx) -> Option<BTreeMap<Name, Vec<IpAddr>>> {
    let mut answers = BTreeMap::new();
    for (key, value) in node.entries(cx)? {
        let name = match Host::parse(&key.text) {
            Ok(Host::Name(name)) => Name::new(&name),
            Ok(Host::Ip(_)) => {
                Err(format!("{} is an address: a fixed answer is for a name", quoted(&key.text)))
            }
            Err(message) => Err(message),
        };
        let name = name.map_err(|message| cx.problem(&key.at, message)).ok();
        let addresses = value.scalars(cx).and_then(|items| {
            crate::yaml::not_empty(value, items, cx)?;
            Some(crate::yaml::read_all(items, cx, |node, cx| node.parsed(cx, parse_address)))
        });
        answers.extend(name.zip(addresses));
    }
    Some(answers)
}

pub(super) fn allocator(node: &Node, cx: &mut Cx) -> Option<Option<PathBuf>> {
    if node.is_null() {
        return Some(None);
    }
    let map = Fields::open(node, &ALLOCATOR, cx)?;
    Some(Some(map.optional(cx, "socket", path).unwrap_or_else(|| PathBuf::from("/run/decant/gateway.sock"))))
}

pub(super) fn detectors(node: &Node, cx: &mut Cx) -> Option<DetectorSection> {
    let map = Fields::open(node, &DETECTORS, cx)?;
    let section = DetectorSection {
        builtin: map.optional(cx, "builtin", Node::boolean).unwrap_or(true),
        files: map.any_scalars(cx, "files", path).unwrap_or_default(),
        newer: map.optional(cx, "newer", word).unwrap_or(Newer::Act),
        pinned: map.optional(cx, "pinned", word),
        overrides: map.list(cx, "overrides", detector_override),
    };
    if section.newer == Newer::Alert && node.get("pinned").is_none() && !cx.partial {
        cx.problem(&node.at, "`newer: alert` needs `pinned`: write the date of the pack that was approved");
    }
    Some(section)
}

pub(super) fn log(node: &Node, cx: &mut Cx) -> Option<Log> {
    let map = Fields::open(node, &LOG, cx)?;
    let default = Log::default();
    Some(Log {
        level: map.optional(cx, "level", word).unwrap_or(default.level),
        format: map.optional(cx, "format", word).unwrap_or(default.format),
        exchanges: map.optional(cx, "exchanges", word).unwrap_or(default.exchanges),
    })
}

pub(super) fn metrics(node: &Node, cx: &mut Cx) -> Option<Metrics> {
    let map = Fields::open(node, &METRICS, cx)?;
    let bottles = map.optional(cx, "bottles", |node, cx| {
        node.parsed(cx, |text| {
            let number = digits(text).filter(|number| (1..=METRIC_BOTTLES_MAX).contains(number));
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("{} is out of range: write 1 to {METRIC_BOTTLES_MAX}", quoted(text)))
        })
    });
    Some(bottles.map_or_else(Metrics::default, |bottles| Metrics { bottles }))
}
