//! A name server on loopback, and what is asked of it.

use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{RData, Record};
use hickory_resolver::proto::serialize::binary::{BinDecodable as _, BinEncodable as _};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

use super::*;

/// What the server makes of a question.
enum Reply {
    Addresses(&'static [&'static str]),
    Code(ResponseCode),
    Silence,
}

type Questions = Arc<Mutex<Vec<(String, RecordType)>>>;

/// A name server that answers by `reply`; the questions it was asked.
async fn server_with(reply: impl Fn(&str, RecordType) -> Reply + Send + 'static) -> (SocketAddr, Questions) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let questions = Questions::default();
    let asked = Arc::clone(&questions);
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            let request = Message::from_bytes(&buffer[..length]).unwrap();
            let query = request.queries[0].clone();
            let (name, kind) = (query.name().to_ascii(), query.query_type());
            asked.lock().unwrap().push((name.clone(), kind));
            let mut response =
                Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
            response.metadata.recursion_available = true;
            response.add_query(query.clone());
            match reply(&name, kind) {
                Reply::Silence => continue,
                Reply::Code(code) => response.metadata.response_code = code,
                Reply::Addresses(addresses) => {
                    let addresses = addresses.iter().map(|address| match address.parse().unwrap() {
                        IpAddr::V4(ip) => RData::A(A(ip)),
                        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
                    });
                    response.add_answers(
                        addresses.map(|data| Record::from_rdata(query.name().clone(), 60, data)),
                    );
                }
            }
            socket.send_to(&response.to_bytes().unwrap(), peer).await.unwrap();
        }
    });
    (address, questions)
}

fn resolver(address: SocketAddr) -> Resolver {
    let settings = ResolverSettings {
        name_servers: NameServers::Addresses(vec![address]),
        fixed: HashMap::from([("fixed.test".into(), vec![IpAddr::from([192, 0, 2, 1])])]),
        timeout: Duration::from_secs(2),
        cache_entries: 16,
        cache_ttl: Duration::from_millis(1500),
    };
    Resolver::new(settings).unwrap()
}

fn show(result: &Result<Vec<IpAddr>, LookupError>) -> String {
    match result {
        Ok(addresses) => addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "),
        Err(LookupError::Unknown) => "unknown".into(),
        Err(LookupError::Timeout(_)) => "timeout".into(),
        Err(LookupError::Failed(_)) => "failed".into(),
    }
}

#[tokio::test]
async fn both_families_are_asked_and_failures_told_apart() {
    let (address, questions) = server_with(|name, kind| match (name, kind) {
        ("both.test.", RecordType::A) => Reply::Addresses(&["192.0.2.1", "192.0.2.2"]),
        ("both.test.", RecordType::AAAA) => Reply::Addresses(&["2001:db8::1"]),
        ("four.test.", RecordType::A) => Reply::Addresses(&["192.0.2.4"]),
        ("half.test.", RecordType::A) => Reply::Addresses(&["192.0.2.5"]),
        ("half.test.", _) => Reply::Code(ResponseCode::ServFail),
        ("four.test." | "none.test.", _) => Reply::Addresses(&[]),
        ("fail.test.", _) => Reply::Code(ResponseCode::ServFail),
        _ => Reply::Code(ResponseCode::NXDomain),
    })
    .await;
    let resolver = resolver(address);
    for (name, expected) in [
        ("fixed.test", "192.0.2.1"),
        ("both.test", "2001:db8::1 192.0.2.1 192.0.2.2"),
        ("four.test", "192.0.2.4"),
        ("half.test", "192.0.2.5"),
        ("none.test", "unknown"),
        ("missing.test", "unknown"),
        ("fail.test", "failed"),
        ("single", "unknown"),
    ] {
        assert_eq!(show(&resolver.lookup(name).await), expected, "{name}");
    }
    let questions = questions.lock().unwrap();
    assert!(
        questions.iter().all(|(name, _)| name == "single." || name.matches('.').count() == 2),
        "{questions:?}"
    );
    assert!(!questions.iter().any(|(name, _)| name.starts_with("fixed")), "{questions:?}");
    assert_eq!(questions.iter().filter(|(name, _)| name == "both.test.").count(), 2);
}

/// A name server that never answers for one family does not hold up the other.
#[tokio::test]
async fn a_family_without_an_answer_does_not_hold_up_the_other() {
    for silent in [RecordType::A, RecordType::AAAA] {
        let (address, _) = server_with(move |_, kind| match kind {
            kind if kind == silent => Reply::Silence,
            RecordType::A => Reply::Addresses(&["192.0.2.1"]),
            _ => Reply::Addresses(&["2001:db8::1"]),
        })
        .await;
        let start = Instant::now();
        let found = resolver(address).lookup("a.test").await.unwrap();
        assert_eq!(found.len(), 1);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_silent_name_server_meets_the_limit() {
    let (address, _) = server_with(|_, _| Reply::Silence).await;
    let start = Instant::now();
    assert_eq!(show(&resolver(address).lookup("a.test").await), "timeout");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// Answers are kept, but no longer than configured, whatever they say themselves.
#[tokio::test]
async fn answers_are_kept_for_a_bounded_time() {
    let (address, questions) = server_with(|_, kind| match kind {
        RecordType::A => Reply::Addresses(&["192.0.2.1"]),
        _ => Reply::Addresses(&[]),
    })
    .await;
    let resolver = resolver(address);
    let count = || questions.lock().unwrap().iter().filter(|(_, kind)| *kind == RecordType::A).count();
    for _ in 0..10 {
        resolver.lookup("a.test").await.unwrap();
    }
    assert_eq!(count(), 1);
    sleep(Duration::from_secs(3)).await;
    resolver.lookup("a.test").await.unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn dockers_name_server_is_never_asked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let listed = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        servers(&NameServers::File(file.path().to_owned())).map_err(|error| error.to_string())
    };
    let show =
        |servers: Vec<SocketAddr>| servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ");
    let text = "# written by a tool\nsearch example.org\nnameserver 127.0.0.11\nnameserver 192.0.2.53\n\
                nameserver 2001:db8::53\noptions ndots:5\n";
    assert_eq!(listed(text).map(show), Ok("192.0.2.53:53 [2001:db8::53]:53".to_owned()));
    let error = listed("nameserver 127.0.0.11\n").unwrap_err();
    assert!(error.contains("lists only Docker's embedded name server"), "{error}");
    assert!(error.contains("upstream.resolvers"), "{error}");
    let error = listed("search example.org\n").unwrap_err();
    assert!(error.contains("lists no name server"), "{error}");
    let docker = vec!["127.0.0.11:53".parse().unwrap(), "[::ffff:127.0.0.11]:53".parse().unwrap()];
    let error = servers(&NameServers::Addresses(docker)).unwrap_err().to_string();
    assert!(error.contains("upstream.resolvers lists only Docker's"), "{error}");
    let error = servers(&NameServers::File("/nowhere/resolv.conf".into())).unwrap_err().to_string();
    assert!(error.contains("cannot read /nowhere/resolv.conf"), "{error}");
}
