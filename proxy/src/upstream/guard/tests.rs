//! Every row is one address and what becomes of it.

use super::*;

fn guard(allow: &[&str]) -> Guard {
    Guard::new(AddressSettings {
        allow: allow.iter().map(|network| network.parse().unwrap()).collect(),
        refuse: vec!["10.252.0.0/16".parse().unwrap()],
        listeners: vec!["127.0.0.1:9099".parse().unwrap(), "0.0.0.0:9190".parse().unwrap()],
    })
}

fn check(guard: &Guard, address: &str, expected: Result<(), Refusal>) {
    let address: SocketAddr = match address.parse() {
        Ok(ip) => SocketAddr::new(ip, 443),
        Err(_) => address.parse().unwrap(),
    };
    assert_eq!(guard.check(address), expected, "{address}");
}

#[test]
fn public_addresses_pass() {
    let guard = guard(&[]);
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "11.0.0.0",
        "9.255.255.255",
        "126.255.255.255",
        "128.0.0.0",
        "2606:4700::1111",
        "2a00:1450:4001::200e",
        "2001:200::1",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2003::1",
        "3ffe::1",
    ] {
        check(&guard, address, Ok(()));
    }
}

#[test]
fn what_is_not_public_is_refused() {
    let guard = guard(&[]);
    for address in [
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.9",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "240.0.0.1",
        "255.255.255.254",
        "0.0.0.1",
        "fc00::1",
        "fdff::1",
        "2001:db8::1",
        "3fff::1",
        "2001::1",
        "2001:1::1",
        "2001:2::1",
        "2001:1ff::1",
        "100::1",
        "4000::1",
        "5f00::1",
        "64:ff9b:1::808:808",
        "fec0::1",
    ] {
        let expected = if address == "2001::1" { Err(Refusal::NotUnicast) } else { Err(Refusal::NotPublic) };
        check(&guard, address, expected);
    }
}

#[test]
fn what_never_passes_is_refused_whatever_is_allowed() {
    let open = guard(&["0.0.0.0/0", "::/0", "127.0.0.0/8", "169.254.0.0/16", "10.252.0.0/16", "fd00::/8"]);
    for (address, refusal) in [
        ("169.254.169.254", Refusal::Metadata),
        ("169.254.170.2", Refusal::Metadata),
        ("169.254.170.23", Refusal::Metadata),
        ("100.100.100.200", Refusal::Metadata),
        ("168.63.129.16", Refusal::Metadata),
        ("192.0.0.192", Refusal::Metadata),
        ("fd00:ec2::254", Refusal::Metadata),
        ("fd00:ec2::23", Refusal::Metadata),
        ("fd20:ce::254", Refusal::Metadata),
        ("fd00:c1::a9fe:a9fe", Refusal::Metadata),
        ("fe80::1", Refusal::Metadata),
        ("::ffff:169.254.169.254", Refusal::Metadata),
        ("10.252.0.1", Refusal::Reserved),
        ("10.252.255.255", Refusal::Reserved),
        ("127.0.0.1:9099", Refusal::Loop),
        ("127.0.0.1:9190", Refusal::Loop),
        ("127.9.9.9:9190", Refusal::Loop),
        ("[::1]:9190", Refusal::Loop),
        ("[::ffff:127.0.0.1]:9099", Refusal::Loop),
        ("0.0.0.0", Refusal::NotUnicast),
        ("::", Refusal::NotUnicast),
        ("224.0.0.1", Refusal::NotUnicast),
        ("255.255.255.255", Refusal::NotUnicast),
        ("ff02::1", Refusal::NotUnicast),
        ("::1", Refusal::Loopback),
    ] {
        check(&open, address, Err(refusal));
    }
    check(&open, "10.0.0.1", Ok(()));
    check(&open, "127.0.0.1:443", Ok(()));
    check(&open, "127.0.0.2:9099", Ok(()));
    check(&open, "fd5e:c0de:7a11::1", Ok(()));
}

