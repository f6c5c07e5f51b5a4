//! Serving HTTP to the bottle: the explicit proxy port outside, the opened tunnel inside.
//!
//! Owns the server side of both HTTP versions with every limit spelled out. Invariants: no request is looked at
//! before its connection's identity is; inside a tunnel every request's authority is the tunnel's target.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::exchange::{self, Party, ResponseBody};
use super::presence::{Presence, Watched};
use super::refusal::{Reason, Refusal};
use super::upload::Upload;
use super::{internal, tunnel};
use crate::app::Gateway;
use crate::identity::{Bottle, presented_token, same_digest};
use crate::listen::Connection;
use crate::target::{Scheme, Target};
use crate::tls;
use crate::unread::{Counted, Unread};

/// Serves one connection on the proxy port until it ends.
pub(crate) async fn outer(stream: TcpStream, connection: Arc<Connection>) {
    let gateway = connection.gateway.clone();
    let drain = connection.drain.clone();
    let (stream, presence) = Watched::new(stream, connection.sizes().portions);
    let watching = presence.clone();
    let service = service_fn(move |request| {
        let (connection, due) = (connection.clone(), watching.answer_due());
        // Boxed, here and below: hyper sets aside room for one answer as long as a connection lives.
        Box::pin(async move {
            Ok::<_, Infallible>(outer_request(&connection, request).await.map(|body| due.with(body)))
        })
    });
    let served = h1_builder(&gateway).serve_connection(TokioIo::new(stream), service).with_upgrades();
    let served = until_drained(
        Box::pin(served),
        drain,
        presence.begun(),
        http1::UpgradeableConnection::graceful_shutdown,
    );
    while_present(served, &presence, &gateway).await;
}

/// An opened tunnel: whose it is, where it leads, and why everything in it is refused, if it is.
pub(crate) struct Tunnel {
    pub(crate) connection: Arc<Connection>,
    pub(crate) party: Party,
    pub(crate) target: Target,
    /// Answers every request instead of forwarding it: a denied host, or names that disagree.
    pub(crate) refusal: Option<Refusal>,
}

/// Serves the requests inside a tunnel until it ends. `h2` is what ALPN settled on.
pub(crate) async fn inner<I>(io: I, tunnel: Arc<Tunnel>, h2: bool)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let gateway = tunnel.connection.gateway.clone();
    let drain = tunnel.connection.drain.clone();
    if h2 {
        let (window, send) = (gateway.budget.h2.stream_window_bytes, tunnel.connection.sizes().send);
        let unread = Unread::new(&tunnel.party.bottle.key, window, Some(gateway.sockets.clone()));
        let io = Counted::of_client(io, unread.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let tunnel = tunnel.clone();
            request.extensions_mut().insert(unread.body());
            // Boxed: hyper hands it on by value, and moves it as a whole once more when it is done.
            Box::pin(async move { Ok::<_, Infallible>(inner_request(&tunnel, request).await) })
        });
        let served = h2_builder(&gateway, send).serve_connection(TokioIo::new(io), service);
        // HTTP/2 says which requests it has not seen.
        report(
            until_drained(
                Box::pin(served),
                drain,
                std::future::ready(()),
                http2::Connection::graceful_shutdown,
            )
            .await,
        );
    } else {
        let (io, presence) = Watched::new(io, tunnel.connection.sizes().portions);
        let watching = presence.clone();
        let service = service_fn(move |request| {
            let (tunnel, due) = (tunnel.clone(), watching.answer_due());
            Box::pin(async move {
                Ok::<_, Infallible>(inner_request(&tunnel, request).await.map(|body| due.with(body)))
            })
        });
        let served = h1_builder(&gateway).serve_connection(TokioIo::new(io), service);
        let served =
            until_drained(Box::pin(served), drain, presence.begun(), http1::Connection::graceful_shutdown);
        while_present(served, &presence, &gateway).await;
    }
}

/// Drives an HTTP/1.1 connection, and drops it once its client is gone.
async fn while_present(
    served: impl Future<Output = Result<(), hyper::Error>>,
    presence: &Presence,
    gateway: &Gateway,
) {
    tokio::select! {
        ended = served => report(ended),
        () = presence.gone(gateway.budget.half_closed_timeout) => {}
    }
}

