//! Matches whose end is known but which are not findings yet: an older attempt may still claim the
//! same end, or context may still come.

use crate::attempt::Attempt;
use crate::compiled::Compiled;
use crate::finding::{Confidence, Event, Finding};
use crate::rule::RuleId;
use crate::scanner::Sink;
use crate::set::RuleSet;
use crate::window::Bytes;

/// A match with a known end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) rule: RuleId,
    /// The earliest and the latest start of the matches of this rule that end here. An intruder in
    /// front of a secret can make the earliest fail its checksum, so the latest is judged as well.
    pub(crate) start: u64,
    latest: u64,
    end: u64,
    /// What the text is worth; known once no older attempt may claim it.
    judged: Option<Confidence>,
    /// How far context has been looked for.
    looked_to: u64,
}

/// Matches whose memory a stream keeps at rest.
const MATCHES_AT_REST: usize = 2;

/// The matches that are not decided.
#[derive(Debug, Default)]
pub(crate) struct Settled(Vec<Match>);

enum Decision {
    Wait,
    Drop,
    Report(Finding),
}

impl Settled {
    /// Takes the longest match of an attempt that ended.
    pub(crate) fn add(&mut self, attempt: &Attempt) {
        let Some((latest, end)) = attempt.best() else { return };
        match self.0.iter_mut().find(|known| known.rule == attempt.rule && known.end == end) {
            Some(known) => {
                known.start = known.start.min(attempt.start);
                known.latest = known.latest.max(latest);
            }
            None => self.0.push(Match {
                rule: attempt.rule,
                start: attempt.start,
                latest,
                end,
                judged: None,
                looked_to: 0,
            }),
        }
    }

    /// Reports what is decided once everything up to the end of `bytes` has been seen. The stream
    /// `is_over` when nothing follows.
    pub(crate) fn decide(
        &mut self,
        rules: &RuleSet,
        live: &[Attempt],
        bytes: Bytes<'_>,
        is_over: bool,
        found: Sink<'_>,
    ) {
        self.0.retain_mut(|known| match known.decide(rules, live, bytes, is_over) {
            Decision::Wait => true,
            Decision::Drop => false,
            Decision::Report(finding) => {
                found(Event::Match(finding), bytes);
                false
            }
        });
        if self.0.is_empty() {
            self.0.shrink_to(MATCHES_AT_REST);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Match> {
        self.0.iter()
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_usage(&self) -> usize {
        self.0.capacity() * size_of::<Match>()
    }
}

impl Match {
    fn decide(&mut self, rules: &RuleSet, live: &[Attempt], bytes: Bytes<'_>, is_over: bool) -> Decision {
        let rule = rules.compiled(self.rule);
        if self.judged.is_none() && self.is_claimed(live) {
            return Decision::Wait;
        }
        let Some(confidence) = self.judged.or_else(|| self.judge(rule, bytes)) else {
            return Decision::Drop;
        };
        self.judged = Some(confidence);
        if let Some(words) = &rule.context
            && !words.near(bytes, self.start, self.end, &mut self.looked_to)
        {
            let may_come = !is_over && bytes.end() < self.end + words.within as u64;
            return if may_come { Decision::Wait } else { Decision::Drop };
        }
        Decision::Report(Finding { rule: self.rule, start: self.start, end: self.end, confidence })
    }

    /// Whether an older attempt may end here too. Attempts have all been read to one place behind this
    /// end, so one that does not claim it now never will.
    fn is_claimed(&self, live: &[Attempt]) -> bool {
        let same_end = |attempt: &Attempt| attempt.best().is_some_and(|(_, end)| end == self.end);
        live.iter().any(|attempt| attempt.rule == self.rule && same_end(attempt))
    }

    fn judge(&self, rule: &Compiled, bytes: Bytes<'_>) -> Option<Confidence> {
        let confidence = rule.judge(&bytes.text(self.start, self.end));
        if self.latest != self.start && rule.judges_text() {
            return confidence.max(rule.judge(&bytes.text(self.latest, self.end)));
        }
        confidence
    }

    /// Whether the match is evidence although its context is open; see [`Attempt::is_evident`].
    pub(crate) fn is_evident(&self, rules: &RuleSet) -> bool {
        let rule = rules.compiled(self.rule);
        rule.evident_after.is_some() || rule.context.is_none()
    }
}
