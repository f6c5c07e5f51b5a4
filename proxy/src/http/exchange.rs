//! One exchange: a request of a bottle and the answer it gets.
//!
//! Owns the order of the path: form, policy, head scan, body plan, priming, upstream, and the same back. Invariants:
//! nothing is sent upstream before the head is judged; a body goes on only through an inspecting or an openly
//! skipping body; whatever stops an exchange before the answer's head becomes a [`Refusal`] the client can read.

mod admission;
mod judge;
mod line;
mod record;
mod shown;
mod tracked;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version, header, request, response};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;

pub(crate) use self::record::{Exchange, log_refused, shown_method};
pub(crate) use self::shown::authority as shown_authority;
use self::tracked::Tracked;
use super::refusal::{Reason, Refusal};
use super::upload::Upload;
use super::{head, internal, serve};
use crate::identity::Bottle;
use crate::inspect::{Blocked, BodyError, Direction, InspectBody};
use crate::listen::Connection;
use crate::policy::{Grant, Head, Route, Side, Verdict};
use crate::target::Target;
use crate::upstream::{UpstreamBody, UpstreamError, UpstreamErrorKind};

/// Why the bytes of a body are skipped where a route runs no detector on them.
const NO_DETECTORS: &str = "no detectors";

/// Who asks.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) bottle: Arc<Bottle>,
    /// The gateway's own probe: it reaches the gateway's own host alone.
    pub(crate) probe: bool,
}

/// A request's body on its way upstream.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// An answer's body as it comes from upstream.
pub(crate) type AnswerBody = UpstreamBody<RequestBody>;

/// The body of an answer.
pub(crate) enum ResponseBody {
    /// The gateway's own words.
    Own(Full<Bytes>),
    /// The upstream's, inspected.
    Upstream(Box<Tracked>),
}

/// Runs one exchange to the answer's head; the bodies go on streaming behind it.
pub(crate) async fn run(
    connection: &Connection,
    party: &Party,
    target: &Target,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    if internal::is_host(&target.host) {
        return internal::answer(connection, party, target, request);
    }
    if party.probe {
        return serve::refuse(connection, Some(&party.bottle), request, &probe_elsewhere());
    }
    if !connection.gateway.requests.admit(&party.bottle.key) {
        return serve::refuse(connection, Some(&party.bottle), request, &too_often(connection, target));
    }
    if let Some(refusal) = connection.gateway.cut_offs.refusal(&party.bottle.key) {
        let refusal = refusal.host(target.host.to_string());
        return serve::refuse(connection, Some(&party.bottle), request, &refusal);
    }
    let memory = match admission::admit(connection, party, &request).await {
        Ok(memory) => memory,
        Err(refusal) => return serve::refuse(connection, Some(&party.bottle), request, &refusal),
    };
    let h1 = request.version() != Version::HTTP_2;
    let (mut parts, body) = request.into_parts();
    let exchange = Exchange::begin(connection, &party.bottle, target, &parts);
    exchange.hold(memory);
    connection.exchanges.note(&exchange);
    let form = form_of(&parts.headers);
    let upload = Upload::new(body, connection.gateway.budget.upload)
        .counted(&mut parts.extensions)
        .watched(exchange.waits.to_send.clone());
    match forward(&exchange, parts, upload).await {
        Ok(response) => response,
        Err(refusal) => serve::full(exchange.refuse(refusal).response(&form, h1)),
    }
}

/// The probe asked for something else than the gateway's own host.
pub(super) fn probe_elsewhere() -> Refusal {
    Refusal::new(Reason::Identity, "the probe reaches the gateway's own host alone")
}

/// The bottle asks more often than it may.
fn too_often(connection: &Connection, target: &Target) -> Refusal {
    let most = connection.gateway.budget.requests_per_second;
    Refusal::new(Reason::Rate, format!("the bottle makes more than {most} requests a second"))
        .limit(u64::from(most), "limits.requests_per_second")
        .host(target.host.to_string())
        .hint("wait a second, and make fewer requests at a time")
}

/// What the form of a refusal depends on.
fn form_of(headers: &HeaderMap) -> HeaderMap {
    let mut form = HeaderMap::new();
    for name in [header::ACCEPT, header::USER_AGENT] {
        for value in headers.get_all(&name) {
            form.append(&name, value.clone());
        }
    }
    form
}

