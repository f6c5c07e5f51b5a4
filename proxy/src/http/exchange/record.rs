//! The record of one exchange: who, where, what came of it.
//!
//! Kept by everything that works on the exchange and written when the last of them lets go: one log line, one count.
//! Invariant: it holds no body byte and no query; a host or path that holds what a detector finds is written down masked.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use decant_config::{ExchangeLog, Mode};
use http::{Method, StatusCode, request};
use tokio::time::Instant;

use super::super::holders::{Waits, Weaks};
use super::super::refusal::Refusal;
use super::line::{Half, Line};
use super::shown::{self, MASKED, Masks};
use crate::app::{Gateway, RuleBook};
use crate::budget::Reservation;
use crate::identity::Bottle;
use crate::inspect::{Counts, Direction, Judge as _, Windows, is_extension};
use crate::listen::Connection;
use crate::policy::{Authorized, Policy, Route};
use crate::target::Target;
use crate::telemetry::{Up, write_line};
use crate::upstream::{SpliceEnd, Spliced};

/// Characters of a path that are logged.
const PATH_LOGGED_CHARS: usize = 256;

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
    masks: OnceLock<Masks>,
    state: Mutex<State>,
    /// The memory of its decoders, and what it has reserved for itself.
    pub(super) windows: Windows,
    held: Mutex<Vec<Reservation>>,
    /// Whether it waits for its client.
    pub(crate) waits: Waits,
    /// Those of its connection.
    siblings: Arc<Weaks<Self>>,
    _open: Up,
}

/// What is known by now.
#[derive(Default)]
pub(super) struct State {
    /// The first refusal that takes effect.
    pub(super) refusal: Option<Box<Refusal>>,
    /// Whether it was sent to the client as an answer of its own.
    pub(super) answered: bool,
    /// The first refusal that was only observed.
    pub(super) would_block: Option<Box<Refusal>>,
    pub(super) status: Option<StatusCode>,
    /// Whether the answer's last byte went out.
    pub(super) finished: bool,
    pub(super) findings: u32,
    /// Who broke off what had begun, where that is known.
    pub(super) aborted_by: Option<&'static str>,
    pub(super) upstream_seconds: Option<f64>,
    pub(super) request: Flow,
    pub(super) response: Flow,
}

/// One direction.
#[derive(Default)]
pub(super) struct Flow {
    counts: Counts,
    pub(super) skipped_because: Option<&'static str>,
    pub(super) codings: Vec<&'static str>,
}

impl State {
    pub(super) fn flow(&mut self, direction: Direction) -> &mut Flow {
        if direction == Direction::Request { &mut self.request } else { &mut self.response }
    }
}

impl Flow {
    fn half(&self) -> Half<'_> {
        let Counts { received, scanned, skipped, .. } = self.counts;
        let skipped_because = self.skipped_because.filter(|_| skipped > 0);
        Half { received, scanned, skipped, skipped_because, codings: &self.codings }
    }
}

