//! The guard on addresses: what a bottle may reach through the gateway, whatever name led there.
//!
//! Public unicast addresses pass. Others pass only where configuration names their network. Some never pass: cloud
//! metadata and all that is link-local, the networks of other bottles, this machine (and the host around it, where it is
//! a container), the gateway's own listeners.
//! An address that holds an IPv4 address inside (mapped, NAT64, 6to4, Teredo, ISATAP) is judged by that one as well,
//! for that is where its packets end up.
//!
//! Place in the path: between the resolver and the dial, on the very address that is then dialled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{PoisonError, RwLock};

use ipnet::IpNet;

mod own;
mod ranges;

use own::is_own;

/// What may be reached beyond public addresses, and what may not be reached at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSettings {
    /// Networks beyond the public ones. Loopback counts only if a network within it stands here.
    pub(crate) allow: Vec<IpNet>,
    /// Networks that are never reached, whatever `allow` says: where bottles live.
    pub(crate) refuse: Vec<IpNet>,
    /// The gateway's own listeners: dialling them would be a loop.
    pub(crate) listeners: Vec<SocketAddr>,
}

/// Why an address may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The metadata service of a cloud, or a link-local address, where they live.
    Metadata,
    /// In a network that is always refused, such as the one that bottles are given.
    Reserved,
    /// A listener of the gateway itself.
    Loop,
    /// An address of the machine that the gateway runs on.
    Own,
    /// Loopback, which configuration does not name.
    Loopback,
    /// No unicast address: unspecified, multicast, broadcast.
    NotUnicast,
    /// Not public, and not in a network that configuration names.
    NotPublic,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "it is link-local or a cloud's metadata service, which is never reached",
            Self::Reserved => {
                "it lies in a network of bottles, or in one that upstream.addresses.refuse names"
            }
            Self::Loop => "the gateway itself listens there",
            Self::Own => "it belongs to the machine that the gateway runs on",
            Self::Loopback => "it is loopback, which upstream.addresses.allow does not name",
            Self::NotUnicast => "it is no address of one host",
            Self::NotPublic => "it is not public, and upstream.addresses.allow does not name it",
        })
    }
}

/// Judges addresses.
#[derive(Debug)]
pub(crate) struct Guard {
    settings: AddressSettings,
    loopback: Vec<IpNet>,
    /// Where leased bottles live, and may live: refused like `refuse`, and changed while the gateway runs.
    leased: RwLock<Vec<IpNet>>,
    in_container: bool,
}

impl Guard {
    pub(crate) fn new(settings: AddressSettings) -> Self {
        let loopback =
            settings.allow.iter().filter(|network| ranges::is_loopback(network)).copied().collect();
        Self { settings, loopback, leased: RwLock::default(), in_container: own::in_container() }
    }

    /// Makes these the networks of leased bottles, which are never reached: one bottle must not get at another through the gateway.
    pub(crate) fn reserve(&self, networks: Vec<IpNet>) {
        *self.leased.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }

    fn is_reserved(&self, ip: IpAddr) -> bool {
        contains(&self.settings.refuse, ip)
            || contains(&self.leased.read().unwrap_or_else(PoisonError::into_inner), ip)
    }

    /// Whether `address` may be dialled.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), Refusal> {
        let outer = address.ip().to_canonical();
        if self.is_listener(SocketAddr::new(outer, address.port())) {
            return Err(Refusal::Loop);
        }
        for inner in ranges::embedded(outer).into_iter().flatten() {
            self.check_ip(IpAddr::V4(inner))?;
        }
        self.check_ip(outer)
    }

    fn check_ip(&self, ip: IpAddr) -> Result<(), Refusal> {
        if ranges::is_metadata(ip) {
            return Err(Refusal::Metadata);
        }
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err(Refusal::NotUnicast);
        }
        if self.is_reserved(ip) {
            return Err(Refusal::Reserved);
        }
        if ip.is_loopback() {
            return if contains(&self.loopback, ip) { Ok(()) } else { Err(Refusal::Loopback) };
        }
        let allowed = contains(&self.settings.allow, ip);
        if !allowed && !ranges::is_public(ip) {
            return Err(Refusal::NotPublic);
        }
        if is_own(ip) || self.in_container && own::is_router(ip) { Err(Refusal::Own) } else { Ok(()) }
    }

    /// A listener on all addresses listens on every address of this machine.
    fn is_listener(&self, address: SocketAddr) -> bool {
        self.settings.listeners.iter().any(|listener| {
            let wildcard = listener.ip().is_unspecified();
            listener.port() == address.port()
                && (listener.ip().to_canonical() == address.ip()
                    || wildcard && (address.ip().is_loopback() || is_own(address.ip())))
        })
    }
}

fn contains(networks: &[IpNet], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&ip))
}

#[cfg(test)]
mod tests;