async fn forward(
    exchange: &Arc<Exchange>,
    mut parts: request::Parts,
    upload: Upload<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    head::check_request(&parts)?;
    let grant = authorise(exchange, &parts)?;
    let scan = exchange.head_scan(Direction::Request, &grant.route.request, &parts.headers);
    scan.opening(exchange.target.host.name(), &parts.method, &parts.uri, &parts.headers)
        .and_then(|found| scan.overwrite(&found, &mut parts.headers))
        .map_err(|blocked| exchange.refusal(&blocked))?;
    let body = request_body(exchange, &parts, upload, &grant.route.request).await?;
    let modest = exchange.gateway.admission.is_used_beyond(admission::MODEST_EIGHTHS);
    let request = upstream_request(parts, body, modest);
    let started = tokio::time::Instant::now();
    let sent = tokio::select! {
        sent = exchange.gateway.upstreams.send(&exchange.bottle.key, &grant.target, request) => sent,
        () = exchange.idle() => return Err(silent(exchange)),
    };
    let seconds = started.elapsed().as_secs_f64();
    exchange.gateway.metrics.upstream_seconds.observe(seconds);
    exchange.state().upstream_seconds = Some(seconds);
    match sent {
        Ok(response) => respond(exchange, &grant, response).await,
        Err(error) => Err(exchange.take_block().unwrap_or_else(|| upstream_refusal(exchange, &error))),
    }
}

/// Asks policy. A policy that only observes records what it would have refused and lets it pass.
fn authorise(exchange: &Exchange, parts: &request::Parts) -> Result<Grant, Refusal> {
    let verdict = exchange.policy.request(&exchange.target, &Head::of(parts));
    let grant = match verdict {
        Verdict::Granted(grant) => grant,
        Verdict::Ambiguous(why) => {
            return Err(Refusal::new(Reason::Framing, why).host(exchange.target.host.to_string()));
        }
        Verdict::Denied { why, observed } => {
            let refusal = denied(&exchange.target, why);
            if exchange.enforces() {
                return Err(refusal);
            }
            exchange.would_block(refusal);
            observed
        }
    };
    exchange.set_route(&grant.route);
    Ok(grant)
}

fn denied(target: &Target, why: String) -> Refusal {
    Refusal::new(Reason::Policy, why)
        .host(target.host.to_string())
        .hint("ask the operator for a route, or use a host that is allowed")
}

/// No route of the policy names the host of a tunnel.
pub(super) fn denied_host(policy: &str, target: &Target) -> Refusal {
    denied(target, format!("no route of policy `{policy}` allows {}", target.authority()))
}

/// The body to send: empty, openly skipped, or inspected; a short one is scanned whole before the upstream hears of it.
async fn request_body(
    exchange: &Arc<Exchange>,
    parts: &request::Parts,
    upload: Upload<Incoming>,
    side: &Side,
) -> Result<RequestBody, Refusal> {
    if upload.is_end_stream() {
        return Ok(Empty::new().map_err(|never| match never {}).boxed_unsync());
    }
    if side.selection.is_empty() {
        exchange.skips(Direction::Request, NO_DETECTORS);
        return Ok(InspectBody::pass(upload, Direction::Request, exchange.clone()).boxed_unsync());
    }
    let plan = exchange.body_plan(&parts.headers, Direction::Request, side)?;
    let mut body = InspectBody::new(upload, &plan);
    match body.prime().await {
        Ok(()) => Ok(body.boxed_unsync()),
        Err(error) => Err(exchange.take_block().unwrap_or_else(|| {
            exchange.aborted_by("client");
            client_failed(&error)
        })),
    }
}

fn scan_response_head(exchange: &Exchange, parts: &mut response::Parts, side: &Side) -> Result<(), Blocked> {
    if side.selection.is_empty() {
        return Ok(());
    }
    let reason = parts.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
    let scan = exchange.head_scan(Direction::Response, side, &parts.headers);
    let found = scan.response(reason, &parts.headers)?;
    scan.overwrite(&found, &mut parts.headers)
}

/// The request as it goes upstream: without what belongs to the client's connection, addressed in origin form. A
/// `modest` one asks for no coding whose decoder takes much memory.
fn upstream_request(mut parts: request::Parts, body: RequestBody, modest: bool) -> Request<RequestBody> {
    head::strip_hop_by_hop(&mut parts.headers);
    head::join_cookies(&mut parts.headers);
    if modest {
        head::drop_dear_codings(&mut parts.headers, parts.uri.query());
    }
    // The gateway has answered the expectation itself by reading the body.
    parts.headers.remove(header::EXPECT);
    Request::from_parts(parts, body)
}

