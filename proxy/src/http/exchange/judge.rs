//! The judge of one exchange: what a finding means here.
//!
//! Place in the path: the scanners report, `meaning` says what that leads to here, this writes down and enforces. Invariants: a finding is recorded before its
//! ruling takes effect, and one that cannot be recorded blocks; the matched value is used for its fingerprint and
//! kept nowhere.

use std::sync::Arc;

use decant_config::{MatchAction, Severity};
use decant_detectors::Confidence;
use http::{HeaderMap, StatusCode};

use super::super::head;
use super::super::refusal::{Reason, Refusal};
use super::record::{Exchange, shown_method};
use super::shown::MASKED;
use crate::audit::{self, FindingRecord};
use crate::budget::NoMemory;
use crate::exceptions;
use crate::inspect::{
    self, Blocked, BodyPlan, Counts, Direction, Fixed, HeadScan, Hit, Judge, Ruling, Trouble, TroubleKind,
};
use crate::meaning::{Meaning, Scene};
use crate::policy::Side;
use crate::rules::Facts;
use crate::telemetry::{FINDINGS_LOG, FINDINGS_QUOTA};
use crate::turns::Seat;

/// Findings of one exchange that are written down one by one; further ones are counted.
const FINDINGS_WRITTEN_MAX: u32 = 100;

