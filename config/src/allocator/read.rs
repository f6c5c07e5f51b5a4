//! Reads an allocator's configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::{AllocatorConfig, Docker, Gateway, Leases, OnExpire, Ports, Subnets};
use crate::config::{Environment, Reading};
use crate::host::Host;
use crate::problem::{Problems, quoted};
use crate::value::duration::{parse_duration, show_duration};
use crate::value::network::{parse_network, parse_socket_address};
use crate::value::port::{parse_port, parse_ports};
use crate::yaml::{Cx, Fields, Node, Row, Section, parse as parse_yaml, path, word};

/// The longest prefix whose subnet still holds a bridge, a gateway and some hosts.
const PREFIX_MAX: u8 = 29;

/// Ports below this need privileges to bind.
const PORT_LEAST: u16 = 1024;

const TTL_LEAST: Duration = Duration::from_secs(1);
const TTL_MOST: Duration = Duration::from_secs(7 * 24 * 3600);
const PAUSE_MOST: Duration = Duration::from_secs(3600);

/// The networks that an address plan may use within a host (RFC 1918, RFC 6598).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

static TOP: Section = Section {
    path: "",
    rows: &[
        Row { key: "version", kind: "1", default: "1", words: "The format." },
        Row {
            key: "state_dir",
            kind: "path",
            default: "the XDG state folder; /var/lib/decant for root",
            words: "The ledger and what else outlives the process.",
        },
        Row {
            key: "socket",
            kind: "path",
            default: "/run/decant/allocator.sock, else in state_dir",
            words: "Where leases are served.",
        },
        Row {
            key: "group",
            kind: "name",
            default: "the process's own",
            words: "The group that may take leases, for launchers: the socket's own.",
        },
        Row {
            key: "gateway_group",
            kind: "name",
            default: "the same as group",
            words: "The group that may watch and acknowledge leases, for the gateway: that of gateway.sock. Where launchers and gateway have a group each, no launcher can answer for the gateway, and the gateway can take no lease.",
        },
        Row {
            key: "listen",
            kind: "address with port",
            default: "127.0.0.1:9191",
            words: "Health and metrics.",
        },
        Row { key: "ports", kind: "map", default: "as below", words: "The ports to lease." },
        Row { key: "subnets", kind: "map", default: "as below", words: "The subnets to lease." },
        Row { key: "leases", kind: "map", default: "as below", words: "How leases live and end." },
        Row { key: "docker", kind: "map", default: "as below", words: "The container engine." },
        Row {
            key: "gateway",
            kind: "map or null",
            default: "null",
            words: "The gateway that must know a lease before it is answered: {container, proxy_port}, {host: true, proxy_port} or {url}.",
        },
    ],
};

static PORTS: Section = Section {
    path: "ports",
    rows: &[
        Row {
            key: "range",
            kind: "range of ports",
            default: "20000-29999",
            words: "Drawn in turn; below every system's own ephemeral range.",
        },
        Row {
            key: "exclude",
            kind: "list of ports",
            default: "[]",
            words: "Numbers or ranges that are never given out.",
        },
        Row {
            key: "allow_ephemeral",
            kind: "true | false",
            default: "false",
            words: "Whether ports may be leased that the kernel gives to outgoing connections as well.",
        },
        Row {
            key: "guard",
            kind: "true | false",
            default: "false",
            words: "Whether leased TCP ports get a guard socket, which keeps other programs' plain binds and outgoing connections off them. Containers publish through it; a program that binds its leased port without SO_REUSEADDR does not.",
        },
    ],
};

static SUBNETS: Section = Section {
    path: "subnets",
    rows: &[
        Row { key: "pool", kind: "IPv4 network", default: "10.252.0.0/16", words: "A private network." },
        Row {
            key: "prefix",
            kind: "number",
            default: "24",
            words: "The prefix length of one subnet: from the pool's to 29.",
        },
        Row {
            key: "strict_routes",
            kind: "true | false",
            default: "false",
            words: "Whether routes shorter than the pool block its subnets too.",
        },
    ],
};

