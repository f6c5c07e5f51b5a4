//! The trial of the configuration's `tests`: each request is put before the policy and the scanners of the data path.
//!
//! Invariants: nothing is sent or written; the verdict is that of `policy`, `meaning` and `inspect`, which traffic gets
//! too. Modes do not count: a test says what is decided, not whether that takes effect.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use decant_config::{Config, Expect, MatchAction, Name, PolicyTest, Problem, TestBody};
use http::{HeaderName, HeaderValue, Request, header, request};

use super::scan::drive;
use crate::app::RuleBook;
use crate::audit::Fingerprints;
use crate::budget::Budget;
use crate::exceptions;
use crate::http::{head, internal};
use crate::inspect::{
    self, BodyPlan, Counts, Direction, HeadScan, Hit, Judge, Place, Ruling, Trouble, Windows,
};
use crate::meaning::{Meaning, Scene};
use crate::policy::{Head, HostVerdict, Policy, Route, Side, Verdict};
use crate::secrets;
use crate::target::{Host, Scheme, Target};

/// Runs every test of `config`; what comes back are those that fail.
pub(super) fn run(config: &Config, book: &Arc<RuleBook>) -> Vec<Problem> {
    let court = Court {
        book: book.clone(),
        budget: Budget::new(&config.limits),
        fingerprints: Fingerprints::of(&config.state_dir).map(Arc::new),
    };
    let failed =
        |test| Some(Problem { at: PolicyTest::clone(test).at, message: court.failure(config, test)? });
    config.tests.iter().filter_map(failed).collect()
}

/// What all tests share.
struct Court {
    book: Arc<RuleBook>,
    budget: Budget,
    /// `None` where the state folder has no key yet, or not for us.
    fingerprints: Option<Arc<Fingerprints>>,
}

/// What is decided about one request, in words that follow "but".
enum Outcome {
    /// Nothing stops it.
    Passes(String),
    /// Policy refuses it.
    Denied(String),
    /// Detectors stop it, or overwrite what they find.
    Found(Vec<Finding>),
    /// It is refused for a reason that no test can expect: its form, or a body that cannot be inspected.
    Broken(String),
}

/// A match that is acted upon.
struct Finding {
    detector: Arc<str>,
    /// What it leads to, and where it stands.
    words: String,
}

impl Finding {
    fn is_secret(&self) -> bool {
        secrets::name_of(&self.detector).is_some()
    }
}

impl Court {
    /// Why the test fails; `None` when it holds.
    fn failure(&self, config: &Config, test: &PolicyTest) -> Option<String> {
        let outcome = match self.outcome(config, test) {
            Ok(outcome) => outcome,
            Err(message) => return Some(format!("{}{message}", titled(test))),
        };
        let found = match (&test.expect, outcome) {
            (Expect::Allow, Outcome::Passes(_)) | (Expect::Policy, Outcome::Denied(_)) => return None,
            (Expect::Detector(id), Outcome::Found(list)) if finds(&list, id) => return None,
            (Expect::Secret, Outcome::Found(list)) if list.iter().any(Finding::is_secret) => return None,
            (_, Outcome::Found(list)) => list.iter().map(|one| &*one.words).collect::<Vec<_>>().join(", "),
            (_, Outcome::Passes(words) | Outcome::Denied(words) | Outcome::Broken(words)) => words,
        };
        let wanted = match &test.expect {
            Expect::Allow => "this request must pass".to_owned(),
            Expect::Policy => "policy must refuse this request".to_owned(),
            Expect::Secret => "a value of `secrets` must stop this request".to_owned(),
            Expect::Detector(id) => format!("`{id}` must stop this request"),
        };
        Some(format!("{}{wanted}, but {found}", titled(test)))
    }