impl Exchange {
    /// The scan of a head in `direction`, which consists of `headers` and what precedes them.
    pub(super) fn head_scan<'a>(
        &'a self,
        direction: Direction,
        side: &'a Side,
        headers: &HeaderMap,
    ) -> HeadScan<'a> {
        HeadScan {
            rules: &self.book.detectors.rules,
            selection: &side.selection,
            direction,
            judge: self,
            fixed: self.fixed(side, headers),
        }
    }

    /// Why no match in a message may be overwritten, if so. Where nothing asks for it, that is settled from the start.
    fn fixed(&self, side: &Side, headers: &HeaderMap) -> Option<Fixed> {
        let asked = side.on_match == Some(MatchAction::Redact) || self.book.redacts;
        match asked {
            false => Some(Fixed::Surface),
            true => head::is_sealed(headers).then_some(Fixed::Sealed),
        }
    }

    /// Plans a body from its head. A coding that cannot be decoded is judged here, before a byte is read; where it may
    /// pass, the bytes are scanned as they come.
    pub(super) fn body_plan(
        self: &Arc<Self>,
        headers: &HeaderMap,
        direction: Direction,
        side: &Side,
    ) -> Result<BodyPlan, Refusal> {
        let layers = self.gateway.budget.coding_layers;
        let codings = inspect::codings_of_body(headers, direction, layers, &**self)
            .map_err(|blocked| self.refusal(&blocked))?;
        self.state().flow(direction).codings = codings.iter().map(|coding| coding.step().name()).collect();
        Ok(BodyPlan {
            rules: self.book.detectors.rules.clone(),
            selection: side.selection.clone(),
            direction,
            codings,
            strict: side.strict,
            fixed: self.fixed(side, headers),
            limits: self.gateway.budget.inspect,
            windows: self.windows.clone(),
            seat: Some(Seat::new(&self.gateway.turns, &self.bottle.key)),
            judge: self.clone(),
        })
    }

    /// The refusal for what the scanners blocked.
    pub(super) fn refusal(&self, blocked: &Blocked) -> Refusal {
        // The judge has recorded it already, with what is not said to scanners.
        self.take_block().unwrap_or_else(|| Refusal::new(Reason::Detector, blocked.to_string()))
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            book: &self.book,
            route: self.route().map(|route| &**route),
            bottle: &self.bottle.key.name,
            host: &self.target.host,
        }
    }

    /// Memory is a limit that no mode and no route relaxes.
    fn no_memory(&self, short: NoMemory) -> Ruling {
        self.gateway.metrics.shed.with_label_values(&[short.setting]).inc();
        let refusal = Refusal::from(short);
        self.state().refusal.get_or_insert_with(|| Box::new(refusal.host(self.target.host.to_string())));
        Ruling::Block
    }

    fn block(&self, refusal: Refusal) -> Ruling {
        if self.enforces() {
            self.state().refusal.get_or_insert_with(|| Box::new(refusal));
            return Ruling::Block;
        }
        self.would_block(refusal);
        Ruling::Pass
    }

    fn detector_refusal(&self, hit: &Hit, facts: &Facts, value: Option<&[u8]>, unredacted: bool) -> Refusal {
        let place = &hit.place;
        if facts.is_secret {
            return self.secret_refusal(hit);
        }
        let mut detail =
            format!("{} found in the {} {}", facts.id, place.direction.name(), place.surface.name());
        if let Some(fixed) = hit.fixed.filter(|_| unredacted) {
            detail = format!("{detail}, and not redacted: {}", fixed.words());
        }
        let mut refusal = Refusal::new(Reason::Detector, detail);
        refusal.detector = Some(facts.id.to_string());
        refusal.direction = Some(place.direction.name());
        refusal.surface = Some(place.surface.part());
        refusal.offset = Some(place.offset);
        let host = self.target.host.to_string();
        if !holds(&host, value) {
            refusal = refusal.host(host);
        }
        refusal.hint("remove the value, or ask the operator for an exception")
    }

    /// What a bottle reads of a known value: neither which, nor where, nor how much of it was there.
    fn secret_refusal(&self, hit: &Hit) -> Refusal {
        let place = &hit.place;
        let mut refusal = Refusal::new(
            Reason::Detector,
            format!(
                "the {} {} holds a value that may not go to this host",
                place.direction.name(),
                place.surface.part()
            ),
        );
        refusal.direction = Some(place.direction.name());
        refusal.surface = Some(place.surface.part());
        // The host may be what holds it, in any disguise.
        if !self.masks().host {
            refusal = refusal.host(self.target.host.to_string());
        }
        refusal.hint("remove the value, or ask the operator where it may go")
    }

    /// Notes that the bottle hit a known value, once for each exchange.
    fn note_secret(&self) {
        if !self.enforces() || self.state().refusal.is_some() || !self.gateway.cut_offs.note(&self.bottle.key)
        {
            return;
        }
        self.gateway.metrics.cut_off(&self.bottle);
        tracing::warn!(
            bottle = %self.bottle.key.name,
            "the bottle hit known values again and again and is cut off for limits.secret_cut_off"
        );
    }

    /// Writes the finding down; past the quota it is only counted.
    fn record(
        &self,
        hit: &Hit,
        facts: &Facts,
        value: Option<&[u8]>,
        action: &'static str,
        exception: Option<&str>,
    ) -> std::io::Result<()> {
        let place = &hit.place;
        self.gateway
            .metrics
            .findings
            .with_label_values(&[facts.family(), place.direction.name(), action])
            .inc();
        if self.note_finding() > FINDINGS_WRITTEN_MAX || !self.gateway.audit.admit(&self.bottle.key) {
            self.gateway.metrics.log_dropped.with_label_values(&[FINDINGS_QUOTA]).inc();
            return Ok(());
        }
        let host = self.shown_host();
        let record = FindingRecord {
            time: audit::now(),
            id: self.gateway.request_id(),
            request: &self.id,
            bottle: &self.bottle.key.name,
            policy: &self.policy.name,
            route: self.route_name(),
            mode: self.mode().as_str(),
            enforced: self.enforces(),
            method: shown_method(&self.method),
            host: if holds(&host, value) { MASKED } else { &host },
            path: self.shown_path(),
            detector: &facts.id,
            severity: severity(facts.severity),
            confidence: confidence(hit.confidence),
            direction: place.direction.name(),
            surface: place.surface.name(),
            view: &place.view.to_string(),
            offset: place.offset,
            length: hit.length,
            action,
            fingerprint: value.map(|value| self.gateway.audit.fingerprint(value)),
            exception,
        };
        self.gateway.audit.write(&record)
    }

    fn note_finding(&self) -> u32 {
        let mut state = self.state();
        state.findings += 1;
        state.findings
    }
}