static LEASES: Section = Section {
    path: "leases",
    rows: &[
        Row {
            key: "ttl",
            kind: "duration, 1s to 7d",
            default: "2h",
            words: "The lifetime of a lease that names none.",
        },
        Row {
            key: "drain",
            kind: "duration, up to 1h",
            default: "30s",
            words: "Time that a released lease's containers have to end by themselves.",
        },
        Row {
            key: "grace",
            kind: "duration, up to 1h",
            default: "30s",
            words: "Time that an owner must be gone before its lease ends; also what every lease is given after an outage.",
        },
        Row {
            key: "on_expire",
            kind: "cut | stop",
            default: "cut",
            words: "Containers that outlive their lease lose its network, or are stopped.",
        },
    ],
};

static DOCKER: Section = Section {
    path: "docker",
    rows: &[Row {
        key: "socket",
        kind: "auto | path | null",
        default: "auto",
        words: "`auto`: DOCKER_HOST, rootless, the usual paths. null: ports and subnets without Docker.",
    }],
};

static GATEWAY: Section = Section {
    path: "gateway",
    rows: &[
        Row {
            key: "container",
            kind: "name",
            default: "one of the three",
            words: "In this container, which is attached to each lease's network.",
        },
        Row {
            key: "host",
            kind: "true",
            default: "one of the three",
            words: "On the host, reached at each network's bridge address.",
        },
        Row {
            key: "url",
            kind: "URL",
            default: "one of the three",
            words: "Elsewhere, as in http://10.0.0.5:9099.",
        },
        Row {
            key: "proxy_port",
            kind: "port",
            default: "9099",
            words: "The port its proxy listens on; not beside `url`.",
        },
    ],
};

/// The allocator's sections, for its reference.
pub(crate) static SECTIONS: [&Section; 6] = [&TOP, &PORTS, &SUBNETS, &LEASES, &DOCKER, &GATEWAY];

impl Default for Ports {
    fn default() -> Self {
        Self { range: 20_000..=29_999, exclude: Vec::new(), allow_ephemeral: false, guard: false }
    }
}

impl Default for Subnets {
    fn default() -> Self {
        Self { pool: "10.252.0.0/16".parse().expect("a network"), prefix: 24, strict_routes: false }
    }
}

impl Default for Leases {
    fn default() -> Self {
        let (ttl, pause) = (Duration::from_secs(2 * 3600), Duration::from_secs(30));
        Self { ttl, drain: pause, grace: pause, on_expire: OnExpire::Cut }
    }
}

pub(super) fn config(
    mut reading: Reading,
    file: &Path,
    text: &str,
    environment: &Environment,
) -> Result<AllocatorConfig, Problems> {
    let root = parse_yaml(&file.into(), text, &mut reading.cx);
    let config = root.and_then(|root| top(&root, environment, &mut reading.cx));
    reading.cx.problems.into_result(&reading.inputs)?;
    let config = config.expect("a tree without problems is a configuration");
    Ok(AllocatorConfig { inputs: reading.inputs, ..config })
}

fn top(node: &Node, environment: &Environment, cx: &mut Cx) -> Option<AllocatorConfig> {
    let map = Fields::open(node, &TOP, cx)?;
    map.optional(cx, "version", crate::detectors::read::version);
    let state_dir = map.optional(cx, "state_dir", path);
    let listen = map.optional(cx, "listen", |node, cx| node.parsed(cx, parse_socket_address));
    Some(AllocatorConfig {
        state_dir: state_dir.unwrap_or_else(|| environment.state_dir()),
        socket: map.optional(cx, "socket", path),
        group: map.optional(cx, "group", group),
        gateway_group: map.optional(cx, "gateway_group", group),
        listen: listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 9191))),
        ports: map.optional(cx, "ports", ports).unwrap_or_default(),
        subnets: map.optional(cx, "subnets", subnets).unwrap_or_default(),
        leases: map.optional(cx, "leases", leases).unwrap_or_default(),
        docker: map.optional(cx, "docker", docker).unwrap_or(Docker::Auto),
        gateway: map.optional(cx, "gateway", gateway).flatten(),
        inputs: crate::inputs::Inputs::default(),
    })
}