    /// What is decided about the test's request.
    fn outcome(&self, config: &Config, test: &PolicyTest) -> Result<Outcome, String> {
        let bottle = config.bottles.iter().find(|bottle| bottle.name == test.bottle);
        let policy = bottle.and_then(|bottle| self.book.policies.get(&bottle.policy));
        // The configuration has checked both names; a policy that does not exist allows nothing.
        let Some(policy) = policy else { return Ok(Outcome::Denied("its bottle has no policy".to_owned())) };
        let target = target(test)?;
        let parts = parts(test, &target)?;
        if internal::is_host(&target.host) {
            return Ok(Outcome::Passes("the gateway answers it itself".to_owned()));
        }
        if let HostVerdict::Passthrough(_, route) = policy.host(&target)
            && target.scheme == Scheme::Https
        {
            let bench = Arc::new(Bench::new(self, test, &target, &route));
            // A name without a finding is all there is to see.
            let _judged =
                target.host.name().map_or(Ok(()), |name| bench.head_scan(&route.request).host(name));
            return Ok(bench.outcome(format!("route `{}` passes its bytes unopened", route.name)));
        }
        if let Err(refusal) = head::check_request(&parts) {
            return Ok(Outcome::Broken(format!("its form is refused: {}", refusal.detail)));
        }
        let route = match judged(policy, &target, &parts) {
            Ok(route) => route,
            Err(outcome) => return Ok(outcome),
        };
        let bench = Arc::new(Bench::new(self, test, &target, &route));
        // The bench blocks nothing, so that all that would stop the request is seen; what came of it is asked below.
        let _judged = bench.head_scan(&route.request).opening(
            target.host.name(),
            &parts.method,
            &parts.uri,
            &parts.headers,
        );
        self.scan_body(test, &parts, &route.request, &bench)?;
        Ok(bench.outcome(format!("route `{}` lets it pass", route.name)))
    }

    fn scan_body(
        &self,
        test: &PolicyTest,
        parts: &request::Parts,
        side: &Side,
        bench: &Arc<Bench>,
    ) -> Result<(), String> {
        let mut input: Box<dyn Read + '_> = match &test.body {
            TestBody::Empty => return Ok(()),
            TestBody::Text(text) => Box::new(text.as_bytes()),
            TestBody::File(path) => Box::new(File::open(path).map_err(|error| unreadable(test, &error))?),
        };
        if side.selection.is_empty() {
            return Ok(());
        }
        let layers = self.budget.coding_layers;
        let codings = inspect::codings_of_body(&parts.headers, Direction::Request, layers, &**bench);
        let plan = BodyPlan {
            rules: self.book.detectors.rules.clone(),
            selection: side.selection.clone(),
            direction: Direction::Request,
            codings: codings.unwrap_or_default(),
            strict: side.strict,
            fixed: None,
            limits: self.budget.inspect,
            windows: Windows::unbounded(),
            seat: None,
            judge: bench.clone(),
        };
        drive(&plan, &mut input).map_err(|error| unreadable(test, &error))
    }
}

fn titled(test: &PolicyTest) -> String {
    test.name.as_ref().map_or_else(String::new, |name| format!("test `{name}`: "))
}

fn finds(list: &[Finding], id: &Name) -> bool {
    list.iter().any(|one| *id == *one.detector)
}

fn unreadable(test: &PolicyTest, error: &io::Error) -> String {
    match &test.body {
        TestBody::File(path) => format!("`body_file` {} cannot be read: {error}", path.display()),
        TestBody::Text(_) | TestBody::Empty => error.to_string(),
    }
}

fn target(test: &PolicyTest) -> Result<Target, String> {
    let host = Host::parse(&test.host.to_string()).map_err(|error| format!("its host: {error}"))?;
    let scheme = if test.scheme == "http" { Scheme::Http } else { Scheme::Https };
    Ok(Target { scheme, host, port: test.port })
}