/// The same IPv4 address in every dress.
#[test]
fn an_address_inside_is_judged_too() {
    let dresses = |hex: &str, high: &str, low: &str| {
        let inverted = |part: &str| format!("{:x}", !u16::from_str_radix(part, 16).unwrap());
        let octets: Vec<&str> = (0..4).map(|at| &hex[2 * at..2 * at + 2]).collect();
        [
            format!("::ffff:{high}:{low}"),
            format!("::{high}:{low}"),
            format!("64:ff9b::{high}:{low}"),
            format!("64:ff9b:1::{high}:{low}"),
            format!("64:ff9b:1:{}{}:00{}:{}00::", octets[0], octets[1], octets[2], octets[3]),
            format!("64:ff9b:1:00{}:00{}:{}{}::", octets[0], octets[1], octets[2], octets[3]),
            format!("::ffff:0:{high}:{low}"),
            format!("64:ff9b:1:0:00{}:{}{}:{}00::", octets[0], octets[1], octets[2], octets[3]),
            format!("2002:{high}:{low}::1"),
            format!("2001:0:{high}:{low}::808:808"),
            format!("2001:0:808:808::{}:{}", inverted(high), inverted(low)),
            format!("2600:1234::5efe:{high}:{low}"),
            format!("2600:1234::200:5efe:{high}:{low}"),
        ]
    };
    let open = guard(&["0.0.0.0/0", "::/0"]);
    for dress in dresses("a9fea9fe", "a9fe", "a9fe") {
        check(&open, &dress, Err(Refusal::Metadata));
    }
    for dress in dresses("0afc0001", "afc", "1") {
        check(&open, &dress, Err(Refusal::Reserved));
    }
    for dress in dresses("7f000001", "7f00", "1") {
        check(&open, &dress, Err(Refusal::Loopback));
    }
    let closed = guard(&[]);
    for dress in dresses("0a000001", "a00", "1") {
        check(&closed, &dress, Err(Refusal::NotPublic));
    }
}

#[test]
fn named_networks_pass() {
    check(&guard(&["10.0.0.0/8"]), "10.1.2.3", Ok(()));
    check(&guard(&["10.1.0.0/16"]), "10.2.0.1", Err(Refusal::NotPublic));
    check(&guard(&["64:ff9b:1::/48"]), "64:ff9b:1::808:808", Ok(()));
    check(&guard(&["64:ff9b:1::/48"]), "64:ff9b:1::a00:1", Err(Refusal::NotPublic));
    check(&guard(&["fd12:3456::/32"]), "fd12:3456::1", Ok(()));
    check(&guard(&["::ffff:0:0/96"]), "10.1.2.3", Err(Refusal::NotPublic));
}

#[test]
fn loopback_passes_only_where_it_is_named() {
    for (allow, passes) in [
        (&["127.0.0.0/8"][..], true),
        (&["127.0.0.1/32"], true),
        (&["0.0.0.0/0"], false),
        (&["126.0.0.0/7"], false),
        (&["127.0.0.2/32"], false),
        (&["::1/128"], false),
        (&[], false),
    ] {
        check(&guard(allow), "127.0.0.1", if passes { Ok(()) } else { Err(Refusal::Loopback) });
    }
    check(&guard(&["::1/128"]), "::1", Ok(()));
    check(&guard(&["::/0"]), "::1", Err(Refusal::Loopback));
}

/// Whatever address this machine has is its own, and the routing table says so.
#[test]
fn the_machine_itself_is_refused() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_err() {
        eprintln!("skipped: this machine has no route and no address");
        return;
    }
    let own = socket.local_addr().unwrap().ip();
    let open = guard(&["0.0.0.0/0"]);
    assert_eq!(open.check(SocketAddr::new(own, 443)), Err(Refusal::Own));
    assert_eq!(open.check(SocketAddr::new(own, 9190)), Err(Refusal::Loop));
}

/// Where leased bottles live is refused while they do, whatever configuration allows and however the address is written.
#[test]
fn networks_of_leased_bottles_are_refused_while_they_are() {
    let guard = guard(&["10.0.0.0/8", "172.16.0.0/12"]);
    check(&guard, "10.250.3.9", Ok(()));
    guard.reserve(vec!["10.250.0.0/16".parse().unwrap(), "172.30.1.0/24".parse().unwrap()]);
    for address in ["10.250.3.9", "::ffff:10.250.3.9", "64:ff9b::afa:309", "172.30.1.1:8080"] {
        check(&guard, address, Err(Refusal::Reserved));
    }
    check(&guard, "172.30.2.1", Ok(()));
    guard.reserve(Vec::new());
    check(&guard, "10.250.3.9", Ok(()));
}