/// A group, by name or number.
fn group(node: &Node, cx: &mut Cx) -> Option<String> {
    crate::yaml::identifier(node, cx).map(|name| name.to_string())
}

fn ports(node: &Node, cx: &mut Cx) -> Option<Ports> {
    let map = Fields::open(node, &PORTS, cx)?;
    let default = Ports::default();
    let ports = Ports {
        range: map.optional(cx, "range", port_range).unwrap_or(default.range),
        exclude: map.any_scalars(cx, "exclude", |node, cx| node.parsed(cx, parse_ports)).unwrap_or_default(),
        allow_ephemeral: map
            .optional(cx, "allow_ephemeral", Node::boolean)
            .unwrap_or(default.allow_ephemeral),
        guard: map.optional(cx, "guard", Node::boolean).unwrap_or(default.guard),
    };
    if !ports.range.clone().any(|port| ports.contains(port)) {
        return cx.refuse(node, "`exclude` leaves no port of `range`");
    }
    Some(ports)
}

fn port_range(node: &Node, cx: &mut Cx) -> Option<RangeInclusive<u16>> {
    node.parsed(cx, |text| {
        let range = parse_ports(text)?;
        if *range.start() < PORT_LEAST {
            return Err(format!(
                "{} holds ports that only root may bind: begin at {PORT_LEAST} or above",
                quoted(text)
            ));
        }
        Ok(range)
    })
}

fn subnets(node: &Node, cx: &mut Cx) -> Option<Subnets> {
    let map = Fields::open(node, &SUBNETS, cx)?;
    let default = Subnets::default();
    let pool = map.get("pool").map(|node| node.parsed(cx, parse_pool));
    let prefix = map.get("prefix").map(|node| node.parsed(cx, parse_prefix));
    let strict_routes = map.optional(cx, "strict_routes", Node::boolean).unwrap_or(default.strict_routes);
    let pool = pool.unwrap_or(Some(default.pool))?;
    let prefix = prefix.unwrap_or(Some(default.prefix))?;
    if prefix < pool.prefix_len() {
        let at = map.get("prefix").unwrap_or(node);
        return cx.refuse(
            at,
            format!(
                "a /{prefix} does not fit into the pool {pool}: write {} to {PREFIX_MAX}",
                pool.prefix_len()
            ),
        );
    }
    Some(Subnets { pool, prefix, strict_routes })
}

fn parse_pool(text: &str) -> Result<Ipv4Net, String> {
    if !text.contains('/') {
        return Err(format!("{} has no prefix length: write a network like 10.252.0.0/16", quoted(text)));
    }
    let pool = match parse_network(text)? {
        IpNet::V4(pool) => pool,
        IpNet::V6(_) => return Err(format!("{} is IPv6: subnets are IPv4", quoted(text))),
    };
    let private = PRIVATE.iter().any(|net| net.parse::<Ipv4Net>().is_ok_and(|net| net.contains(&pool)));
    if !private {
        return Err(format!("{} is not private: take a network within {}", quoted(text), PRIVATE.join(", ")));
    }
    if pool.prefix_len() > PREFIX_MAX {
        return Err(format!("{} holds no subnet with hosts: write /{PREFIX_MAX} or shorter", quoted(text)));
    }
    Ok(pool)
}

