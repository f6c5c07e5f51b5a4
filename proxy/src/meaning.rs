//! What a match means where it stands: expected, accepted until a day, or to be acted upon.
//!
//! Pure: no I/O and no clock. Place in the path: the judge of an exchange asks here about each match and each trouble;
//! so does the trial of a configured test, which therefore cannot come to another verdict.

use decant_config::{BlockOrPass, Date, Exception, MatchAction};
use decant_detectors::Confidence;

use crate::app::RuleBook;
use crate::exceptions::Match;
use crate::inspect::{Direction, Hit};
use crate::policy::{Route, Side};
use crate::target::Host;

/// Where something was found: under which rules, on which route, sent by whom to which host.
pub(crate) struct Scene<'a> {
    pub(crate) book: &'a RuleBook,
    /// `None` before policy has chosen one.
    pub(crate) route: Option<&'a Route>,
    /// The bottle's name.
    pub(crate) bottle: &'a str,
    pub(crate) host: &'a Host,
}

/// What a match means.
pub(crate) enum Meaning<'a> {
    /// It is at home, or part of a signed URL: it passes and is counted.
    Expected,
    /// It leads to `action`, which is that of `exception` where one accepts it.
    Acts { action: MatchAction, exception: Option<&'a Exception> },
}

impl<'a> Scene<'a> {
    /// What `hit` means on the day `today`. The value's `fingerprint` is asked for only where an exception lists some.
    pub(crate) fn meaning(
        &self,
        hit: &Hit,
        today: Date,
        fingerprint: impl Fn() -> Option<String>,
    ) -> Meaning<'a> {
        let facts = self.book.detectors.facts(hit.rule);
        let surface = hit.place.surface.name();
        // A known value is no signature: it goes where its own entry says, and nothing else accepts it.
        let is_signature = hit.signed && !facts.is_secret;
        if is_signature || facts.is_home(self.host, surface) {
            return Meaning::Expected;
        }
        if facts.is_secret {
            return Meaning::Acts { action: MatchAction::Block, exception: None };
        }
        let found = Match { detector: &facts.id, bottle: self.bottle, host: self.host, surface };
        let exception = self.book.exceptions.find(&found, today, fingerprint);
        let action = exception.map_or_else(|| self.action(hit, facts.action), |one| one.action);
        Meaning::Acts { action, exception }
    }

    /// Whether what cannot be decoded passes here, scanned as it comes.
    pub(crate) fn may_pass_undecodable(&self, direction: Direction) -> bool {
        self.side(direction).is_some_and(|side| side.undecodable == BlockOrPass::Pass)
    }

    /// Whether what could not be looked into passes here.
    pub(crate) fn may_pass_opaque(&self, direction: Direction) -> bool {
        self.side(direction).is_some_and(|side| side.opaque == BlockOrPass::Pass)
    }

    /// What a match leads to that nobody has accepted: what the route says, or the detector. A failed checksum lowers it
    /// to an alert, it never clears.
    fn action(&self, hit: &Hit, own: MatchAction) -> MatchAction {
        let action = self.side(hit.place.direction).and_then(|side| side.on_match).unwrap_or(own);
        if hit.confidence == Confidence::Low { MatchAction::Alert } else { action }
    }

    fn side(&self, direction: Direction) -> Option<&'a Side> {
        let route = self.route?;
        Some(if direction == Direction::Request { &route.request } else { &route.response })
    }
}
