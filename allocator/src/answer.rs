//! How a lease is used: the proxy's address, the variables for its containers, and the arguments for `docker run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::engine::{LABEL_EPOCH, LABEL_LEASE, LABEL_SESSION};
use crate::lease::{Lease, SubnetGrant};
use crate::settings::GatewayChoice;

/// Where a container finds the CA folder.
pub(crate) const CA_IN_CONTAINER: &str = "/etc/decant/ca";
/// The file in it with the public roots and the gateway's CA.
pub(crate) const CA_BUNDLE: &str = "bundle.pem";
/// The file in it with the gateway's CA alone.
pub(crate) const CA_CERTIFICATE: &str = "ca.pem";

/// The gateway's CA as leases mount it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ca {
    /// The folder on this host.
    pub(crate) dir: PathBuf,
    /// Of the bundle, in hexadecimal.
    pub(crate) sha256: String,
}

/// The address at which containers of a lease reach the gateway, where it has one inside the subnet.
pub(crate) fn gateway_address(gateway: &GatewayChoice, subnet: &SubnetGrant) -> Option<std::net::Ipv4Addr> {
    match gateway {
        GatewayChoice::Container { .. } => Some(subnet.reserved()),
        GatewayChoice::Host { .. } | GatewayChoice::None => Some(subnet.bridge()),
        GatewayChoice::Url(_) => None,
    }
}

/// The proxy's URL for a lease; none without a gateway or a subnet.
pub(crate) fn proxy_url(gateway: &GatewayChoice, lease: &Lease) -> Option<String> {
    let subnet = lease.subnet.as_ref()?;
    match gateway {
        GatewayChoice::None => None,
        GatewayChoice::Container { proxy_port, .. } => {
            Some(format!("http://{}:{proxy_port}", subnet.reserved()))
        }
        GatewayChoice::Host { proxy_port } => Some(format!("http://{}:{proxy_port}", subnet.bridge())),
        GatewayChoice::Url(url) => Some(url.clone()),
    }
}

/// The variables for a container that goes out through the gateway.
pub(crate) fn proxy_env(url: &str, lease: &Lease, ca: Option<&Ca>) -> BTreeMap<String, String> {
    // What stays inside the lease's own network does not go through the gateway.
    let direct: Vec<String> = lease.subnet.iter().map(|subnet| subnet.net.to_string()).collect();
    let mut env = decant_config::proxy_variables(url, &direct);
    if ca.is_some() {
        let file = |name: &str| Path::new(CA_IN_CONTAINER).join(name);
        env.extend(decant_config::trust_variables(&file(CA_BUNDLE), &file(CA_CERTIFICATE)));
    }
    env
}

/// The variables that tell a program about the lease itself.
pub(crate) fn lease_env(lease: &Lease, proxy: Option<&str>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        ("DECANT_LEASE".to_owned(), lease.id.to_string()),
        ("DECANT_EPOCH".to_owned(), lease.epoch.to_string()),
        ("DECANT_SESSION".to_owned(), lease.session.clone()),
    ]);
    for port in &lease.ports {
        env.insert(
            format!("DECANT_PORT_{}", port.name.to_uppercase().replace('-', "_")),
            port.number.to_string(),
        );
    }
    if let Some(subnet) = &lease.subnet {
        env.insert("DECANT_SUBNET".to_owned(), subnet.net.to_string());
        if let Some(network) = &subnet.network {
            env.insert("DECANT_NETWORK".to_owned(), network.name.clone());
        }
    }
    if let Some(url) = proxy {
        env.insert("DECANT_PROXY".to_owned(), url.to_owned());
    }
    env
}

/// Arguments for `docker run` that put a container into the lease.
pub(crate) fn docker_args(
    lease: &Lease,
    proxy: Option<&str>,
    env: &BTreeMap<String, String>,
    ca: Option<&Ca>,
) -> Vec<String> {
    let mut args = Vec::new();
    let mut push = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    if let Some(network) = lease.network() {
        push("--network", network.name.clone());
        if proxy.is_some() {
            // Names are looked up by the gateway. The engine's own resolver would ask the host's on the container's behalf.
            push("--dns", "127.0.0.1".to_owned());
            // Raw sockets can send what the network's rules do not look for.
            push("--cap-drop", "NET_RAW".to_owned());
            push("--cap-drop", "NET_ADMIN".to_owned());
            push("--security-opt", "no-new-privileges".to_owned());
        }
    }
    push("--label", format!("{LABEL_LEASE}={}", lease.id));
    push("--label", format!("{LABEL_SESSION}={}", lease.session));
    push("--label", format!("{LABEL_EPOCH}={}", lease.epoch));
    for (name, value) in env.iter().chain(&lease_env(lease, proxy)) {
        push("--env", format!("{name}={value}"));
    }
    if let Some(ca) = ca.filter(|_| proxy.is_some()) {
        // The folder, not its files: a mounted file keeps its old content when the CA is replaced.
        push("--mount", format!("type=bind,src={},dst={CA_IN_CONTAINER},readonly", ca.dir.display()));
    }
    args
}