/// The head as a client sends it: what was written, and a Host field where none was.
fn parts(test: &PolicyTest, target: &Target) -> Result<request::Parts, String> {
    let request = Request::builder().method(test.method.as_str()).uri(&test.path).body(());
    let (mut parts, ()) = request.map_err(|error| format!("its request: {error}"))?.into_parts();
    for (name, value) in &test.headers {
        let name = HeaderName::try_from(name).map_err(|error| format!("header `{name}`: {error}"))?;
        let value = HeaderValue::from_str(value).map_err(|error| format!("header `{name}`: {error}"))?;
        parts.headers.append(name, value);
    }
    let authority = HeaderValue::try_from(target.authority()).map_err(|error| error.to_string())?;
    parts.headers.entry(header::HOST).or_insert(authority);
    Ok(parts)
}

/// The route that policy grants, or what it says instead.
fn judged(policy: &Policy, target: &Target, parts: &request::Parts) -> Result<Arc<Route>, Outcome> {
    match policy.request(target, &Head::of(parts)) {
        Verdict::Granted(grant) => Ok(grant.route),
        Verdict::Denied { why, .. } => {
            Err(Outcome::Denied(format!("policy `{}` refuses it: {why}", policy.name)))
        }
        Verdict::Ambiguous(why) => Err(Outcome::Broken(format!("its form is refused: {why}"))),
    }
}

/// The judge of one test: notes what would be decided, and lets everything go on.
struct Bench {
    book: Arc<RuleBook>,
    route: Arc<Route>,
    bottle: Name,
    host: Host,
    fingerprints: Option<Arc<Fingerprints>>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    findings: Vec<Finding>,
    trouble: Option<String>,
}

impl Bench {
    fn new(court: &Court, test: &PolicyTest, target: &Target, route: &Arc<Route>) -> Self {
        Self {
            book: court.book.clone(),
            route: route.clone(),
            bottle: test.bottle.clone(),
            host: target.host.clone(),
            fingerprints: court.fingerprints.clone(),
            noted: Mutex::default(),
        }
    }

    fn head_scan<'a>(&'a self, side: &'a Side) -> HeadScan<'a> {
        let rules = &self.book.detectors.rules;
        let selection = &side.selection;
        HeadScan { rules, selection, direction: Direction::Request, judge: self, fixed: None }
    }

    fn scene(&self) -> Scene<'_> {
        Scene { book: &self.book, route: Some(&self.route), bottle: &self.bottle, host: &self.host }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came of it all; `passes` where nothing was noted.
    fn outcome(&self, passes: String) -> Outcome {
        match std::mem::take(&mut *self.noted()) {
            Noted { findings, .. } if !findings.is_empty() => Outcome::Found(findings),
            Noted { trouble: Some(words), .. } => Outcome::Broken(words),
            Noted { .. } => Outcome::Passes(passes),
        }
    }
}

impl Judge for Bench {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let fingerprint = || self.fingerprints.as_ref().zip(value).map(|(key, value)| key.of_value(value));
        if let Meaning::Acts { action, .. } = self.scene().meaning(hit, exceptions::today(), fingerprint)
            && action != MatchAction::Alert
        {
            let detector = self.book.detectors.facts(hit.rule).id.clone();
            let verb = if action == MatchAction::Redact { "redacts" } else { "blocks" };
            let words = format!("`{detector}` {verb} what stands in {}", shown(&hit.place));
            self.noted().findings.push(Finding { detector, words });
        }
        Ruling::Pass
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        if !self.scene().may_pass_undecodable(trouble.place.direction) {
            let words = format!("it cannot be inspected: {} ({})", trouble.kind, shown(&trouble.place));
            self.noted().trouble.get_or_insert(words);
        }
        Ruling::Pass
    }

    fn body_bytes(&self, _: Direction, _: Counts) {}
}

/// As in "the body at offset 12, in gzip".
fn shown(place: &Place) -> String {
    let view = place.view.to_string();
    let view = if view.is_empty() { view } else { format!(", in {view}") };
    let field = place.field.as_ref().map_or_else(String::new, |field| format!(" `{field}`"));
    format!("the {}{field} at offset {}{view}", place.surface.part(), place.offset)
}

#[cfg(test)]
mod presets;
#[cfg(test)]
mod tests;