/// The answer as it goes to the client.
async fn respond(
    exchange: &Arc<Exchange>,
    grant: &Grant,
    response: Response<AnswerBody>,
) -> Result<Response<ResponseBody>, Refusal> {
    let side = &grant.route.response;
    let (mut parts, body) = response.into_parts();
    check_response(&parts)?;
    scan_response_head(exchange, &mut parts, side).map_err(|blocked| exchange.refusal(&blocked))?;
    let mut body = response_body(exchange, &parts.headers, body, side)?;
    if let Err(error) = body.prime().await {
        return Err(exchange.take_block().unwrap_or_else(|| {
            exchange.aborted_by("upstream");
            broken_answer(exchange, &error)
        }));
    }
    head::strip_hop_by_hop(&mut parts.headers);
    exchange.set_status(parts.status);
    Ok(Response::from_parts(parts, ResponseBody::Upstream(Box::new(Tracked::new(body, exchange.clone())))))
}

fn response_body(
    exchange: &Arc<Exchange>,
    headers: &HeaderMap,
    body: AnswerBody,
    side: &Side,
) -> Result<InspectBody<AnswerBody>, Refusal> {
    if body.is_end_stream() || side.selection.is_empty() {
        exchange.skips(Direction::Response, NO_DETECTORS);
        return Ok(InspectBody::pass(body, Direction::Response, exchange.clone()));
    }
    Ok(InspectBody::new(body, &exchange.body_plan(headers, Direction::Response, side)?))
}

fn check_response(parts: &response::Parts) -> Result<(), Refusal> {
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Refusal::new(Reason::Upgrade, "the upstream switched protocols unasked")
            .status(StatusCode::BAD_GATEWAY));
    }
    head::check_length(&parts.headers, Version::HTTP_11).map_err(|refusal| {
        Refusal::new(Reason::Upstream, refusal.detail).proxy_error("http_response_incomplete")
    })
}

fn silent(exchange: &Exchange) -> Refusal {
    let limit = exchange.gateway.budget.exchange_idle_timeout;
    Refusal::new(Reason::Upstream, format!("{} sent nothing for {} s", exchange.target.host, limit.as_secs()))
        .status(StatusCode::GATEWAY_TIMEOUT)
        .proxy_error("http_response_timeout")
        .limit(limit.as_secs(), "limits.exchange_idle_timeout")
        .host(exchange.target.host.to_string())
}

fn client_failed(error: &BodyError) -> Refusal {
    Refusal::new(Reason::Framing, format!("the request body broke off: {error}")).close()
}

fn broken_answer(exchange: &Exchange, error: &BodyError) -> Refusal {
    Refusal::new(Reason::Upstream, format!("{} broke its answer off: {error}", exchange.target.host))
        .host(exchange.target.host.to_string())
        .proxy_error("http_response_incomplete")
}

pub(super) fn upstream_refusal(exchange: &Exchange, error: &UpstreamError) -> Refusal {
    exchange.gateway.metrics.upstream_errors.with_label_values(&[error.proxy_error()]).inc();
    if matches!(error.kind(), UpstreamErrorKind::RequestBody) {
        exchange.aborted_by("client");
    }
    let (reason, status) = match error.kind() {
        UpstreamErrorKind::AddressRefused(..) => (Reason::Address, StatusCode::FORBIDDEN),
        _ if error.is_timeout() => (Reason::Upstream, StatusCode::GATEWAY_TIMEOUT),
        _ => (Reason::Upstream, StatusCode::BAD_GATEWAY),
    };
    let refusal = Refusal::new(reason, error.to_string()).status(status).proxy_error(error.proxy_error());
    refusal.host(exchange.target.host.to_string())
}

/// Scans the host of a tunnel that will not be opened; `None` when nothing in it stops the tunnel.
pub(super) fn scan_host(exchange: &Exchange, route: &Route) -> Option<Refusal> {
    let name = exchange.target.host.name()?;
    let scanned = exchange.head_scan(Direction::Request, &route.request, &HeaderMap::new()).host(name);
    scanned.err().map(|blocked| exchange.refuse(exchange.refusal(&blocked)))
}
