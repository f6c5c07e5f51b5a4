//! Clients that go through a gateway: CONNECT, TLS with the gateway's CA, then HTTP/1.1 or HTTP/2.
//!
//! Invariant: a client trusts exactly the roots it was given, and speaks exactly the version it was told to.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bodies::TestBody;
use crate::origin::{End, Stream};
use crate::rawclient::{Head, Wire};

/// HTTP/2 windows of a client, in bytes.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// HTTP/1 header fields a client takes.
const HEADER_COUNT: usize = 512;

/// Largest header list a client takes over HTTP/2, in bytes.
const HEADER_LIST_BYTES: u32 = 256 * 1024;

/// Most of a body that [`read_all`] keeps, in bytes.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// A client of one proxy.
#[derive(Clone)]
pub struct Client {
    proxy: SocketAddr,
    roots: Arc<RootCertStore>,
    credentials: Option<String>,
    receive_buffer: Option<u32>,
    window: u32,
    source: Option<IpAddr>,
}

/// An HTTP connection inside a tunnel.
pub enum Connection {
    /// HTTP/1.1.
    Http1(http1::SendRequest<TestBody>),
    /// HTTP/2.
    Http2(http2::SendRequest<TestBody>),
}

/// A response body that was read to its end.
#[derive(Clone, Debug)]
pub struct Received {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// The first of them, at most four mebibytes.
    pub head: Vec<u8>,
    /// The trailers.
    pub trailers: Option<http::HeaderMap>,
    /// How it ended.
    pub end: End,
}

impl Received {
    /// The kept bytes as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

impl Client {
    /// A client of the proxy at this address that trusts `roots`.
    #[must_use]
    pub const fn new(proxy: SocketAddr, roots: Arc<RootCertStore>) -> Self {
        Self { proxy, roots, credentials: None, receive_buffer: None, window: WINDOW_BYTES, source: None }
    }

    /// The same client, at another address of the proxy.
    #[must_use]
    pub const fn through(mut self, proxy: SocketAddr) -> Self {
        self.proxy = proxy;
        self
    }

    /// The same client, speaking from this address of the machine.
    #[must_use]
    pub const fn from(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// The same client, with no more room for what it has not read: in its sockets' buffers and in an HTTP/2 stream.
    #[must_use]
    pub const fn with_little_room(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self.window = bytes;
        self
    }

    /// The same client, sending this `Proxy-Authorization`.
    #[must_use]
    pub fn with_credentials(mut self, value: &str) -> Self {
        self.credentials = Some(value.to_owned());
        self
    }

    /// A plain connection to the proxy, spoken by hand.
    pub async fn wire(&self) -> Wire {
        Wire::new(Box::new(self.socket().await))
    }

    /// Asks for a tunnel to `authority`; the answer's head, and the connection behind it.
    pub async fn connect(&self, authority: &str) -> (Head, Wire) {
        let mut wire = self.wire().await;
        let credentials = self.credentials.as_ref();
        let credentials =
            credentials.map_or_else(String::new, |value| format!("proxy-authorization: {value}\r\n"));
        wire.send(format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{credentials}\r\n")).await;
        let head = wire.head().await.expect("an answer to CONNECT");
        (head, wire)
    }

    /// A tunnel to `authority` with nothing inside it yet.
    ///
    /// # Panics
    /// When the proxy refuses it.
    pub async fn tunnel(&self, authority: &str) -> Box<dyn Stream> {
        let (head, wire) = self.connect(authority).await;
        assert_eq!(head.status, 200, "CONNECT {authority}: {head:?}");
        wire.into_stream()
    }

    /// A tunnel with TLS for `name` inside it, offering exactly `alpn`.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn tls(
        &self,
        authority: &str,
        name: &str,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<Box<dyn Stream>>> {
        let tunnel = self.tunnel(authority).await;
        self.handshake(tunnel, name, alpn).await
    }

    /// TLS for `name` with what listens at the proxy's address itself, offering exactly `alpn`.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn direct(&self, name: &str, alpn: &[&str]) -> std::io::Result<TlsStream<Box<dyn Stream>>> {
        let stream: Box<dyn Stream> = Box::new(self.socket().await);
        self.handshake(stream, name, alpn).await
    }

    /// TLS for `name` on a stream that is there already.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn handshake<S: Stream>(
        &self,
        stream: S,
        name: &str,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<S>> {
        let name = ServerName::try_from(name.to_owned()).expect("a server name");
        TlsConnector::from(self.config(alpn)).connect(name, stream).await
    }

    /// HTTP/1.1 by hand inside TLS inside a tunnel to `name`:`port`.
    pub async fn https_wire(&self, name: &str, port: u16) -> Wire {
        let stream = self.tls(&format!("{name}:{port}"), name, &["http/1.1"]).await;
        Wire::new(Box::new(stream.expect("TLS with the gateway")))
    }

    /// An HTTP connection of the given version inside TLS inside a tunnel to `name`:`port`.
    pub async fn open(&self, version: Version, name: &str, port: u16) -> Connection {
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        let stream = self.tls(&format!("{name}:{port}"), name, &[alpn]).await.expect("TLS with the gateway");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()), "the gateway speaks {alpn}");
        Connection::with_window(Box::new(stream), version, self.window).await
    }

