//! Origins, an authority for them, and upstreams that trust it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::budget::{Admission, Sizes, Sockets, Terms, Windows};
use crate::identity::BottleKey;
use crate::queue::Portions;
use crate::target::{Scheme, Target};
use crate::tls::{ALPN_H2, ALPN_HTTP11, provider};
use crate::upstream::pool::Key;
use crate::upstream::{
    AddressSettings, DialSettings, Http1Settings, Http2Settings, NameServers, PoolSettings, ResolverSettings,
    Roots, UpstreamBody, UpstreamError, UpstreamSettings, UpstreamTlsSettings, Upstreams,
};

pub(super) type TestBody = UnsyncBoxBody<Bytes, TestError>;

/// What a request's body fails with.
#[derive(Debug)]
pub(super) struct TestError(pub(super) &'static str);

impl std::fmt::Display for TestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for TestError {}
pub(super) type TestUpstreams = Upstreams<TestBody>;
pub(super) type Answer = Result<Response<UpstreamBody<TestBody>>, UpstreamError>;

/// The longest that anything here may take, on a machine under load.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// An authority for origins.
pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: tempfile::NamedTempFile,
}

impl Ca {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let pem = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(pem.path(), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn root(&self) -> CertificateDer<'static> {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::from_pem_file(self.pem.path()).unwrap()
    }

    /// A server's configuration with a certificate that `tune` has changed.
    pub(super) fn server(&self, tune: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a.test".to_owned(), "b.test".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        tune(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        server_config(vec![certificate.into()], &key)
    }
}

pub(super) fn server_config(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_HTTP11.to_vec()];
    config
}

/// Settings that reach origins on loopback under the names `a.test` and `b.test`.
pub(super) fn settings(ca: Option<&Ca>) -> UpstreamSettings {
    let loopback = vec!["127.0.0.1".parse().unwrap()];
    let names = ["a.test", "b.test"].map(|name| (name.into(), loopback.clone()));
    UpstreamSettings {
        resolver: ResolverSettings {
            name_servers: NameServers::Addresses(vec!["127.0.0.1:1".parse().unwrap()]),
            fixed: HashMap::from(names),
            timeout: Duration::from_secs(1),
            cache_entries: 16,
            cache_ttl: Duration::from_secs(60),
        },
        addresses: AddressSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], ..Default::default() },
        dial: DialSettings {
            timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(5),
            attempt_delay: Duration::from_millis(250),
            addresses: 16,
        },
        tls: UpstreamTlsSettings {
            roots: vec![ca.map_or(Roots::Bundled, |ca| Roots::File(ca.pem.path().to_owned()))],
            handshake_timeout: PATIENCE,
            sessions_per_bottle: 8,
            bottles: 8,
        },
        http1: Http1Settings { buffer_bytes: 64 * 1024, header_bytes: 64 * 1024, headers: 256 },
        http2: Http2Settings {
            streams: 128,
            frame_bytes: 16 * 1024,
            header_list_bytes: 64 * 1024,
            remembered_resets: 32,
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
        },
        pool: PoolSettings {
            idle_timeout: Duration::from_secs(30),
            idle_connections: 16,
            connections_per_target: 8,
            wait_timeout: PATIENCE,
        },
        sockets: sockets(),
    }
}

/// As with plenty of memory.
fn sockets() -> Sockets {
    let sizes = Sizes {
        portions: Portions { read: 1024 * 1024, queue: 64 * 1024 },
        tls: 64 * 1024,
        unsent: 64 * 1024,
        send: 64 * 1024,
    };
    let windows = Windows { stream: 256 * 1024, connection: 32 * 1024 * 1024 };
    let terms = Terms {
        capacity: 1 << 30,
        connection: 0,
        exchange: 0,
        stream: 0,
        decoders: 0,
        bottle: 1 << 30,
        exchanges: 1024,
    };
    Sockets {
        tight: sizes,
        ample: sizes,
        narrow: windows,
        wide: windows,
        receive_bytes: 64 * 1024,
        admission: Admission::new(terms, PATIENCE),
        budget: 1 << 30,
    }
}

