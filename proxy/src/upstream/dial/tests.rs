//! Dialling over real sockets. Addresses of 127.0.0.0/8 stand for the hosts of a name.

use std::collections::HashMap;

use tokio::net::TcpListener;

use super::*;
use crate::target::Scheme;
use crate::upstream::guard::{AddressSettings, Refusal};
use crate::upstream::resolver::{NameServers, ResolverSettings};

const DELAY: Duration = Duration::from_millis(100);

fn dialler(addresses: &[&str]) -> Dialler {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let resolver = Resolver::new(ResolverSettings {
        name_servers: NameServers::Addresses(vec!["127.0.0.1:1".parse().unwrap()]),
        fixed: HashMap::from([("a.test".into(), addresses)]),
        timeout: Duration::from_millis(500),
        cache_entries: 1,
        cache_ttl: Duration::from_secs(1),
    });
    let allow = ["127.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"];
    Dialler {
        resolver: resolver.unwrap(),
        guard: Guard::new(AddressSettings {
            allow: allow.iter().map(|network| network.parse().unwrap()).collect(),
            ..Default::default()
        }),
        settings: DialSettings {
            timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(2),
            attempt_delay: DELAY,
            addresses: 8,
        },
    }
}

fn target(port: u16) -> Target {
    Target { scheme: Scheme::Http, ..Target::from_authority(&format!("a.test:{port}")).unwrap() }
}

/// A listener whose queue is full: connecting to it goes unanswered, as to a host that drops packets.
struct Blackhole {
    _listener: socket2::Socket,
    _queued: Vec<std::net::TcpStream>,
}

fn blackhole(address: SocketAddr) -> Blackhole {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.set_reuse_address(true).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&address, DELAY);
    let queued = (0..4).map_while(|_| connect().ok()).collect();
    Blackhole { _listener: listener, _queued: queued }
}

async fn listener(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn a_connection_is_ready_for_small_writes_and_watched() {
    let (_listener, port) = listener("127.0.0.1").await;
    let stream = dialler(&["127.0.0.1"]).dial(&target(port)).await.unwrap();
    assert!(stream.nodelay().unwrap());
    assert!(SockRef::from(&stream).keepalive().unwrap());
}

/// Addresses that refuse, and such as do not answer, cost no more than their head start.
#[tokio::test]
async fn dead_addresses_are_passed_over() {
    let (_listener, port) = listener("127.0.0.9").await;
    let dead: Vec<_> =
        (2..6).map(|last| blackhole(SocketAddr::new(IpAddr::from([127, 0, 0, last]), port))).collect();
    for (addresses, longest) in [
        (&["127.0.0.7", "127.0.0.8", "127.0.0.9"][..], Duration::ZERO),
        (&["127.0.0.2", "127.0.0.9"], DELAY),
        (&["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.9"], 4 * DELAY),
    ] {
        let start = Instant::now();
        let stream = dialler(addresses).dial(&target(port)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 9]));
        assert!(start.elapsed() >= longest, "{addresses:?}: {:?}", start.elapsed());
        assert!(start.elapsed() < longest + Duration::from_secs(1), "{addresses:?}: {:?}", start.elapsed());
    }
    drop(dead);
}

#[tokio::test]
async fn failures_are_named() {
    let port = listener("127.0.0.1").await.1;
    let refused = dialler(&["127.0.0.1", "127.0.0.2"]).dial(&target(port)).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("a.test:{port}: it refused the connection"));
    assert_eq!(refused.proxy_error(), "connection_refused");

    let (listener, port) = listener("127.0.0.3").await;
    drop(listener);
    let dead = blackhole(SocketAddr::new(IpAddr::from([127, 0, 0, 3]), port));
    let mut dialler = dialler(&["127.0.0.3"]);
    dialler.settings.timeout = Duration::from_millis(500);
    let timeout = dialler.dial(&target(port)).await.unwrap_err();
    assert_eq!(timeout.to_string(), format!("a.test:{port}: no connection within 0.5 s"));
    assert!(timeout.is_timeout());
    dialler.settings.timeout = Duration::from_secs(5);
    dialler.settings.attempt_timeout = Duration::from_millis(200);
    let timeout = dialler.dial(&target(port)).await.unwrap_err();
    assert!(timeout.is_timeout() && timeout.to_string().contains("0.2 s"), "{timeout}");
    drop(dead);
}

#[tokio::test]
async fn no_address_is_dialled_that_the_guard_refuses() {
    let (listener, port) = listener("127.0.0.1").await;
    let open = dialler(&["10.0.0.1", "127.0.0.1", "169.254.169.254"]);
    let stream = open.dial(&target(port)).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    for (addresses, refused) in [
        (&["169.254.169.254", "10.0.0.1"][..], Refusal::Metadata),
        (&["10.0.0.1"], Refusal::NotPublic),
        (&["::ffff:169.254.169.254"], Refusal::Metadata),
        (&["::1"], Refusal::Loopback),
    ] {
        let error = dialler(addresses).dial(&target(port)).await.unwrap_err();
        let matches =
            matches!(error.kind(), UpstreamErrorKind::AddressRefused(_, found) if *found == refused);
        assert!(matches, "{addresses:?}: {error:?}");
        assert_eq!(error.proxy_error(), "destination_ip_prohibited");
    }
    let literal = Target::from_authority(&format!("0xa9fea9fe:{port}")).unwrap();
    let error = open.dial(&literal).await.unwrap_err();
    assert!(error.to_string().contains("169.254.169.254 is refused"), "{error}");
}

/// No more addresses are tried than may be, and none is one that was refused.
#[tokio::test]
async fn a_name_with_very_many_addresses_is_bounded() {
    let (_listener, port) = listener("127.0.0.1").await;
    let many: Vec<String> = (1..60).map(|last| format!("127.1.0.{last}")).collect();
    let mut all: Vec<&str> = many.iter().map(String::as_str).collect();
    all.push("127.0.0.1");
    let error = dialler(&all).dial(&target(port)).await.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::ConnectionRefused), "{error:?}");
}

#[test]
fn families_take_turns() {
    let rows: [(&[&str], &[&str]); 4] = [
        (&["::1", "::2", "::3", "1.1.1.1", "2.2.2.2"], &["::1", "1.1.1.1", "::2", "2.2.2.2", "::3"]),
        (&["1.1.1.1", "2.2.2.2", "::1"], &["1.1.1.1", "::1", "2.2.2.2"]),
        (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1", "2.2.2.2"]),
        (&[], &[]),
    ];
    let parse = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
    for (given, expected) in rows {
        assert_eq!(interleave(parse(given)), parse(expected));
    }
}
