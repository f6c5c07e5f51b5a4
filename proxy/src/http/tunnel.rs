//! CONNECT: from the request for a tunnel to the first request inside it.
//!
//! Owns the decision what to do with a tunnel (open, splice, refuse) and the sniffing of its first bytes. Invariants:
//! a denied host causes no lookup and no upstream connection; the name in the ClientHello is the tunnel's target or
//! nothing in the tunnel is served.

use std::sync::Arc;

use decant_config::Mode;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::exchange::{self, Exchange, Party, ResponseBody};
use super::presence::Watched;
use super::refusal::{Reason, Refusal};
use super::serve::{self, Tunnel};
use crate::app::Gateway;
use crate::listen::Connection;
use crate::policy::{Authorized, HostVerdict};
use crate::target::{Host, Scheme, Target};
use crate::tls::{self, Hello, Opening, Prefixed};
use crate::upstream;

/// What becomes of a tunnel.
enum Intent {
    /// Opened; every request in it is refused if there is a refusal.
    Open(Option<Box<Refusal>>),
    /// Passed on unopened.
    Splice(Authorized<Target>, Arc<Exchange>),
}

/// Answers a CONNECT and leaves the tunnel to a task of its own (it outlives the request; bounded by its connection's
/// place).
pub(crate) async fn open(
    connection: &Arc<Connection>,
    party: Party,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let target = match parse(&request) {
        Ok(target) => target,
        Err(refusal) => return serve::refuse(connection, Some(&party.bottle), request, &refusal),
    };
    let intent = decide(connection, &party, &target);
    if let Intent::Open(Some(refusal)) = &intent
        && !connection.gateway.refusals.admit(&party.bottle.key)
    {
        return serve::refuse(connection, Some(&party.bottle), request, refusal);
    }
    if matches!(intent, Intent::Open(_)) && !may_name(&connection.gateway, &party, &target) {
        let refusal = too_many_names(&connection.gateway, &target);
        return serve::refuse(connection, Some(&party.bottle), request, &refusal);
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let connection = connection.clone();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let allowed = Allowed::new(&connection, &party, &target, &intent);
                let tunnel = run(upgraded, connection.clone(), party, target, intent);
                let work = async {
                    tokio::select! {
                        () = tunnel => {}
                        () = allowed.no_longer() => {}
                    }
                };
                connection.while_open(work).await;
            }
            Err(error) => tracing::debug!(%error, "tunnel was not opened"),
        }
    });
    serve::full(Response::default())
}

/// Whether the bottle may have a tunnel to this host: one that needs a new certificate costs CPU.
fn may_name(gateway: &Gateway, party: &Party, target: &Target) -> bool {
    let bottle = &party.bottle.key;
    gateway.leaves.has(bottle, &target.host) || gateway.new_names.admit(bottle)
}

fn too_many_names(gateway: &Gateway, target: &Target) -> Refusal {
    let most = gateway.budget.new_names_per_second;
    Refusal::new(Reason::Rate, format!("the bottle opens tunnels to more than {most} new names a second"))
        .limit(u64::from(most), "limits.new_names_per_second")
        .host(target.host.to_string())
        .hint("wait a second, and open tunnels to fewer names at a time")
}

fn parse(request: &Request<Incoming>) -> Result<Target, Refusal> {
    let Some(authority) = request.uri().authority() else {
        return Err(Refusal::new(Reason::Framing, "CONNECT names host and port").close());
    };
    Target::from_authority(authority.as_str()).map_err(|error| serve::bad_target(&error))
}

fn refused(refusal: Refusal) -> Intent {
    Intent::Open(Some(Box::new(refusal)))
}

/// Decides from the target alone. The host's labels are scanned before anything else is done with them.
fn decide(connection: &Connection, party: &Party, target: &Target) -> Intent {
    if serve::is_internal(target) {
        return Intent::Open(None);
    }
    if party.probe {
        return refused(exchange::probe_elsewhere());
    }
    let book = connection.gateway.book();
    if let Some(refusal) = denial(connection, party, target) {
        return refused(refusal);
    }
    match book.policy_or_nothing(&party.bottle).host(target) {
        HostVerdict::Passthrough(target, route) => {
            if let Some(refusal) = connection.gateway.cut_offs.refusal(&party.bottle.key) {
                return refused(refusal.host(target.host.to_string()));
            }
            let exchange = Exchange::for_tunnel(connection, &party.bottle, &book, &target, &route);
            match exchange::scan_host(&exchange, &route) {
                None => Intent::Splice(target, exchange),
                Some(refusal) => refused(refusal),
            }
        }
        // Each request is judged for itself; of a merely observed denial each leaves its record.
        HostVerdict::Possible | HostVerdict::Denied => Intent::Open(None),
    }
}

