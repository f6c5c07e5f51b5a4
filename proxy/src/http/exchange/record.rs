//! The record of one exchange: who, where, what came of it.
//!
//! Kept by everything that works on the exchange and written when the last of them lets go: one log line, one count.
//! Invariant: it holds no body byte and no query; where a value was found in the URL, the path is left out.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use decant_config::{ExchangeLog, Mode};
use http::{Method, StatusCode, request};
use tokio::time::Instant;

use super::super::refusal::Refusal;
use crate::app::{Gateway, RuleBook};
use crate::identity::Bottle;
use crate::inspect::{Counts, Direction, Surface, is_extension};
use crate::listen::Connection;
use crate::policy::{Authorized, Policy, Route};
use crate::target::Target;
use crate::telemetry::Up;

/// Bytes of a path that are logged.
const PATH_LOGGED_BYTES: usize = 256;

/// One exchange.
pub(crate) struct Exchange {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) book: Arc<RuleBook>,
    pub(crate) bottle: Arc<Bottle>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) target: Target,
    pub(crate) id: String,
    pub(crate) method: Method,
    path: String,
    route: OnceLock<Arc<Route>>,
    started: Instant,
    active: Mutex<Instant>,
    state: Mutex<State>,
    _open: Up,
}

/// What is known by now.
#[derive(Default)]
pub(super) struct State {
    /// The first refusal that takes effect.
    pub(super) refusal: Option<Refusal>,
    /// Whether it was sent to the client as an answer of its own.
    pub(super) answered: bool,
    /// The first refusal that was only observed.
    pub(super) would_block: Option<Refusal>,
    pub(super) status: Option<StatusCode>,
    /// Whether the answer's last byte went out.
    pub(super) finished: bool,
    pub(super) path_masked: bool,
    pub(super) findings: u32,
    request: Counts,
    response: Counts,
}

impl Exchange {
    /// Begins the record of a request.
    pub(crate) fn begin(
        connection: &Connection,
        bottle: &Arc<Bottle>,
        target: &Target,
        parts: &request::Parts,
    ) -> Arc<Self> {
        let book = connection.gateway.book();
        let policy = book.policy_or_nothing(bottle);
        Self::new(connection, bottle, book, policy, target.clone(), parts.method.clone(), parts.uri.path())
    }

    /// The record of a tunnel that is passed on unopened.
    pub(super) fn for_tunnel(
        connection: &Connection,
        bottle: &Arc<Bottle>,
        book: &Arc<RuleBook>,
        target: &Authorized<Target>,
        route: &Arc<Route>,
    ) -> Arc<Self> {
        let policy = book.policy_or_nothing(bottle);
        let exchange =
            Self::new(connection, bottle, book.clone(), policy, (**target).clone(), Method::CONNECT, "");
        exchange.set_route(route);
        exchange
    }

    fn new(
        connection: &Connection,
        bottle: &Arc<Bottle>,
        book: Arc<RuleBook>,
        policy: Arc<Policy>,
        target: Target,
        method: Method,
        path: &str,
    ) -> Arc<Self> {
        connection.gateway.journal.began(bottle);
        Arc::new(Self {
            _open: Up::new(connection.gateway.metrics.exchanges_open.clone()),
            gateway: connection.gateway.clone(),
            book,
            bottle: bottle.clone(),
            policy,
            target,
            id: connection.gateway.request_id(),
            method,
            path: path.chars().take(PATH_LOGGED_BYTES).collect(),
            route: OnceLock::new(),
            started: Instant::now(),
            active: Mutex::new(Instant::now()),
            state: Mutex::default(),
        })
    }

    /// Whether verdicts take effect: the bottle's mode, else its policy's.
    pub(crate) fn enforces(&self) -> bool {
        self.mode() == Mode::Enforce
    }

    pub(super) fn mode(&self) -> Mode {
        self.bottle.mode.unwrap_or(self.policy.mode)
    }

    pub(super) fn set_route(&self, route: &Arc<Route>) {
        // An exchange has one route; a second call would be a retry with the same one.
        let _ = self.route.set(route.clone());
    }

    pub(super) fn route(&self) -> Option<&Arc<Route>> {
        self.route.get()
    }

    pub(super) fn route_name(&self) -> &str {
        self.route.get().map_or("", |route| &route.name)
    }

    pub(super) fn set_status(&self, status: StatusCode) {
        self.state().status = Some(status);
    }

    /// Records what a policy that only observes would have refused.
    pub(super) fn would_block(&self, refusal: Refusal) {
        self.state().would_block.get_or_insert(refusal);
    }

    /// Records the refusal that ends the exchange before its answer's head, and completes it for the client.
    pub(super) fn refuse(&self, refusal: Refusal) -> Refusal {
        let refusal = refusal.for_exchange(&self.bottle.key.name, &self.id);
        let mut state = self.state();
        state.status = Some(refusal.code());
        state.answered = true;
        state.refusal.get_or_insert_with(|| refusal.clone());
        refusal
    }

