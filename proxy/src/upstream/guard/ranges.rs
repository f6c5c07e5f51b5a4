//! The special addresses of the Internet, after IANA's registries of special-purpose addresses (RFC 6890 and its
//! successors), and the places where an IPv6 address holds an IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// IPv4 networks that are not global unicast.
const NOT_PUBLIC_V4: [Ipv4Net; 14] = [
    v4(0, 0, 0, 0, 8),       // this network (RFC 791)
    v4(10, 0, 0, 0, 8),      // private (RFC 1918)
    v4(100, 64, 0, 0, 10),   // shared between a carrier and its customers (RFC 6598)
    v4(127, 0, 0, 0, 8),     // loopback (RFC 1122)
    v4(169, 254, 0, 0, 16),  // link-local (RFC 3927)
    v4(172, 16, 0, 0, 12),   // private (RFC 1918)
    v4(192, 0, 0, 0, 24),    // protocol assignments (RFC 6890)
    v4(192, 0, 2, 0, 24),    // documentation (RFC 5737)
    v4(192, 88, 99, 0, 24),  // 6to4 relays, deprecated (RFC 7526)
    v4(192, 168, 0, 0, 16),  // private (RFC 1918)
    v4(198, 18, 0, 0, 15),   // benchmarks (RFC 2544)
    v4(198, 51, 100, 0, 24), // documentation (RFC 5737)
    v4(203, 0, 113, 0, 24),  // documentation (RFC 5737)
    v4(224, 0, 0, 0, 3),     // multicast (RFC 1112) and reserved (RFC 1112)
];

/// The block from which global unicast IPv6 addresses are assigned (RFC 4291, RFC 3513).
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 0, 3);
/// NAT64 by the well-known prefix: as public as the IPv4 address inside, which is judged on its own (RFC 6052).
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);
/// NAT64 by a prefix of one's own (RFC 8215).
const LOCAL_NAT64: Ipv6Net = v6(0x64, 0xff9b, 1, 48);
/// What is not global unicast within that block.
const NOT_PUBLIC_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 0, 23), // protocol assignments, Teredo and benchmarks among them (RFC 2928)
    v6(0x2001, 0xdb8, 0, 32), // documentation (RFC 3849)
    v6(0x2002, 0, 0, 16), // 6to4 (RFC 3056)
    v6(0x3fff, 0, 0, 20), // documentation (RFC 9637)
];

/// Where clouds answer for a machine's metadata and credentials, beyond the link-local networks.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba Cloud
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle Cloud
];
/// The same for IPv6: a few addresses of AWS, Google Cloud and Oracle Cloud, in private space.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !NOT_PUBLIC_V4.iter().any(|network| network.contains(&ip)),
        IpAddr::V6(ip) => {
            NAT64.contains(&ip)
                || PUBLIC_V6.contains(&ip) && !NOT_PUBLIC_V6.iter().any(|network| network.contains(&ip))
        }
    }
}

/// Metadata services, and link-local altogether: most of them live there.
pub(super) fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || METADATA_V4.contains(&ip),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || METADATA_V6.contains(&ip),
    }
}

/// Whether a network lies within loopback.
pub(super) fn is_loopback(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => v4(127, 0, 0, 0, 8).contains(network),
        IpNet::V6(network) => network.prefix_len() == 128 && network.addr().is_loopback(),
    }
}

/// The IPv4 addresses that an address may be translated or tunnelled to. An IPv4-mapped address has been unwrapped
/// before.
pub(super) fn embedded(ip: IpAddr) -> [Option<Ipv4Addr>; 4] {
    let IpAddr::V6(ip) = ip else { return [None; 4] };
    let segments = ip.segments();
    let pair = |at: usize| join(segments[at], segments[at + 1]);
    let last = pair(6);
    if LOCAL_NAT64.contains(&ip) {
        // The operator's prefix has one of these lengths (RFC 6052 §2.2): /48, /56, /64, /96. What a wrong one
        // reads is mostly zeros.
        let readings = [around_octet_8(&ip, 6), around_octet_8(&ip, 7), around_octet_8(&ip, 9), last];
        return readings.map(|inner| (inner.octets()[0] != 0).then_some(inner));
    }
    let in_interface_id = matches!(segments[4], 0 | 0x0200) && segments[5] == 0x5efe;
    let inner = match segments {
        [0x2002, ..] => Some(pair(1)),
        [0x2001, 0, ..] => return [Some(pair(2)), Some(Ipv4Addr::from(!u32::from(last))), None, None],
        [0, 0, 0, 0, 0, 0, ..] if !ip.is_loopback() && !ip.is_unspecified() => Some(last),
        [0, 0, 0, 0, 0xffff, 0, ..] => Some(last),
        _ if NAT64.contains(&ip) || in_interface_id => Some(last),
        _ => None,
    };
    [inner, None, None, None]
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// Four octets from `start` on; octet 8 is skipped, as it is always zero.
fn around_octet_8(ip: &Ipv6Addr, start: usize) -> Ipv4Addr {
    let octets = ip.octets();
    let mut inner = [0; 4];
    let positions = (start..).filter(|&at| at != 8);
    for (to, at) in inner.iter_mut().zip(positions) {
        *to = octets[at];
    }
    Ipv4Addr::from(inner)
}
