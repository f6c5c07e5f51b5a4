//! Upstreams that must not be trusted, and why they are not, in words.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::fixture::*;
use crate::tls::provider;
use crate::upstream::{UpstreamErrorKind, UpstreamSettings};

async fn error_of(
    settings: UpstreamSettings,
    config: ServerConfig,
    host: &str,
) -> crate::upstream::UpstreamError {
    let (address, _) = origin(config, echo).await;
    let target = https(host, address);
    let error = send(&upstreams(settings), &target, get("/")).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("{host}:{}: ", address.port())), "{error}");
    error
}

#[tokio::test]
async fn certificates_that_do_not_hold_are_named() {
    const DAY: time::Duration = time::Duration::DAY;
    let now = OffsetDateTime::now_utc();
    let ca = Ca::new();
    let other = Ca::new();
    let self_signed = || {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        server_config(vec![certificate.into()], &key)
    };
    let rows: [(ServerConfig, &str); 7] = [
        (ca.server(|params| params.not_after = now - DAY), "it expired at "),
        (ca.server(|params| params.not_before = now + DAY), "it is not valid before "),
        (
            ca.server(|params| {
                params.subject_alt_names.retain(|name| format!("{name:?}").contains("b.test"));
            }),
            "it is for \"b.test\", not for a.test",
        ),
        (other.server(|_| {}), "it was not signed by the authority that it names"),
        (self_signed(), "its issuer is not among the trusted roots"),
        (ca.server(|params| params.subject_alt_names.clear()), "not for a.test"),
        (
            ca.server(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            "it is not meant for servers",
        ),
    ];
    for (config, expected) in rows {
        let error = error_of(settings(Some(&ca)), config, "a.test").await;
        assert!(matches!(error.kind(), UpstreamErrorKind::Certificate(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(error.proxy_error(), "tls_certificate_error");
    }
}

/// The bundled roots do not know the test authority, and the name must be one that a certificate can carry.
#[tokio::test]
async fn the_bundled_roots_trust_no_one_else() {
    let ca = Ca::new();
    let error = error_of(settings(None), ca.server(|_| {}), "a.test").await;
    assert!(error.to_string().contains("its issuer is not among the trusted roots"), "{error}");
    let mut config = settings(Some(&ca));
    config.resolver.fixed.insert("-a.test".into(), vec!["127.0.0.1".parse().unwrap()]);
    let error = error_of(config, ca.server(|_| {}), "-a.test").await;
    assert!(error.to_string().contains("no certificate can carry its name"), "{error}");
}

/// In TLS 1.3 the refusal arrives when HTTP is spoken already, in TLS 1.2 within the handshake.
#[tokio::test]
async fn a_demand_for_a_client_certificate_is_named() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let ca = Ca::new();
        let mut roots = RootCertStore::empty();
        roots.add(ca.root()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let plain = ca.server(|_| {});
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(plain.cert_resolver);
        config.alpn_protocols = plain.alpn_protocols;
        let error = error_of(settings(Some(&ca)), config, "a.test").await;
        assert!(matches!(error.kind(), UpstreamErrorKind::TlsAlert(_)), "{version:?}: {error:?}");
        assert!(error.to_string().contains("client certificate"), "{error}");
    }
}

#[tokio::test]
async fn other_failures_of_the_handshake_are_named() {
    let (plain, _) = listen(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let (mute, _) = listen(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let (closed, _) = listen(|stream, _| async move { drop(stream) }).await;
    // An alert record: fatal, protocol_version.
    let (old, _) = listen(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(&[21, 3, 1, 0, 2, 2, 70]).await;
    })
    .await;
    let ca = Ca::new();
    let mut config = settings(Some(&ca));
    config.tls.handshake_timeout = Duration::from_millis(500);
    let upstreams = upstreams(config);
    for (address, expected, proxy_error) in [
        (plain, "what it answered is not TLS", "tls_protocol_error"),
        (mute, "the TLS handshake took longer than 0.5 s", "connection_timeout"),
        (closed, "it closed the connection", "tls_protocol_error"),
        (old, "no version of TLS that is safe", "tls_alert_received"),
    ] {
        let error = send(&upstreams, &https("a.test", address), get("/")).await.unwrap_err();
        let reset = error.to_string().contains("it reset the connection") && address == closed;
        assert!(error.to_string().contains(expected) || reset, "{expected}: {error}");
        assert_eq!(error.proxy_error(), proxy_error);
    }
}

/// A session is resumed by the bottle that it belongs to, and by no other.
#[tokio::test]
async fn sessions_are_resumed_within_a_bottle() {
    let ca = Ca::new();
    let (kinds, mut seen) = tokio::sync::mpsc::channel(16);
    let mut config = ca.server(|_| {});
    config.alpn_protocols.clear();
    let (address, _) = listen_tls(config, move |mut stream, _| {
        let kinds = kinds.clone();
        async move {
            kinds.send(stream.get_ref().1.handshake_kind().unwrap()).await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    for (name, resumed) in [("a", false), ("a", true), ("b", false), ("b", true), ("a", true)] {
        text(send_as(&upstreams, name, &target, get("/")).await).await;
        let kind = seen.recv().await.unwrap();
        assert_eq!(kind == rustls::HandshakeKind::Resumed, resumed, "{name}: {kind:?}");
    }
    upstreams.forget(&bottle("a"));
    text(send_as(&upstreams, "a", &target, get("/")).await).await;
    assert_ne!(seen.recv().await, Some(rustls::HandshakeKind::Resumed));
}