    /// The block that ended a body, if one did.
    pub(super) fn take_block(&self) -> Option<Refusal> {
        self.state().refusal.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path as it may be logged.
    pub(super) fn logged_path(&self, surface: Option<Surface>) -> &str {
        if surface == Some(Surface::Url) || self.state().path_masked { "(masked)" } else { &self.path }
    }

    /// Returns once no body byte has come either way for `exchange_idle_timeout`.
    pub(super) async fn idle(&self) {
        let limit = self.gateway.budget.exchange_idle_timeout;
        loop {
            let due = *self.active.lock().unwrap_or_else(PoisonError::into_inner) + limit;
            if Instant::now() >= due {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    pub(super) fn count(&self, direction: Direction, counts: Counts) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.held(direction).add(signed(counts.received) - signed(counts.released));
        let mut state = self.state();
        let sum = if direction == Direction::Request { &mut state.request } else { &mut state.response };
        sum.received += counts.received;
        sum.scanned += counts.scanned;
        sum.released += counts.released;
        sum.skipped += counts.skipped;
    }

    fn held(&self, direction: Direction) -> prometheus::IntGauge {
        self.gateway.metrics.held_bytes.with_label_values(&[direction.name()])
    }

    fn verdict(state: &State) -> &'static str {
        match state {
            State { refusal: Some(refusal), .. } if refusal.reason.is_failure() => "failed",
            State { refusal: Some(_), .. } => "blocked",
            State { finished: false, .. } => "failed",
            State { would_block: Some(_), .. } => "would_block",
            _ => "passed",
        }
    }

    fn log(&self, state: &State, verdict: &str) {
        let wanted = match self.book.log_exchanges {
            ExchangeLog::All => true,
            ExchangeLog::Refused => state.refusal.is_some() || state.would_block.is_some(),
            ExchangeLog::Off => false,
        };
        if !wanted {
            return;
        }
        let refusal = state.refusal.as_ref().or(state.would_block.as_ref());
        tracing::info!(
            target: "decant::exchange",
            request = %self.id,
            bottle = %self.bottle.key.name,
            labels = ?self.bottle.labels,
            policy = %self.policy.name,
            route = self.route_name(),
            method = shown_method(&self.method),
            host = refusal.is_none_or(Refusal::names_host).then(|| self.target.host.to_string()),
            path = if state.path_masked { "(masked)" } else { &self.path },
            status = state.status.map_or(0, |status| status.as_u16()),
            verdict,
            reason = refusal.map_or("", |refusal| refusal.reason.as_str()),
            detail = refusal.map_or("", |refusal| &refusal.detail),
            detector = refusal.and_then(|refusal| refusal.detector.as_deref()),
            request_received = state.request.received,
            request_scanned = state.request.scanned,
            request_skipped = state.request.skipped,
            response_received = state.response.received,
            response_scanned = state.response.scanned,
            response_skipped = state.response.skipped,
            seconds = self.started.elapsed().as_secs_f64(),
            "exchange"
        );
    }
}

impl Drop for Exchange {
    /// Writes the record: the last body or task that worked on the exchange has let go.
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let verdict = Self::verdict(&state);
        for (direction, counts) in
            [(Direction::Request, state.request), (Direction::Response, state.response)]
        {
            self.held(direction).sub(signed(counts.received) - signed(counts.released));
        }
        let metrics = &self.gateway.metrics;
        let bottle = metrics.bottle_label(&self.bottle.key.name);
        metrics.exchanges.with_label_values(&[&*self.policy.name, bottle, verdict]).inc();
        metrics.exchange_seconds.observe(self.started.elapsed().as_secs_f64());
        if let Some(refusal) = &state.refusal
            && !refusal.reason.is_failure()
        {
            metrics.blocked(&self.bottle.key.name, refusal.reason);
            let refusal = refusal.clone().for_exchange(&self.bottle.key.name, &self.id);
            self.gateway.blocks.note(&self.bottle.key, &self.method, refusal);
        }
        self.log(&state, verdict);
    }
}

/// A method as it may be written down: one that no RFC knows is a word of the client's choice.
pub(crate) fn shown_method(method: &Method) -> &str {
    if is_extension(method) { "(extension)" } else { method.as_str() }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Logs a refusal that no exchange stands behind.
pub(crate) fn log_refused(id: &str, bottle: &str, method: &Method, refusal: &Refusal, client: IpAddr) {
    tracing::info!(
        target: "decant::exchange",
        request = id,
        bottle,
        method = shown_method(method),
        %client,
        status = refusal.code().as_u16(),
        verdict = "blocked",
        reason = refusal.reason.as_str(),
        detail = refusal.detail,
        "exchange"
    );
}
