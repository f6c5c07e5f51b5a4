//! Origins: TLS or plain servers in this process that answer by a handler and remember all that reached them.
//!
//! Invariant: an origin listens on a port the kernel chose (unless told one), serves until dropped, and its record
//! holds what truly arrived: connections, heads, uploads with their end, and the raw bytes inside the TLS.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::bodies::{Broken, TestBody};
use crate::ca::TestCa;

mod tap;
#[cfg(test)]
mod tests;

use tap::Tap;

/// Bytes kept of each upload; the rest is counted and hashed only.
const CAPTURED_BYTES: usize = 1024 * 1024;

/// HTTP/2 windows of an origin, in bytes: large enough never to be what a test measures.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// Largest header list an origin takes over HTTP/2, in bytes.
const HEADER_LIST_BYTES: u32 = 256 * 1024;

/// HTTP/1 header fields an origin takes.
const HEADER_COUNT: usize = 512;

/// Longest time an origin reads on behind its last answer on a connection.
const LINGER: Duration = Duration::from_secs(5);

/// Longest time [`Origin::wait_for`] waits.
const WAIT: Duration = Duration::from_secs(10);

/// The answer to one request; an `Err` closes the connection (HTTP/1) or resets the stream (HTTP/2).
pub type Answer = Pin<Box<dyn Future<Output = Result<Response<TestBody>, Broken>> + Send>>;

type Handler = Arc<dyn Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync>;

/// What speaks on an origin's port, below HTTP.
#[derive(Clone)]
enum Transport {
    Plain,
    Tls(Arc<ServerConfig>),
}

/// A server under the test's control.
pub struct Origin {
    address: SocketAddr,
    record: Arc<Record>,
    serving: JoinHandle<()>,
}

/// All that reached an origin.
#[derive(Debug, Default)]
pub struct Record {
    connections: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    uploads: Mutex<Vec<Upload>>,
    raw: Mutex<Vec<u8>>,
}

/// The head of one request that reached an origin.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// The request target.
    pub uri: Uri,
    /// The protocol version it came by.
    pub version: Version,
    /// Its header fields.
    pub headers: HeaderMap,
}

/// One request body that reached an origin.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// The first of them, at most a mebibyte.
    pub head: Vec<u8>,
    /// How it ended.
    pub end: End,
    /// The trailers.
    pub trailers: Option<HeaderMap>,
}

/// How a body ended for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its proper end.
    Clean,
    /// Visibly cut: by a reset, a close, or a missing last chunk.
    Cut,
}

impl Origin {
    /// A TLS origin for `names` on a free port, offering HTTP/2 and HTTP/1.1.
    pub async fn https<F>(ca: &TestCa, names: &[&str], handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        Self::https_with(ca.leaf(names).server_config(&["h2", "http/1.1"]), handler).await
    }

    /// A TLS origin that speaks exactly one version of HTTP.
    pub async fn https_only<F>(ca: &TestCa, names: &[&str], version: Version, handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        Self::https_with(ca.leaf(names).server_config(&[alpn]), handler).await
    }

    /// A TLS origin with a configuration of the caller's.
    pub async fn https_with<F>(tls: Arc<ServerConfig>, handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve(listener, Transport::Tls(tls), Arc::new(handler))
    }

    /// A TLS origin on a listener of the caller's.
    pub fn https_on<F>(listener: TcpListener, tls: Arc<ServerConfig>, handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        Self::serve(listener, Transport::Tls(tls), Arc::new(handler))
    }

    /// An origin without TLS, speaking HTTP/1.1.
    pub async fn plain<F>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve(listener, Transport::Plain, Arc::new(handler))
    }

    fn serve(listener: TcpListener, transport: Transport, handler: Handler) -> Self {
        let address = listener.local_addr().expect("a bound listener");
        let record = Arc::new(Record::default());
        let serving = tokio::spawn(accept(listener, transport, handler, Arc::clone(&record)));
        Self { address, record, serving }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// What reached it so far.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Waits until `count` uploads have ended, in whatever way, and returns them.
    ///
    /// # Panics
    /// When they have not within ten seconds.
    pub async fn uploads(&self, count: usize) -> Vec<Upload> {
        self.wait_for("uploads", || self.record.uploads().len() >= count).await;
        self.record.uploads()
    }

    /// Waits until `reached` holds.
    ///
    /// # Panics
    /// When it does not within ten seconds.
    pub async fn wait_for(&self, what: &str, reached: impl Fn() -> bool) {
        let waiting = async {
            while !reached() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(WAIT, waiting).await.is_ok(), "the origin waited for {what} in vain");
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Record {
    /// Connections accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The heads of the requests, in order of arrival.
    pub fn requests(&self) -> Vec<Seen> {
        locked(&self.seen).clone()
    }

    /// The uploads that have ended.
    pub fn uploads(&self) -> Vec<Upload> {
        locked(&self.uploads).clone()
    }

    /// The first mebibyte that arrived inside the TLS (of all connections, in order of arrival).
    pub fn raw(&self) -> Vec<u8> {
        locked(&self.raw).clone()
    }

    /// Reads a request body to its end, counts and hashes it, and remembers it.
    pub async fn take_upload(&self, mut body: Incoming) -> Upload {
        use http_body_util::BodyExt;

        let mut reading = Reading { record: self, hash: Sha256::new(), upload: Upload::started() };
        while let Some(frame) = body.frame().await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => reading.data(&data),
                Ok(Err(frame)) => reading.upload.trailers = frame.into_trailers().ok(),
                Err(_) => return reading.ended(End::Cut),
            }
        }
        reading.ended(End::Clean)
    }
}