/// Why the rules in force now refuse every request to `target`, if they do.
pub(super) fn denial(connection: &Connection, party: &Party, target: &Target) -> Option<Refusal> {
    let book = connection.gateway.book();
    let Some(policy) = book.policy_of(&party.bottle) else {
        return Some(Refusal::new(Reason::Policy, "the bottle's policy does not exist"));
    };
    let enforces = party.bottle.mode.unwrap_or(policy.mode) == Mode::Enforce;
    let denied = enforces && matches!(policy.host(target), HostVerdict::Denied);
    denied.then(|| exchange::denied_host(&policy.name, target))
}

/// Whether a tunnel that was opened is still allowed.
struct Allowed {
    connection: Arc<Connection>,
    party: Party,
    target: Target,
    /// It leads into the gateway itself, is answered with a refusal, or belongs to the probe: no reload ends it.
    always: bool,
    /// Its bytes pass unopened, which a route must say.
    spliced: bool,
}

impl Allowed {
    fn new(connection: &Arc<Connection>, party: &Party, target: &Target, intent: &Intent) -> Self {
        Self {
            connection: connection.clone(),
            party: party.clone(),
            target: target.clone(),
            always: party.probe || serve::is_internal(target) || matches!(intent, Intent::Open(Some(_))),
            spliced: matches!(intent, Intent::Splice(..)),
        }
    }

    /// Returns once the rules have not allowed the tunnel for `limits.reload_grace`.
    async fn no_longer(self) {
        let grace = self.connection.gateway.budget.reload_grace;
        let mut books = self.connection.gateway.book_changes();
        let mut since: Option<Instant> = None;
        loop {
            // Asked once before anything changes: the rules may be others since the tunnel was decided on.
            since = if self.holds() { None } else { since.or(Some(Instant::now())) };
            let due = since.map(|since| since + grace);
            tokio::select! {
                changed = books.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => break,
            }
        }
        tracing::info!(bottle = %self.party.bottle.key.name, "a tunnel was ended: it is no longer allowed");
    }

    fn holds(&self) -> bool {
        if self.always {
            return true;
        }
        let Some(bottle) = self.connection.bottle_now() else { return false };
        let party = Party { bottle, probe: false };
        if self.spliced {
            let policy = self.connection.gateway.book().policy_or_nothing(&party.bottle);
            return matches!(policy.host(&self.target), HostVerdict::Passthrough(..));
        }
        denial(&self.connection, &party, &self.target).is_none()
    }
}

/// What is inside an opened tunnel.
enum Inside {
    Tls(Box<TlsStream<Prefixed<TcpStream>>>),
    Plain(Prefixed<TcpStream>),
}

async fn run(upgraded: Upgraded, connection: Arc<Connection>, party: Party, target: Target, intent: Intent) {
    // Boxed: opening a tunnel takes a large state, which is gone once it is open.
    let opened = Box::pin(open_up(upgraded, connection, party, target, intent)).await;
    match opened {
        Some((Inside::Tls(stream), tunnel)) => {
            let h2 = stream.get_ref().1.alpn_protocol() == Some(tls::ALPN_H2);
            Box::pin(serve::inner(stream, tunnel, h2)).await;
        }
        Some((Inside::Plain(io), tunnel)) => Box::pin(serve::inner(io, tunnel, false)).await,
        None => {}
    }
}