fn parse_prefix(text: &str) -> Result<u8, String> {
    let prefix = crate::value::digits(text).and_then(|number| u8::try_from(number).ok());
    prefix.filter(|prefix| (1..=PREFIX_MAX).contains(prefix)).ok_or_else(|| {
        format!("{} is not a prefix length: write a number from the pool's to {PREFIX_MAX}", quoted(text))
    })
}

fn leases(node: &Node, cx: &mut Cx) -> Option<Leases> {
    let map = Fields::open(node, &LEASES, cx)?;
    let default = Leases::default();
    let time = |key, range: RangeInclusive<Duration>, cx: &mut Cx| {
        map.optional(cx, key, |node: &Node, cx: &mut Cx| node.parsed(cx, |text| within(text, &range)))
    };
    let ttl = time("ttl", TTL_LEAST..=TTL_MOST, cx);
    let drain = time("drain", Duration::ZERO..=PAUSE_MOST, cx);
    let grace = time("grace", Duration::ZERO..=PAUSE_MOST, cx);
    Some(Leases {
        ttl: ttl.unwrap_or(default.ttl),
        drain: drain.unwrap_or(default.drain),
        grace: grace.unwrap_or(default.grace),
        on_expire: map.optional(cx, "on_expire", word).unwrap_or(default.on_expire),
    })
}

fn within(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if range.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (show_duration(*range.start()), show_duration(*range.end()));
    Err(format!("{} is out of range: write {least} to {most}", quoted(text)))
}

fn docker(node: &Node, cx: &mut Cx) -> Option<Docker> {
    let map = Fields::open(node, &DOCKER, cx)?;
    let socket = map.optional(cx, "socket", |node, cx| match node.as_text() {
        None if node.is_null() => Some(Docker::Off),
        Some("auto") => Some(Docker::Auto),
        _ => node.path(cx).map(Docker::Socket),
    });
    Some(socket.unwrap_or(Docker::Auto))
}

fn gateway(node: &Node, cx: &mut Cx) -> Option<Option<Gateway>> {
    if node.is_null() {
        return Some(None);
    }
    let map = Fields::open(node, &GATEWAY, cx)?;
    let container = map.optional(cx, "container", container);
    let host = map.optional(cx, "host", Node::boolean);
    let url = map.optional(cx, "url", |node, cx| node.parsed(cx, parse_url));
    let port = map.optional(cx, "proxy_port", |node, cx| node.parsed(cx, parse_port));
    let kinds = ["container", "host", "url"].iter().filter(|key| node.get(key).is_some()).count();
    if kinds != 1 {
        return cx.refuse(node, "write exactly one of `container`, `host` and `url`, or null for no gateway");
    }
    if let (Some(key), true) = (map.key("proxy_port"), url.is_some()) {
        cx.problem(&key.at, "the port stands in `url` already: leave `proxy_port` out");
    }
    if host == Some(false) {
        return cx.refuse(node, "`host: false` names no gateway: write null for none");
    }
    let proxy_port = port.unwrap_or(9099);
    let contained = container.map(|name| Gateway::Container { name, proxy_port });
    let hosted = host.map(|_| Gateway::Host { proxy_port });
    contained.or(hosted).or(url.map(Gateway::Url)).map(Some)
}

/// The name of a container, as Docker allows it.
fn container(node: &Node, cx: &mut Cx) -> Option<String> {
    crate::yaml::identifier(node, cx).map(|name| name.to_string())
}

/// `http://HOST:PORT`, nothing behind it.
fn parse_url(text: &str) -> Result<String, String> {
    let words = || format!("{} is not the URL of a proxy: write one like http://10.0.0.5:9099", quoted(text));
    let authority =
        text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest)).ok_or_else(words)?;
    let (host, port) = authority.rsplit_once(':').ok_or_else(words)?;
    let host = Host::parse(host).map_err(|_| words())?;
    if matches!(host, Host::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED))) {
        return Err(words());
    }
    Ok(format!("http://{host}:{}", parse_port(port)?))
}
