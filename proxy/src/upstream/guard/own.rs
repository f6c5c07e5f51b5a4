//! This machine's own addresses: those at which it answers itself and, from inside a container, those of the host around it.
//!
//! Asked anew each time: addresses and routes come and go while the gateway runs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

/// Files that container engines put into every container.
const MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// A route's flag that says it leads through a gateway (`RTF_GATEWAY`).
const THROUGH_GATEWAY: u32 = 2;

/// Whether this process runs in a container, as far as the engine left its mark.
pub(super) fn in_container() -> bool {
    MARKS.iter().any(|mark| Path::new(mark).exists())
}

/// Whether this machine would answer at `ip` itself. The routing table knows: for an address of its own it chooses
/// that address as the source. Connecting a UDP socket looks it up and sends nothing. Asked each time, for addresses
/// come and go while the gateway runs.
pub(super) fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    /// Any port will do, as nothing is sent: that of the discard service.
    const PORT: u16 = 9;
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, PORT))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == ip)
}

/// Whether a route of this machine leads through `ip`. In a container that is the host: its end of the bridge, where all services
/// listen that listen on every address.
pub(super) fn is_router(ip: IpAddr) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => routers_v4(&read("/proc/net/route")).any(|router| router == ip),
        IpAddr::V6(ip) => routers_v6(&read("/proc/net/ipv6_route")).any(|router| router == ip),
    }
}

/// `Iface Destination Gateway Flags …`, numbers in hexadecimal, addresses as the machine's own words.
fn routers_v4(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(2).map(|field| u32::from_str_radix(field, 16).ok());
        let (gateway, flags) = (fields.next()??, fields.next()??);
        (flags & THROUGH_GATEWAY != 0).then(|| Ipv4Addr::from(gateway.to_ne_bytes()))
    })
}

/// `destination length source length next-hop metric references uses flags device`, all in hexadecimal.
fn routers_v6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
        let hop = u128::from_str_radix(fields.get(4)?, 16).ok()?;
        (flags & THROUGH_GATEWAY != 0).then(|| Ipv6Addr::from(hop))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn routers_are_read_from_both_tables() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\n\
                  eth0\t00000000\t010014AC\t0003\t0\neth0\t000014AC\t00000000\t0001\t0\n";
        assert_eq!(routers_v4(v4).collect::<Vec<_>>(), ["172.20.0.1".parse::<Ipv4Addr>().unwrap()]);
        let v6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                  fd000000000000000000000000000001 00000400 00000001 00000000 00000003 eth0\n\
                  fd000000000000000000000000000000 40 00000000000000000000000000000000 00 \
                  00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n";
        assert_eq!(routers_v6(v6).collect::<Vec<_>>(), ["fd00::1".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(routers_v4("").count() + routers_v6("x y").count(), 0);
    }
}