/// How long a connection that was accepted just before the worker drains may take with its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Drives a connection; once the worker drains and the first request of the connection is there (`begun`), asks it to
/// finish what it has begun. Boxed: it is large, and every function that it is given to would keep room for it.
async fn until_drained<C>(
    mut connection: Pin<Box<C>>,
    mut drain: watch::Receiver<()>,
    begun: impl Future<Output = ()>,
    finish: fn(Pin<&mut C>),
) -> C::Output
where
    C: Future,
{
    let due = async {
        // Told, or nobody is left who could tell.
        let _ = drain.changed().await;
        // One that stays silent is as good as idle.
        let _ = timeout(FIRST_REQUEST, begun).await;
    };
    tokio::select! {
        ended = &mut connection => return ended,
        () = due => finish(connection.as_mut()),
    }
    connection.await
}

fn report(ended: Result<(), hyper::Error>) {
    let Err(error) = ended else { return };
    match std::error::Error::source(&error).and_then(|source| source.downcast_ref()).and_then(tls::refusal_of)
    {
        // With TLS 1.3 the client's word on our certificate comes after the handshake, as an error of the first read.
        Some(words) => tracing::warn!("a client refused the gateway's certificate: {words}"),
        None => tracing::debug!(%error, "connection ended"),
    }
}

fn h1_builder(gateway: &Gateway) -> http1::Builder {
    let limits = &gateway.budget.h1;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_headers(limits.header_count)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.buffer_bytes)
        .preserve_header_case(true)
        .auto_date_header(false);
    builder
}

/// `send`: bytes of each answer that wait for the client's window.
fn h2_builder(gateway: &Gateway, send: usize) -> http2::Builder<TokioExecutor> {
    let limits = &gateway.budget.h2;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_concurrent_streams(limits.streams)
        .max_frame_size(limits.frame_bytes)
        .max_header_list_size(limits.header_list_bytes)
        .max_send_buf_size(send)
        .max_pending_accept_reset_streams(limits.pending_resets)
        .max_local_error_reset_streams(limits.local_resets)
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.keep_alive)
        .auto_date_header(false);
    builder
}

/// A request on the proxy port: CONNECT, or absolute form (RFC 9112 §3.2).
async fn outer_request(connection: &Arc<Connection>, request: Request<Incoming>) -> Response<ResponseBody> {
    let party = match admit(connection, &request) {
        Ok(party) => party,
        Err(refusal) => return refuse(connection, None, request, &refusal),
    };
    if *request.method() == Method::CONNECT {
        return tunnel::open(connection, party, request).await;
    }
    match absolute_target(&request) {
        Ok(target) => exchange::run(connection, &party, &target, request).await,
        Err(refusal) => refuse(connection, Some(&party.bottle), request, &refusal),
    }
}

/// Decides who is asking: the bottle pinned at accept, with its token where it needs one, or the probe.
fn admit(connection: &Connection, request: &Request<Incoming>) -> Result<Party, Refusal> {
    let gateway = &connection.gateway;
    if presented_token(request.headers())
        .is_some_and(|token| same_digest(&token, &gateway.probe.token_sha256))
    {
        return Ok(Party { bottle: gateway.probe.bottle.clone(), probe: true });
    }
    let bottle = connection.bottle_now().ok_or_else(|| unknown(connection))?;
    if bottle.admits(request.headers()) {
        return Ok(Party { bottle, probe: false });
    }
    Err(Refusal::new(Reason::Identity, "this bottle presents its token in Proxy-Authorization")
        .status(StatusCode::PROXY_AUTHENTICATION_REQUIRED))
}

fn unknown(connection: &Connection) -> Refusal {
    Refusal::new(Reason::Identity, format!("no bottle is known for {}", connection.client())).close()
}

/// Who asks inside a tunnel: the party that opened it, under the policy that its bottle has by now.
fn party_now(tunnel: &Tunnel) -> Result<Party, Refusal> {
    if tunnel.party.probe {
        return Ok(tunnel.party.clone());
    }
    let bottle = tunnel.connection.bottle_now().ok_or_else(|| unknown(&tunnel.connection))?;
    Ok(Party { bottle, probe: false })
}

fn absolute_target(request: &Request<Incoming>) -> Result<Target, Refusal> {
    if request.uri().scheme().is_none() {
        return Err(Refusal::new(
            Reason::Framing,
            "this port is a proxy: it takes CONNECT and absolute-form requests",
        )
        .hint("set the proxy variables of the client; `decant exec` does it for a command"));
    }
    let target = Target::from_absolute_uri(request.uri()).map_err(|error| bad_target(&error))?;
    if target.scheme != Scheme::Http {
        return Err(Refusal::new(
            Reason::Framing,
            "https goes through CONNECT, not through an absolute-form request",
        ));
    }
    Ok(target)
}