    /// Sends one request on a connection of its own.
    pub async fn fetch(
        &self,
        version: Version,
        name: &str,
        port: u16,
        request: Request<TestBody>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut connection = self.open(version, name, port).await;
        connection.send(request).await
    }

    async fn socket(&self) -> TcpStream {
        let socket = match self.proxy {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.expect("a socket");
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes).expect("a TCP socket");
        }
        if let Some(source) = self.source {
            socket.bind(SocketAddr::new(source, 0)).expect("an address of this machine");
        }
        let socket = socket.connect(self.proxy).await.expect("the proxy listens");
        socket.set_nodelay(true).expect("a TCP socket");
        socket
    }

    fn config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has both TLS versions")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl Connection {
    /// Speaks HTTP of the given version on `stream`.
    pub async fn over(stream: Box<dyn Stream>, version: Version) -> Self {
        Self::with_window(stream, version, WINDOW_BYTES).await
    }

    /// The same with an HTTP/2 window of so many bytes for each stream.
    async fn with_window(stream: Box<dyn Stream>, version: Version, window: u32) -> Self {
        let stream = TokioIo::new(stream);
        if version == Version::HTTP_2 {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(window)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_header_list_size(HEADER_LIST_BYTES)
                .handshake(stream)
                .await
                .expect("an HTTP/2 opening");
            tokio::spawn(connection);
            return Self::Http2(sender);
        }
        let opening = http1::Builder::new().max_headers(HEADER_COUNT).handshake(stream);
        let (sender, connection) = opening.await.expect("an HTTP/1 connection");
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    /// Sends one request, as [`Self::send`] does, and leaves the connection to others while the answer is waited for.
    pub fn begin(
        &mut self,
        request: Request<TestBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + use<> {
        match self {
            Self::Http2(sender) => {
                let mut sender = sender.clone();
                Box::pin(async move {
                    sender.ready().await?;
                    sender.send_request(request).await
                }) as Pin<Box<dyn Future<Output = _> + Send>>
            }
            Self::Http1(sender) => Box::pin(sender.send_request(origin_form(request))),
        }
    }

    /// Sends one request; over HTTP/1.1 its URI is reduced to origin form and a `Host` field added.
    ///
    /// # Errors
    /// When the connection fails before an answer has come.
    pub async fn send(&mut self, request: Request<TestBody>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(origin_form(request)).await
            }
        }
    }
}

/// A request without a body.
#[must_use]
pub fn get(uri: &str) -> Request<TestBody> {
    Request::get(uri).body(crate::bodies::empty()).expect("a request")
}

/// A POST of `body`.
#[must_use]
pub fn post(uri: &str, body: TestBody) -> Request<TestBody> {
    Request::post(uri).body(body).expect("a request")
}

/// Reads a response body to its end, however it ends.
pub async fn read_all(mut body: Incoming) -> Received {
    let mut hash = Sha256::new();
    let mut received =
        Received { bytes: 0, sha256: [0; 32], head: Vec::new(), trailers: None, end: End::Clean };
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => keep(&mut received, &mut hash, &data),
            Ok(Err(frame)) => received.trailers = frame.into_trailers().ok(),
            Err(_) => {
                received.end = End::Cut;
                break;
            }
        }
    }
    received.sha256 = hash.finalize().into();
    received
}

fn keep(received: &mut Received, hash: &mut Sha256, data: &Bytes) {
    received.bytes += data.len() as u64;
    hash.update(data);
    let room = KEPT_BYTES - received.head.len();
    received.head.extend_from_slice(&data[..data.len().min(room)]);
}

fn origin_form(mut request: Request<TestBody>) -> Request<TestBody> {
    let authority = request.uri().authority().expect("an absolute URI").as_str().to_owned();
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let headers = request.headers_mut();
    headers.entry(http::header::HOST).or_insert(authority.parse().expect("a host"));
    *request.uri_mut() = path.parse().expect("a path");
    request
}