pub(super) fn upstreams(settings: UpstreamSettings) -> Arc<TestUpstreams> {
    Arc::new(Upstreams::new(settings).unwrap())
}

pub(super) fn bottle(name: &str) -> BottleKey {
    BottleKey { name: name.into(), epoch: 0 }
}

pub(super) fn https(name: &str, address: SocketAddr) -> Target {
    Target::from_authority(&format!("{name}:{}", address.port())).unwrap()
}

pub(super) fn plain(address: SocketAddr) -> Target {
    Target { scheme: Scheme::Http, ..https("a.test", address) }
}

pub(super) fn empty() -> TestBody {
    UnsyncBoxBody::new(Empty::new().map_err(|never: Infallible| match never {}))
}

pub(super) fn full(text: &'static str) -> TestBody {
    UnsyncBoxBody::new(Full::from(text).map_err(|never: Infallible| match never {}))
}

/// A body that sends what the channel is given.
pub(super) fn channel() -> (mpsc::Sender<Result<Bytes, TestError>>, TestBody) {
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, TestError>>(1);
    let frames = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let frames = futures_util::StreamExt::map(frames, |chunk| chunk.map(Frame::data));
    (sender, UnsyncBoxBody::new(StreamBody::new(frames)))
}

pub(super) fn request(method: Method, path: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().method(method).uri(path).body(body).unwrap()
}

pub(super) fn get(path: &str) -> Request<TestBody> {
    request(Method::GET, path, empty())
}

pub(super) async fn send(upstreams: &TestUpstreams, target: &Target, request: Request<TestBody>) -> Answer {
    send_as(upstreams, "a", target, request).await
}

pub(super) async fn send_as(
    upstreams: &TestUpstreams,
    name: &str,
    target: &Target,
    request: Request<TestBody>,
) -> Answer {
    let key = Key { bottle: bottle(name), target: target.clone() };
    tokio::time::timeout(PATIENCE, upstreams.exchange(key, request)).await.expect("an answer in time")
}

/// The whole body as text.
#[allow(clippy::disallowed_methods, reason = "the bodies of these tests are small")]
pub(super) async fn text(answer: Answer) -> String {
    let body = answer.expect("a response").into_body();
    let collected = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time");
    String::from_utf8(collected.expect("a whole body").to_bytes().to_vec()).unwrap()
}

/// Waits until `condition` holds.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Binds a listener and serves each connection by `serve`; counts them.
pub(super) async fn listen<F>(
    mut serve: impl FnMut(TcpStream, usize) -> F + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, number));
        }
    });
    (address, count)
}

/// A TLS origin that serves each connection by `serve`.
pub(super) async fn listen_tls<F>(
    config: ServerConfig,
    serve: impl Fn(TlsStream<TcpStream>, usize) -> F + Clone + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listen(move |stream, number| {
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, number).await;
            }
        }
    })
    .await
}

/// A TLS origin that answers each request by `answer`, in the version that was agreed on.
pub(super) async fn origin<F>(
    config: ServerConfig,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = Response<TestBody>> + Send + 'static,
{
    listen_tls(config, move |stream, _| serve_http(stream, answer.clone())).await
}

pub(super) async fn serve_http<F>(
    stream: TlsStream<TcpStream>,
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Response<TestBody>> + Send + 'static,
{
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_H2);
    let answer = Arc::new(answer);
    let service = service_fn(move |request| {
        let answer = Arc::clone(&answer);
        async move { Ok::<_, Infallible>(answer(request).await) }
    });
    let io = TokioIo::new(stream);
    let _ = if is_h2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
    } else {
        hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
    };
}

/// Answers with what the origin saw of the request.
pub(super) async fn echo(request: Request<Incoming>) -> Response<TestBody> {
    let host = request.headers().get("host").map_or("-", |host| host.to_str().unwrap()).to_owned();
    let head = format!("{} {} {:?} host={host}", request.method(), request.uri(), request.version());
    Response::new(UnsyncBoxBody::new(Full::from(head).map_err(|never: Infallible| match never {})))
}