impl Judge for Exchange {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let facts = self.book.detectors.facts(hit.rule);
        let scene = self.scene();
        let fingerprint = || value.map(|value| self.gateway.audit.fingerprint(value));
        let (wanted, exception) = match scene.meaning(hit, exceptions::today(), fingerprint) {
            Meaning::Expected => {
                let labels = [facts.family(), hit.place.direction.name(), "expected"];
                self.gateway.metrics.findings.with_label_values(&labels).inc();
                return Ruling::Pass;
            }
            Meaning::Acts { action, exception } => (action, exception),
        };
        if facts.is_secret {
            self.note_secret();
        }
        // Where a value cannot be overwritten in place, `redact` blocks.
        let unredacted = wanted == MatchAction::Redact && hit.fixed.is_some();
        let action = if unredacted { MatchAction::Block } else { wanted };
        let name = exception.map(|one| one.name.as_str());
        if let Err(error) = self.record(hit, facts, value, action.as_str(), name) {
            tracing::error!(%error, "a finding could not be written; the exchange is blocked");
            self.gateway.metrics.log_dropped.with_label_values(&[FINDINGS_LOG]).inc();
            return self.block(self.detector_refusal(hit, facts, value, unredacted));
        }
        match action {
            MatchAction::Alert => Ruling::Pass,
            MatchAction::Redact if self.enforces() => Ruling::Redact,
            MatchAction::Redact => Ruling::Pass,
            MatchAction::Block => self.block(self.detector_refusal(hit, facts, value, unredacted)),
        }
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        let place = &trouble.place;
        if let TroubleKind::Memory(short) = trouble.kind {
            return self.no_memory(short);
        }
        if matches!(trouble.kind, TroubleKind::Opaque(_)) {
            // What it is made of has been scanned as it came.
            if self.scene().may_pass_opaque(place.direction) {
                return Ruling::Pass;
            }
        } else if self.scene().may_pass_undecodable(place.direction) {
            self.skips(place.direction, "undecodable");
            return Ruling::Pass;
        }
        let mut refusal = Refusal::new(reason_of(&trouble.kind), trouble.kind.to_string())
            .host(self.target.host.to_string());
        if let Some(setting) = trouble.kind.setting() {
            refusal = match trouble.kind.limit(&self.gateway.budget.inspect) {
                Some(limit) => refusal.limit(limit, setting),
                None => refusal.setting(setting),
            };
            if refusal.reason == Reason::Overlong {
                refusal = refusal.status(StatusCode::PAYLOAD_TOO_LARGE);
            }
        }
        if place.direction == Direction::Response {
            refusal = refusal.status(StatusCode::BAD_GATEWAY);
        }
        if let Some(rule) = trouble.kind.rule() {
            refusal.detector = Some(self.book.detectors.facts(rule).id.to_string());
        }
        refusal.direction = Some(place.direction.name());
        refusal.surface = Some(place.surface.part());
        refusal.offset = Some(place.offset);
        self.block(refusal)
    }

    fn body_bytes(&self, direction: Direction, counts: Counts) {
        let total = if direction == Direction::Request {
            &self.gateway.request_bytes
        } else {
            &self.gateway.response_bytes
        };
        total.received.inc_by(counts.received);
        total.scanned.inc_by(counts.scanned);
        total.released.inc_by(counts.released);
        total.skipped.inc_by(counts.skipped);
        self.count(direction, counts);
    }
}

fn reason_of(kind: &TroubleKind) -> Reason {
    match kind.reason() {
        "overlong" => Reason::Overlong,
        "opaque" => Reason::Opaque,
        _ => Reason::Undecodable,
    }
}

/// Whether `value` stands in `text`, in whatever case, so that `text` must not be shown.
fn holds(text: &str, value: Option<&[u8]>) -> bool {
    let Some(value) = value else { return false };
    !value.is_empty()
        && text.len() >= value.len()
        && text.as_bytes().windows(value.len()).any(|window| window.eq_ignore_ascii_case(value))
}

fn severity(severity: Severity) -> &'static str {
    severity.as_str()
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::High => "high",
        Confidence::Medium => "medium",
        Confidence::Low => "low",
    }
}
