//! The routes and addresses of this network namespace, of every table, through rtnetlink.
//!
//! No privilege is needed. Links are not dumped: their attributes are what decoders stumble over on newer kernels.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use futures_util::stream::TryStreamExt;
use ipnet::Ipv4Net;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};

use super::Route;

/// The kernel's table of its own addresses.
const TABLE_LOCAL: u32 = 255;

/// Reads all IPv4 routes and addresses.
pub(crate) async fn dump() -> io::Result<Vec<Route>> {
    let (connection, handle, _) = new_connection()?;
    let task = tokio::spawn(connection);
    let found = read(&handle).await;
    task.abort();
    found.map_err(|error| io::Error::other(format!("cannot read routes: {error}")))
}

async fn read(handle: &Handle) -> Result<Vec<Route>, rtnetlink::Error> {
    let mut found = Vec::new();
    let request = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let mut routes = std::pin::pin!(handle.route().get(request).execute());
    while let Some(message) = routes.try_next().await? {
        found.extend(route_of(&message));
    }
    let mut addresses = std::pin::pin!(handle.address().get().execute());
    while let Some(message) = addresses.try_next().await? {
        found.extend(addresses_of(&message));
    }
    Ok(found)
}

/// A route that a subnet could collide with: multicast, broadcast and local ones come from addresses, which are read as such.
fn route_of(message: &RouteMessage) -> Option<Route> {
    if matches!(
        message.header.kind,
        RouteType::Multicast | RouteType::Broadcast | RouteType::Anycast | RouteType::Local
    ) {
        return None;
    }
    let mut route = Route {
        net: Ipv4Net::new(Ipv4Addr::UNSPECIFIED, message.header.destination_prefix_length).ok()?,
        interface: None,
        table: u32::from(message.header.table),
        address: false,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                route.net = Ipv4Net::new(*address, route.net.prefix_len()).ok()?.trunc();
            }
            RouteAttribute::Oif(index) => route.interface = Some(*index),
            RouteAttribute::Table(table) => route.table = *table,
            _ => {}
        }
    }
    // The default route leads everywhere and collides with nothing.
    (route.net.prefix_len() > 0).then_some(route)
}

/// The on-link network of an address and, on a point-to-point link, the local address, which lies outside it.
fn addresses_of(message: &AddressMessage) -> impl Iterator<Item = Route> {
    let index = message.header.index;
    let prefix = message.header.prefix_len;
    message.attributes.iter().filter_map(move |attribute| {
        let net = match attribute {
            AddressAttribute::Address(IpAddr::V4(address)) => Ipv4Net::new(*address, prefix).ok()?.trunc(),
            AddressAttribute::Local(IpAddr::V4(address)) => Ipv4Net::new(*address, 32).ok()?,
            _ => return None,
        };
        Some(Route { net, interface: Some(index), table: TABLE_LOCAL, address: true })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_loopback_network_is_seen() {
        let routes = dump().await.expect("routes can be read without privilege");
        let loopback = routes.iter().find(|route| route.address && route.net.contains(&Ipv4Addr::LOCALHOST));
        assert!(loopback.is_some_and(|route| route.interface.is_some()));
    }
}
