//! Networks and addresses: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::problem::quoted;

/// Reads a network; a single address is the network of that address alone.
///
/// # Errors
/// In words; also when bits beyond the prefix are set, since two readers would see two networks in that.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let words = || format!("{} is not a network: write one like 10.0.0.0/8 or 2001:db8::/32", quoted(text));
    let Some((address, prefix)) = text.split_once('/') else {
        return refuse_mapped(text.parse().map_err(|_| words())?).map(IpNet::from);
    };
    // The address is read apart: the library takes `010` for 10, where others read it as octal.
    let address: IpAddr = address.parse().map_err(|_| words())?;
    let prefix = super::digits(prefix).and_then(|prefix| u8::try_from(prefix).ok());
    let network = prefix.and_then(|prefix| IpNet::new(address, prefix).ok()).ok_or_else(words)?;
    if network.addr() != network.network() {
        return Err(format!("{} has bits set beyond its prefix: write {}", quoted(text), network.trunc()));
    }
    refuse_mapped(network.addr()).map(|_| network)
}

/// Reads one address.
///
/// # Errors
/// In words.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse().map_err(|_| {
        format!("{} is not an address: write one like 192.0.2.1 or 2001:db8::1", quoted(text))
    })?;
    refuse_mapped(address)
}

/// Reads an address with a port.
///
/// # Errors
/// In words.
pub(crate) fn parse_socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{} is not an address with a port: write one like 127.0.0.1:9099 or [::1]:9099", quoted(text))
    })
}

/// An IPv4 address has one form here, or a rule for it would miss the other.
fn refuse_mapped(address: IpAddr) -> Result<IpAddr, String> {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => Err(format!("`{address}` is an IPv4 address inside IPv6: write {v4}")),
            None => Ok(address),
        },
        IpAddr::V4(_) => Ok(address),
    }
}
