//! The commands that ask for one thing: acquire, renew, release, list, status, env, health.

use std::collections::BTreeMap;

use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::client::{Client, SocketArgs};
use super::{Failure, print};
use crate::api::types::{
    AcquireRequest, LeaseBody, ListBody, OwnerRequest, PortRequest, RenewRequest, StatusBody, SubnetRequest,
};
use crate::lease::random_hex;
use crate::pool::ports::Proto;

/// What to lease, as flags.
#[derive(Clone, Debug, Args)]
pub(super) struct WishArgs {
    /// A port: NAME, NAME/udp, NAME=NUMBER or NAME/udp=NUMBER; repeatable
    #[arg(long = "port", value_name = "PORT", value_parser = port_of)]
    ports: Vec<PortRequest>,
    /// Lease a subnet
    #[arg(long)]
    subnet: bool,
    /// Its prefix length
    #[arg(long, value_name = "LENGTH")]
    prefix: Option<u8>,
    /// Make a Docker network over it: internal, with the gateway as the only way out
    #[arg(long)]
    network: bool,
    /// The same as --network
    #[arg(long, conflicts_with = "open")]
    internal: bool,
    /// Make a network that is not internal: it publishes ports, and has a way out past the gateway
    #[arg(long)]
    open: bool,
    /// The gateway's policy for the bottle
    #[arg(long)]
    policy: Option<String>,
    /// The session's name
    #[arg(long)]
    session: Option<String>,
    /// Lifetime without a renewal, such as 90s or 2h
    #[arg(long)]
    ttl: Option<String>,
}

impl WishArgs {
    pub(super) fn request(&self, client_key: String, owner: Option<OwnerRequest>) -> AcquireRequest {
        let create_network = self.makes_network();
        let wanted = self.subnet || create_network || self.prefix.is_some();
        let internal = create_network && !self.open;
        let subnet = wanted.then_some(SubnetRequest { prefix: self.prefix, create_network, internal });
        AcquireRequest {
            client_key,
            session: self.session.clone(),
            policy: self.policy.clone(),
            ports: self.ports.clone(),
            subnet,
            owner,
            ttl: self.ttl.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let request = self.request(String::new(), None);
        request.ports.is_empty() && request.subnet.is_none()
    }

    /// The same wish with a Docker network.
    pub(super) fn with_network(self) -> Self {
        Self { network: true, ..self }
    }

    fn makes_network(&self) -> bool {
        self.network || self.internal || self.open
    }

    /// Refuses what no allocator grants, before one is asked.
    ///
    /// A network with a way out past the gateway has to be named as such: no other wish implies it.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let published = self.ports.first().filter(|_| self.makes_network() && !self.open);
        let Some(port) = published else { return Ok(()) };
        let why = format!(
            "--port {}: containers on an internal network publish no ports; leave --port out, or write --open for a network that publishes \
             them and has a way out past the gateway",
            port.name
        );
        Err(Failure::new(Failure::USAGE, why))
    }
}

fn port_of(text: &str) -> Result<PortRequest, String> {
    let (name, number) = match text.split_once('=') {
        Some((name, number)) => {
            (name, Some(number.parse().map_err(|_| format!("{number:?} is no port number"))?))
        }
        None => (text, None),
    };
    let (name, proto) = match name.split_once('/') {
        Some((name, proto)) => {
            (name, Proto::parse(proto).ok_or_else(|| format!("{proto:?} is neither tcp nor udp"))?)
        }
        None => (name, Proto::Tcp),
    };
    Ok(PortRequest { name: name.to_owned(), proto: proto.into(), number })
}

fn label_of(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(super) struct AcquireArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    wish: WishArgs,
    /// Names the request, so that repeating it finds the same lease; by default drawn at random
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// End the lease when this process ends
    #[arg(long, value_name = "PID")]
    owner_pid: Option<i32>,
    /// End the lease when no container with this label runs any more; repeatable
    #[arg(long = "owner-label", value_name = "KEY=VALUE", value_parser = label_of)]
    owner_labels: Vec<(String, String)>,
}

pub(super) async fn acquire(args: AcquireArgs) -> Result<(), Failure> {
    let labels: BTreeMap<String, String> = args.owner_labels.into_iter().collect();
    let owner = (args.owner_pid.is_some() || !labels.is_empty())
        .then_some(OwnerRequest { pid: args.owner_pid, labels });
    args.wish.check()?;
    let key = args.key.unwrap_or_else(random_hex::<16>);
    let lease: Value =
        Client::new(&args.socket).send(Method::POST, "/v1/leases", &args.wish.request(key, owner)).await?;
    print_json(&lease);
    Ok(())
}

#[derive(Debug, Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// The lease
    lease: String,
    /// Its epoch
    epoch: u64,
    /// A new lifetime
    #[arg(long)]
    ttl: Option<String>,
}

pub(super) async fn renew(args: RenewArgs) -> Result<(), Failure> {
    let request = RenewRequest { epoch: args.epoch, ttl: args.ttl };
    let lease: Value = Client::new(&args.socket)
        .send(Method::PUT, &format!("/v1/leases/{}/renew", args.lease), &request)
        .await?;
    print_json(&lease);
    Ok(())
}

#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// The lease
    lease: String,
    /// Release only if this is its epoch
    #[arg(long)]
    epoch: Option<u64>,
}

pub(super) async fn release(args: ReleaseArgs) -> Result<(), Failure> {
    let query = args.epoch.map(|epoch| format!("?epoch={epoch}")).unwrap_or_default();
    Client::new(&args.socket).delete(&format!("/v1/leases/{}{query}", args.lease)).await
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Ended leases too
    #[arg(long)]
    ended: bool,
}

