//! Openings in every segmentation, and whole handshakes with what they lead to.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{DuplexStream, duplex};
use tokio_rustls::TlsConnector;

use super::super::accept::AcceptError;
use super::super::{
    ALPN_H2, ALPN_HTTP11, Authority, AuthoritySettings, LeafSettings, Leaves, accept, provider,
};
use super::*;
use crate::identity::BottleKey;
use crate::target::Host;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIMITS: HelloLimits =
    HelloLimits { bytes: 16 * 1024, first_byte: Duration::from_secs(5), complete: Duration::from_secs(10) };

fn leaves() -> Leaves {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings { validity: 3650 * DAY, backdate: DAY };
    let authority =
        Authority::load_or_create(dir.path(), &settings, time::OffsetDateTime::now_utc()).unwrap();
    let settings = LeafSettings { validity: 7 * DAY, backdate: DAY, entries: 16, entries_per_bottle: 16 };
    Leaves::new(authority, settings).unwrap()
}

fn client_config(pem: Option<&str>, alpn: &[&[u8]]) -> ClientConfig {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// The ClientHello of rustls, with as many extra ALPN names as make it larger than one segment.
fn client_hello(name: &'static str, extra_alpn: usize) -> Vec<u8> {
    let mut config = client_config(None, &[ALPN_H2, ALPN_HTTP11]);
    config.alpn_protocols.extend((0..extra_alpn).map(|number| format!("{number:0>200}").into_bytes()));
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Sends `bytes` in pieces of `size` with a pause after each, and holds the connection open until the end.
async fn open_in_pieces(
    bytes: &[u8],
    size: usize,
    prefix: usize,
) -> Result<Opening<DuplexStream>, OpeningError> {
    let (mut client, server) = duplex(64 * 1024);
    let (prefix, rest) = bytes.split_at(prefix);
    let send = async {
        for piece in rest.chunks(size) {
            client.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = send => unreachable!("sending ends with a wait"),
        opening = read_opening(server, Bytes::copy_from_slice(prefix), LIMITS) => opening,
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_hello_is_read_in_any_segmentation() {
    for (hello, name, alpn) in [
        (client_hello("a.test", 0), Some("a.test"), 2),
        (client_hello("127.0.0.1", 0), None, 2),
        (client_hello("b.test", 8), Some("b.test"), 10),
        (client_hello("c.test", 30), Some("c.test"), 32),
    ] {
        for size in [1, 2, 3, 7, 100, hello.len() - 1, hello.len()] {
            for prefix in [0, 1, 6, hello.len() / 2, hello.len()] {
                let opening = open_in_pieces(&hello, size, prefix).await.unwrap();
                let Opening::Tls(found) = opening else { panic!("{opening:?}") };
                assert_eq!(found.server_name().as_deref(), name);
                assert_eq!(found.alpn().len(), alpn);
                assert_eq!(found.into_raw().0, hello, "the bytes are kept as they came");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn http_is_told_from_the_rest_in_any_segmentation() {
    for (text, is_http) in [
        ("GET / HTTP/1.1\r\n\r\n", true),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        ("VERSION-CONTROL / HTTP/1.1\r\n\r\n", true),
        ("SSH-2.0-OpenSSH_9.2p1 Debian\r\n", false),
        (" GET / HTTP/1.1\r\n\r\n", false),
        ("get / HTTP/1.1\r\n\r\n", false),
        ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", false),
        ("\0\0\0\u{1}", false),
    ] {
        for size in [1, 2, 5, text.len()] {
            for prefix in [0, 1, text.len()] {
                let opening = open_in_pieces(text.as_bytes(), size, prefix).await.unwrap();
                let (found, io) = match opening {
                    Opening::Http(io) => (true, io),
                    Opening::Unknown(io) => (false, io),
                    other => panic!("{text:?}: {other:?}"),
                };
                assert_eq!(found, is_http, "{text:?} in pieces of {size}");
                let (replayed, _) = io.into_parts();
                assert!(text.as_bytes().starts_with(&replayed) && !replayed.is_empty());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_replayed_before_the_rest() {
    let (mut client, server) = duplex(1024);
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let opening = read_opening(server, Bytes::new(), LIMITS).await.unwrap();
    let Opening::Http(mut io) = opening else { panic!("{opening:?}") };
    client.write_all(b"Host: a\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    io.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_taken_to_wait_for_the_server() {
    let (_client, server) = duplex(1024);
    let start = Instant::now();
    let opening = read_opening(server, Bytes::new(), LIMITS).await.unwrap();
    assert!(matches!(opening, Opening::Silent(_)), "{opening:?}");
    assert_eq!(start.elapsed(), LIMITS.first_byte);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_meets_one_limit_however_it_drips() {
    let hello = client_hello("a.test", 0);
    for text in [&hello[..], b"GE"] {
        let (mut client, server) = duplex(1024);
        let drip = async {
            for byte in text {
                let _ = client.write_all(&[*byte]).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            std::future::pending::<()>().await;
        };
        let start = Instant::now();
        let result = tokio::select! {
            () = drip => unreachable!("dripping ends with a wait"),
            result = read_opening(server, Bytes::new(), LIMITS) => result,
        };
        assert!(matches!(result, Err(OpeningError::Unfinished(_))), "{result:?}");
        assert!(start.elapsed() <= LIMITS.first_byte + LIMITS.complete);
    }
}

#[tokio::test(start_paused = true)]
async fn size_and_early_ends_are_bounded() {
    let small = HelloLimits { bytes: 300, ..LIMITS };
    let hello = client_hello("a.test", 8);
    let (mut client, server) = duplex(64 * 1024);
    client.write_all(&hello).await.unwrap();
    let result = read_opening(server, Bytes::new(), small).await;
    assert!(matches!(result, Err(OpeningError::TooLarge(300)) | Ok(Opening::Tls(_))), "{result:?}");
    let (mut client, server) = duplex(64 * 1024);
    client.write_all(&hello[..200]).await.unwrap();
    let result = read_opening(server, Bytes::copy_from_slice(&hello[..100]), small).await;
    drop(client);
    assert!(result.is_err(), "{result:?}");
    for cut in [0, 1, hello.len() - 1] {
        let (mut client, server) = duplex(64 * 1024);
        client.write_all(&hello[..cut]).await.unwrap();
        drop(client);
        let result = read_opening(server, Bytes::new(), LIMITS).await;
        assert!(matches!(result, Err(OpeningError::Closed)), "{cut}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_hello_gets_an_alert() {
    let (mut client, server) = duplex(1024);
    client.write_all(&[22, 3, 1, 0, 4, 1, 0, 0, 0]).await.unwrap();
    let result = read_opening(server, Bytes::new(), LIMITS).await;
    assert!(matches!(result, Err(OpeningError::Malformed(_))), "{result:?}");
    drop(result);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[0], 21, "an alert record: {answer:?}");
}

/// A client and the gateway over a pipe; what the client negotiated, or what the gateway says went wrong.
async fn handshake(
    leaves: &Leaves,
    name: &'static str,
    client: ClientConfig,
) -> Result<(Option<Vec<u8>>, Option<Vec<u8>>), AcceptError> {
    let (near, far) = duplex(1024);
    let server = async {
        let Opening::Tls(hello) = read_opening(far, Bytes::new(), LIMITS).await.unwrap() else {
            panic!("no TLS")
        };
        let host = Host::parse(name).unwrap();
        let bottle = BottleKey { name: "a".into(), epoch: 0 };
        let config = leaves.server_config(&bottle, &host).unwrap();
        let mut stream = accept(hello, config, LIMITS.complete, 4096).await?;
        // The client's alert may come as late as the first read.
        let mut text = [0; 5];
        stream.read_exact(&mut text).await.map_err(AcceptError::of)?;
        assert_eq!(&text, b"hello");
        Ok(stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec))
    };
    let client = async {
        let name = ServerName::try_from(name).unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        let alpn = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        // Until the gateway is done, which closes without a word.
        let _ = stream.read(&mut [0]).await;
        io::Result::Ok(alpn)
    };
    let (server, client) = tokio::join!(server, client);
    server.map(|alpn| (alpn, client.expect("the client agrees")))
}

#[tokio::test]
async fn clients_of_every_alpn_and_version_are_served() {
    let leaves = leaves();
    let pem = leaves.authority().pem();
    for (alpn, expected) in [
        (&[ALPN_H2, ALPN_HTTP11][..], Some(ALPN_H2)),
        (&[ALPN_HTTP11, ALPN_H2], Some(ALPN_H2)),
        (&[ALPN_HTTP11], Some(ALPN_HTTP11)),
        (&[ALPN_H2], Some(ALPN_H2)),
        (&[], None),
    ] {
        for name in ["a.test", "127.0.0.1"] {
            let found = handshake(&leaves, name, client_config(Some(&pem), alpn)).await.unwrap();
            assert_eq!(found.0.as_deref(), expected);
            assert_eq!(found.1.as_deref(), expected);
        }
    }
    let mut tls12 = tls12_only(&pem);
    tls12.alpn_protocols = vec![ALPN_H2.to_vec()];
    assert_eq!(handshake(&leaves, "a.test", tls12).await.unwrap().0.as_deref(), Some(ALPN_H2));
}

fn tls12_only(pem: &str) -> ClientConfig {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[tokio::test]
async fn a_client_without_the_ca_is_named_as_such() {
    let leaves = leaves();
    let other = self::leaves().authority().pem();
    let error = handshake(&leaves, "a.test", client_config(Some(&other), &[])).await.unwrap_err();
    assert!(
        matches!(error, AcceptError::Refused(words) if words.contains("does not know the CA")),
        "{error:?}"
    );
}