/// A target that cannot be parsed.
pub(super) fn bad_target(error: &crate::target::TargetError) -> Refusal {
    Refusal::new(Reason::Framing, error.to_string()).close()
}

/// A request inside a tunnel.
async fn inner_request(tunnel: &Arc<Tunnel>, mut request: Request<Incoming>) -> Response<ResponseBody> {
    let connection = &tunnel.connection;
    let party = match judge_tunnel(tunnel, &request) {
        Ok(party) => party,
        Err(refusal) => return refuse(connection, Some(&tunnel.party.bottle), request, &refusal),
    };
    to_origin_form(&mut request);
    exchange::run(connection, &party, &tunnel.target, request).await
}

/// What speaks against a request before it is looked at: its bottle, its tunnel, or the names in it.
fn judge_tunnel(tunnel: &Tunnel, request: &Request<Incoming>) -> Result<Party, Refusal> {
    let party = party_now(tunnel)?;
    let refusal = match &tunnel.refusal {
        // A reload may have allowed by now what policy refused when the tunnel was opened.
        Some(refusal) if refusal.reason == Reason::Policy => {
            tunnel::denial(&tunnel.connection, &party, &tunnel.target)
        }
        other => other.clone(),
    };
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    check_authority(&tunnel.target, request)?;
    Ok(party)
}

/// Host, `:authority` and an absolute-form target, as far as they are there, must all be the tunnel's target
/// (RFC 9110 §7.4); Host must be there once.
fn check_authority(target: &Target, request: &Request<Incoming>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(http::header::HOST).into_iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::new(Reason::Framing, "more than one Host field").close());
    }
    let uri = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let named = [host.map(http::HeaderValue::as_bytes), uri];
    if named.iter().all(Option::is_none) {
        return Err(Refusal::new(Reason::Framing, "no Host field").close());
    }
    for name in named.iter().flatten() {
        let name = std::str::from_utf8(name).unwrap_or("");
        if !target.is_named_by(name).map_err(|error| bad_target(&error))? {
            return Err(disagrees(target));
        }
    }
    Ok(())
}

fn disagrees(target: &Target) -> Refusal {
    Refusal::new(Reason::Authority, format!("the tunnel leads to {target}, the request names another host"))
}

fn to_origin_form(request: &mut Request<Incoming>) {
    if request.version() == Version::HTTP_2 || request.uri().scheme().is_none() {
        return;
    }
    let path = request.uri().path_and_query().cloned();
    if let Some(Ok(uri)) = path.map(|path| http::Uri::builder().path_and_query(path).build()) {
        *request.uri_mut() = uri;
    }
}

/// Answers with a refusal that no exchange stands behind, counts and logs it, and discards the upload.
pub(super) fn refuse(
    connection: &Connection,
    bottle: Option<&Arc<Bottle>>,
    request: Request<Incoming>,
    refusal: &Refusal,
) -> Response<ResponseBody> {
    let refusal = note_refused(connection, bottle, request.method(), refusal);
    let h1 = request.version() != Version::HTTP_2;
    let (mut parts, body) = request.into_parts();
    drop(Upload::new(body, connection.gateway.budget.upload).counted(&mut parts.extensions));
    full(refusal.response(&parts.headers, h1))
}

/// Counts and logs a refusal that no exchange stands behind, and completes it for the client.
pub(super) fn note_refused(
    connection: &Connection,
    bottle: Option<&Arc<Bottle>>,
    method: &Method,
    refusal: &Refusal,
) -> Refusal {
    let gateway = &connection.gateway;
    let name = bottle.map_or("unknown", |bottle| &*bottle.key.name);
    let id = gateway.request_id();
    gateway.metrics.blocked(bottle.map(Arc::as_ref), refusal.reason);
    let refusal = refusal.clone().for_exchange(name, &id);
    exchange::log_refused(connection, (&id, name), method, &refusal);
    if let Some(bottle) = bottle {
        gateway.blocks.note(&bottle.key, method, refusal.clone());
    }
    refusal
}

/// A whole answer of the gateway's own.
pub(super) fn full(response: Response<Bytes>) -> Response<ResponseBody> {
    response.map(|body| ResponseBody::Own(Full::new(body)))
}

/// Whether the target is the gateway's own host.
pub(super) fn is_internal(target: &Target) -> bool {
    internal::is_host(&target.host)
}