pub(super) async fn list(args: ListArgs) -> Result<(), Failure> {
    let client = Client::new(&args.socket);
    let mut after = String::new();
    loop {
        let page: ListBody = client.get(&format!("/v1/leases?ended={}{after}", args.ended)).await?;
        for lease in &page.leases {
            if args.json {
                print(&format!("{}\n", serde_json::to_string(lease).unwrap_or_default()));
            } else {
                print(&line_of(lease));
            }
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(()),
        }
    }
}

fn line_of(lease: &LeaseBody) -> String {
    let ports: Vec<String> = lease
        .ports
        .iter()
        .map(|port| format!("{}={}/{}", port.name, port.number, Proto::from(port.proto)))
        .collect();
    let subnet = lease.subnet.as_ref().map_or("-", |subnet| &subnet.cidr);
    let ports = if ports.is_empty() { "-".to_owned() } else { ports.join(",") };
    let session: String = lease.session.escape_debug().collect();
    format!("{} {:<12} {:<18} {ports} {} {session}\n", lease.id, lease.state, subnet, lease.expires_at)
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    socket: SocketArgs,
}

pub(super) async fn status(args: StatusArgs) -> Result<(), Failure> {
    let client = Client::new(&args.socket);
    let status: Value = client.get("/v1/status").await?;
    let pools: Value = client.get("/v1/pools").await?;
    print_json(&serde_json::json!({"status": status, "pools": pools}));
    Ok(())
}

#[derive(Debug, Args)]
pub(super) struct EnvArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// The lease
    lease: String,
}

pub(super) async fn env(args: EnvArgs) -> Result<(), Failure> {
    let lease: LeaseBody = Client::new(&args.socket).get(&format!("/v1/leases/{}", args.lease)).await?;
    // The arguments hold the whole set, the lease's own variables included.
    let pairs = lease.docker_args.chunks_exact(2).filter(|pair| pair[0] == "--env");
    let lines: String = pairs.map(|pair| format!("{}\n", pair[1])).collect();
    print(&lines);
    Ok(())
}

pub(super) async fn health(args: SocketArgs) -> Result<(), Failure> {
    let unhealthy = |failure: Failure| Failure::new(Failure::UNHEALTHY, failure.text);
    let status: StatusBody = Client::new(&args).get("/v1/status").await.map_err(unhealthy)?;
    if status.ready {
        return Ok(());
    }
    let why: Vec<String> = status.warnings.into_iter().map(|warning| warning.text).collect();
    let why = if why.is_empty() { "not ready yet".to_owned() } else { why.join("; ") };
    Err(Failure::new(Failure::UNHEALTHY, why))
}

fn print_json(value: &Value) {
    print(&format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_name_a_protocol_and_a_number() {
        let read = |text: &str| port_of(text).map(|port| (port.name, port.proto.into(), port.number));
        assert_eq!(read("web"), Ok(("web".into(), Proto::Tcp, None)));
        assert_eq!(read("dns/udp=20053"), Ok(("dns".into(), Proto::Udp, Some(20053))));
        assert_eq!(read("web=22000"), Ok(("web".into(), Proto::Tcp, Some(22000))));
        assert!(read("web=x").is_err());
        assert!(read("web/sctp").is_err());
    }

    /// Prefix, network, internal.
    type Asked = (Option<u8>, bool, bool);

    /// Which subnet each set of flags asks for.
    #[test]
    fn a_network_is_internal_unless_it_is_called_open() {
        let cases: [(&str, Option<Asked>); 9] = [
            ("", None),
            ("--subnet", Some((None, false, false))),
            ("--prefix 28", Some((Some(28), false, false))),
            ("--network", Some((None, true, true))),
            ("--internal", Some((None, true, true))),
            ("--network --internal --subnet", Some((None, true, true))),
            ("--network --prefix 28", Some((Some(28), true, true))),
            ("--open", Some((None, true, false))),
            ("--network --open", Some((None, true, false))),
        ];
        for (flags, subnet) in cases {
            let request = wish(flags).expect("the flags go together").request(String::new(), None);
            let asked = request.subnet.map(|subnet| (subnet.prefix, subnet.create_network, subnet.internal));
            assert_eq!(asked, subnet, "{flags:?}");
        }
        assert!(wish("--internal --open").is_err(), "they say opposite things");
    }

    #[test]
    fn ports_go_with_an_open_network_or_none() {
        for flags in ["--port web", "--port web --subnet", "--port web --open", "--network"] {
            assert!(wish(flags).expect("it parses").check().is_ok(), "{flags}");
        }
        for flags in ["--port web --network", "--port web --internal"] {
            let failure = wish(flags).expect("it parses").check().expect_err("nothing would be published");
            assert_eq!(failure.code, Failure::USAGE, "{flags}");
            assert!(failure.text.contains("--open") && failure.text.contains("web"), "{}", failure.text);
        }
        let docker_args = wish("--port web").expect("it parses").with_network();
        assert!(docker_args.check().is_err(), "{{docker_args}} asks for an internal network as well");
    }

    fn wish(flags: &str) -> Result<WishArgs, clap::Error> {
        #[derive(Debug, clap::Parser)]
        struct Flags {
            #[command(flatten)]
            wish: WishArgs,
        }
        let words = std::iter::once("test").chain(flags.split_ascii_whitespace());
        <Flags as clap::Parser>::try_parse_from(words).map(|flags| flags.wish)
    }
}