impl Upload {
    fn started() -> Self {
        Self { bytes: 0, sha256: [0; 32], head: Vec::new(), end: End::Cut, trailers: None }
    }
}

/// An upload being read; it is remembered as cut when its reader is dropped half way.
struct Reading<'a> {
    record: &'a Record,
    hash: Sha256,
    upload: Upload,
}

impl Reading<'_> {
    fn data(&mut self, data: &[u8]) {
        self.upload.bytes += data.len() as u64;
        self.hash.update(data);
        let room = CAPTURED_BYTES - self.upload.head.len();
        self.upload.head.extend_from_slice(&data[..data.len().min(room)]);
    }

    fn ended(mut self, end: End) -> Upload {
        self.upload.end = end;
        self.upload.sha256 = self.hash.clone().finalize().into();
        self.upload.clone()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        locked(&self.record.uploads).push(self.upload.clone());
    }
}

/// A handler from an async function of the request and the record.
pub fn handler<F, A>(answer: F) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static
where
    F: Fn(Request<Incoming>, Arc<Record>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<TestBody>> + Send + 'static,
{
    move |request, record| {
        let answer = answer(request, record);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// A handler that answers every request with 200 and these bytes.
pub fn fixed(
    bytes: impl Into<Bytes>,
) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    let bytes = bytes.into();
    handler(move |_request, _record| {
        let bytes = bytes.clone();
        async move { Response::new(crate::bodies::full(bytes)) }
    })
}

/// A handler that reads every upload and answers with its length and SHA-256, as `LENGTH HEX`.
pub fn counting() -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    handler(|request, record| async move {
        let upload = record.take_upload(request.into_body()).await;
        Response::new(crate::bodies::full(format!("{} {}", upload.bytes, hex(&upload.sha256))))
    })
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A TLS or plain server that hands each raw connection to `speak`, for what HTTP libraries refuse to do.
pub async fn scripted<F, A>(tls: Option<Arc<ServerConfig>>, speak: F) -> (SocketAddr, JoinHandle<()>)
where
    F: Fn(Box<dyn Stream>) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let speak = Arc::new(speak);
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (speak, tls) = (Arc::clone(&speak), tls.clone());
            tokio::spawn(async move {
                let _ = socket.set_nodelay(true);
                match tls {
                    None => speak(Box::new(socket)).await,
                    Some(tls) => {
                        if let Ok(stream) = TlsAcceptor::from(tls).accept(socket).await {
                            speak(Box::new(stream)).await;
                        }
                    }
                }
            });
        }
    });
    (address, serving)
}

/// A byte stream of either kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn accept(listener: TcpListener, transport: Transport, handler: Handler, record: Arc<Record>) {
    while let Ok((socket, _)) = listener.accept().await {
        record.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(connection(socket, transport.clone(), Arc::clone(&handler), Arc::clone(&record)));
    }
}

async fn connection(socket: TcpStream, transport: Transport, handler: Handler, record: Arc<Record>) {
    let _ = socket.set_nodelay(true);
    match transport {
        Transport::Plain => speak_http1(Tap::new(socket, Arc::clone(&record)), handler, record).await,
        Transport::Tls(tls) => {
            let Ok(stream) = TlsAcceptor::from(tls).accept(socket).await else { return };
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = Tap::new(stream, Arc::clone(&record));
            if h2 {
                speak_http2(stream, handler, record).await;
            } else {
                speak_http1(stream, handler, record).await;
            }
        }
    }
}

async fn speak_http1(stream: impl Stream + 'static, handler: Handler, record: Arc<Record>) {
    let service = service_fn(move |request| respond(request, &handler, &record));
    let serving = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .max_headers(HEADER_COUNT)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown();
    // A connection that ended badly shows in what the client saw; closing is all that is left here. What an early
    // answer left unread is read first: a close on top of it would be a reset that destroys the answer.
    if let Ok(parts) = serving.await {
        let mut stream = parts.io.into_inner();
        let _closed = stream.shutdown().await;
        let _gone = timeout(LINGER, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
    }
}

async fn speak_http2(stream: impl Stream + 'static, handler: Handler, record: Arc<Record>) {
    let service = service_fn(move |request| respond(request, &handler, &record));
    let _ended = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn respond(request: Request<Incoming>, handler: &Handler, record: &Arc<Record>) -> Answer {
    locked(&record.seen).push(Seen {
        method: request.method().clone(),
        uri: request.uri().clone(),
        version: request.version(),
        headers: request.headers().clone(),
    });
    let bodyless = request.method() == Method::HEAD && request.version() == Version::HTTP_2;
    let answer = handler(request, Arc::clone(record));
    // Over HTTP/2 the library sends the body of an answer to HEAD all the same.
    if bodyless { Box::pin(async move { Ok(without_body(answer.await?)) }) } else { answer }
}

/// The response with its length announced and its body left out.
fn without_body(response: Response<TestBody>) -> Response<TestBody> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = hyper::body::Body::size_hint(&body).exact().filter(|length| *length > 0) {
        parts.headers.entry(http::header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, crate::bodies::empty())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