/// Opens what can be opened; what passes on unopened has passed when this returns.
async fn open_up(
    upgraded: Upgraded,
    connection: Arc<Connection>,
    party: Party,
    target: Target,
    intent: Intent,
) -> Option<(Inside, Arc<Tunnel>)> {
    let Ok(parts) = upgraded.downcast::<TokioIo<Watched<TcpStream>>>() else {
        tracing::error!("a tunnel's connection is not the one that was accepted");
        return None;
    };
    let opening = tls::read_opening(
        parts.io.into_inner().into_inner(),
        parts.read_buf,
        connection.gateway.budget.hello,
    )
    .await;
    match (opening, intent) {
        (Ok(Opening::Tls(hello)), Intent::Splice(target, exchange)) => {
            splice(hello, &target, &exchange).await;
        }
        (Ok(Opening::Tls(hello)), Intent::Open(refusal)) => {
            return open_tls(hello, connection, party, target, refusal.map(|refusal| *refusal)).await;
        }
        (Ok(Opening::Http(io)), intent) => {
            return Some((Inside::Plain(io), open_plain(connection, party, target, intent)));
        }
        (Ok(Opening::Silent(_) | Opening::Unknown(_)), _) => opaque(&connection, &party, &target),
        (Err(error), _) => {
            let target = shown(&connection, &target);
            tracing::info!(bottle = %party.bottle.key.name, target, %error, "a tunnel ended before its first request");
        }
    }
    None
}

/// Neither TLS nor HTTP: nothing that could be looked into, and nothing to answer in.
fn opaque(connection: &Connection, party: &Party, target: &Target) {
    let refusal = Refusal::new(Reason::Opaque, "the tunnel began with neither TLS nor HTTP");
    let refusal = refusal.host(target.host.to_string());
    serve::note_refused(connection, Some(&party.bottle), &Method::CONNECT, &refusal);
}

/// The target as it may be written down: nothing has scanned it yet.
fn shown(connection: &Connection, target: &Target) -> String {
    exchange::shown_authority(&connection.gateway.book(), target)
}

/// Ends the client's TLS.
async fn open_tls(
    hello: Hello<TcpStream>,
    connection: Arc<Connection>,
    party: Party,
    target: Target,
    refusal: Option<Refusal>,
) -> Option<(Inside, Arc<Tunnel>)> {
    let gateway = connection.gateway.clone();
    let (name, refusal) = match hello.server_name() {
        Some(sni) if !target.is_served_as(&sni) => {
            let refusal = Refusal::new(
                Reason::Authority,
                format!("the tunnel leads to {target}, the ClientHello names another host"),
            );
            (Host::parse(&sni).unwrap_or_else(|_| target.host.clone()), Some(refusal))
        }
        _ => (target.host.clone(), refusal),
    };
    let config = match gateway.leaves.server_config(&party.bottle.key, &name) {
        Ok(config) => config,
        Err(error) => {
            let target = shown(&connection, &target);
            tracing::error!(target, %error, "no leaf certificate");
            return None;
        }
    };
    let (limit, buffer) = (gateway.budget.tls.handshake_timeout, connection.sizes().tls);
    match tls::accept(hello, config, limit, buffer).await {
        Ok(stream) => {
            let tunnel = Tunnel { connection, party, target, refusal };
            Some((Inside::Tls(Box::new(stream)), Arc::new(tunnel)))
        }
        Err(error) => {
            let target = shown(&connection, &target);
            tracing::warn!(bottle = %party.bottle.key.name, target, %error, "a tunnel ended in its handshake");
            None
        }
    }
}

/// HTTP in clear inside a tunnel (`ws://` clients and undici's ProxyAgent do it): inspected like any other.
fn open_plain(connection: Arc<Connection>, party: Party, target: Target, intent: Intent) -> Arc<Tunnel> {
    let target = target.with_scheme(Scheme::Http);
    let refusal = match intent {
        Intent::Open(refusal) => refusal.map(|refusal| *refusal),
        Intent::Splice(..) => {
            Some(Refusal::new(Reason::Authority, "a route that passes TLS through passes nothing else"))
        }
    };
    Arc::new(Tunnel { connection, party, target, refusal })
}

/// Passes bytes on unopened, if the ClientHello names the tunnel's target; counted as skipped.
async fn splice(hello: Hello<TcpStream>, target: &Authorized<Target>, exchange: &Arc<Exchange>) {
    let gateway = &exchange.gateway;
    if !hello.server_name().is_some_and(|sni| target.is_served_as(&sni)) {
        return exchange.end_tunnel(Refusal::new(
            Reason::Authority,
            "the ClientHello does not name the target of the tunnel",
        ));
    }
    let upstream = match gateway.upstreams.dial(target).await {
        Ok(stream) => stream,
        Err(error) => return exchange.end_tunnel(exchange::upstream_refusal(exchange, &error)),
    };
    let (opening, client) = hello.into_raw();
    let moved = upstream::splice(Prefixed::new(opening, client), upstream, gateway.budget.splice).await;
    exchange.passed_through(&moved);
}