/// As much of a path as is logged.
fn logged(path: &str) -> &str {
    let end = path.char_indices().nth(PATH_LOGGED_CHARS).map_or(path.len(), |(at, _)| at);
    &path[..end]
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
    pub(crate) fn for_tunnel(
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
            path: logged(path).to_owned(),
            route: OnceLock::new(),
            started: Instant::now(),
            active: Mutex::new(Instant::now()),
            masks: OnceLock::new(),
            state: Mutex::default(),
            windows: Windows::of(&connection.gateway.admission, &bottle.key),
            held: Mutex::default(),
            waits: Waits::default(),
            siblings: connection.exchanges.clone(),
        })
    }

    /// Keeps memory for as long as anything works on the exchange.
    pub(super) fn hold(&self, memory: impl IntoIterator<Item = Reservation>) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).extend(memory);
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
        self.state().would_block.get_or_insert_with(|| Box::new(refusal));
    }

    /// Records the refusal that ends the exchange before its answer's head, and completes it for the client.
    pub(super) fn refuse(&self, refusal: Refusal) -> Refusal {
        let refusal = refusal.for_exchange(&self.bottle.key.name, &self.id);
        let mut state = self.state();
        state.status = Some(refusal.code());
        state.answered = true;
        state.refusal.get_or_insert_with(|| Box::new(refusal.clone()));
        refusal
    }

    /// Ends a tunnel that is passed on unopened, for which there are no words to answer in.
    pub(crate) fn end_tunnel(&self, refusal: Refusal) {
        let refusal = refusal.host(self.target.host.to_string());
        self.state().refusal.get_or_insert_with(|| Box::new(refusal));
    }

    /// Notes what a tunnel that was passed on unopened carried, and how it ended.
    pub(crate) fn passed_through(&self, moved: &Spliced) {
        if let SpliceEnd::Idle(_) = moved.end {
            self.aborted_by("gateway");
        }
        for (direction, bytes) in [(Direction::Request, moved.sent), (Direction::Response, moved.received)] {
            self.skips(direction, "passthrough");
            self.body_bytes(
                direction,
                Counts { received: bytes, scanned: 0, released: bytes, skipped: bytes },
            );
        }
        self.state().finished = true;
    }

    /// The block that ended a body, if one did.
    pub(super) fn take_block(&self) -> Option<Refusal> {
        self.state().refusal.as_deref().cloned()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn masks(&self) -> Masks {
        *self.masks.get_or_init(|| Masks::of(&self.book, &self.target.host, &self.path))
    }

    /// The path as it may be written down.
    pub(super) fn shown_path(&self) -> &str {
        if self.masks().path { MASKED } else { &self.path }
    }

    /// The host as it may be written down.
    pub(super) fn shown_host(&self) -> String {
        if self.masks().host { MASKED.to_owned() } else { self.target.host.to_string() }
    }

    /// Whether its answer has begun, and how many bytes have come from the client or gone to it.
    pub(crate) fn progress(&self) -> (bool, u64) {
        let state = self.state();
        (state.status.is_some(), state.request.counts.received + state.response.counts.released)
    }

    /// Notes who broke the exchange off; the first who did counts.
    pub(crate) fn aborted_by(&self, who: &'static str) {
        self.state().aborted_by.get_or_insert(who);
    }

    /// Notes why bytes of a body are not scanned.
    pub(super) fn skips(&self, direction: Direction, why: &'static str) {
        self.state().flow(direction).skipped_because = Some(why);
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
        self.held_bytes(direction).add(signed(counts.received) - signed(counts.released));
        let mut state = self.state();
        let sum = &mut state.flow(direction).counts;
        sum.received += counts.received;
        sum.scanned += counts.scanned;
        sum.released += counts.released;
        sum.skipped += counts.skipped;
    }

    fn held_bytes(&self, direction: Direction) -> prometheus::IntGauge {
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

    /// Who broke the exchange off, if it did not come to an end.
    fn who_aborted(state: &State) -> Option<&'static str> {
        if state.finished || state.answered {
            return state.aborted_by;
        }
        let gateway = state.refusal.as_ref().map(|_| "gateway");
        state.aborted_by.or(gateway).or(Some("client"))
    }

    fn log(&self, state: &State, verdict: &'static str) {
        let wanted = match self.book.log_exchanges {
            ExchangeLog::All => true,
            ExchangeLog::Refused => state.refusal.is_some() || state.would_block.is_some(),
            ExchangeLog::Off => false,
        };
        if !wanted {
            return;
        }
        let refusal = state.refusal.as_deref().or(state.would_block.as_deref());
        let names_host = refusal.is_none_or(Refusal::names_host);
        let mut line = Line::new(&self.id, &self.bottle.key.name, shown_method(&self.method), verdict);
        if let Some(refusal) = refusal {
            let host = self.target.host.to_string();
            line = line.refused(refusal, shown::sentence(&refusal.detail, &host, self.masks().host));
        }
        write_line(&Line {
            labels: Some(&self.bottle.labels),
            policy: Some(&self.policy.name),
            route: self.route.get().map(|route| &*route.name),
            mode: Some(self.mode().as_str()),
            host: names_host.then(|| self.shown_host()),
            path: Some(self.shown_path()),
            status: state.status.map(|status| status.as_u16()),
            request: Some(state.request.half()),
            response: Some(state.response.half()),
            seconds: Some(self.started.elapsed().as_secs_f64()),
            upstream_seconds: state.upstream_seconds,
            aborted_by: Self::who_aborted(state),
            ..line
        });
    }
}

impl Drop for Exchange {
    /// Writes the record: the last body or task that worked on the exchange has let go.
    fn drop(&mut self) {
        // A connection that goes on does not keep what is over.
        self.siblings.forget_ended();
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let verdict = Self::verdict(&state);
        for (direction, counts) in
            [(Direction::Request, state.request.counts), (Direction::Response, state.response.counts)]
        {
            self.held_bytes(direction).sub(signed(counts.received) - signed(counts.released));
        }
        let metrics = &self.gateway.metrics;
        metrics.exchanged(&self.bottle, &self.policy.name, verdict);
        metrics.exchange_seconds.observe(self.started.elapsed().as_secs_f64());
        if let Some(refusal) = &state.refusal
            && !refusal.reason.is_failure()
        {
            metrics.blocked(Some(&self.bottle), refusal.reason);
            let refusal = Refusal::clone(refusal).for_exchange(&self.bottle.key.name, &self.id);
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

/// Logs a refusal of a request from `client` that no exchange stands behind.
pub(crate) fn log_refused(
    connection: &Connection,
    (id, bottle): (&str, &str),
    method: &Method,
    refusal: &Refusal,
) {
    let book = connection.gateway.book();
    if book.log_exchanges == ExchangeLog::Off {
        return;
    }
    let masked = refusal.host_name().is_some_and(|host| shown::name_tells(&book, host));
    let host = refusal.host_name().map(|host| if masked { MASKED } else { host });
    let detail = shown::sentence(&refusal.detail, refusal.host_name().unwrap_or_default(), masked);
    write_line(&Line {
        client: Some(connection.client()),
        host: host.map(str::to_owned),
        status: Some(refusal.code().as_u16()),
        ..Line::new(id, bottle, shown_method(method), "blocked").refused(refusal, detail)
    });
}
