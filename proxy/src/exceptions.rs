//! Exceptions: findings that an operator accepts, each until a day and for a reason.
//!
//! Place in the path: the judge asks here once a match is not at home, before it asks what the route or the detector
//! would do. Invariants: an exception whose last day is over is inert; an accepted finding is still written down.

use decant_config::{Date, Exception, Surface};
use time::OffsetDateTime;

use crate::policy::covers;
use crate::target::Host;

/// Every exception of one configuration.
#[derive(Debug)]
pub(crate) struct Exceptions(Vec<Exception>);

/// A match, as far as exceptions ask about it.
pub(crate) struct Match<'a> {
    pub(crate) detector: &'a str,
    pub(crate) bottle: &'a str,
    pub(crate) host: &'a Host,
    /// As findings name it.
    pub(crate) surface: &'a str,
}

impl Exceptions {
    /// Those of a configuration.
    pub(crate) fn new(list: &[Exception]) -> Self {
        Self(list.to_vec())
    }

    /// The first that holds `today` and speaks of `found`. Its `fingerprint` is asked for only where one is listed; a
    /// match without one fits no list.
    pub(crate) fn find(
        &self,
        found: &Match<'_>,
        today: Date,
        fingerprint: impl Fn() -> Option<String>,
    ) -> Option<&Exception> {
        self.0.iter().find(|one| {
            one.is_live(today)
                && one.detector.as_str() == found.detector
                && fits(&one.bottles, |bottle| bottle.as_str() == found.bottle)
                && fits(&one.hosts, |host| covers(host, found.host))
                && fits(&one.surfaces, |surface: &Surface| surface.as_str() == found.surface)
                && (one.fingerprints.is_empty() || listed(&one.fingerprints, fingerprint().as_deref()))
        })
    }

    /// How many hold `today`, and how many no longer do.
    pub(crate) fn count(&self, today: Date) -> (usize, usize) {
        let live = self.0.iter().filter(|one| one.is_live(today)).count();
        (live, self.0.len() - live)
    }

    /// Those that no longer hold.
    pub(crate) fn expired(&self, today: Date) -> impl Iterator<Item = &Exception> {
        self.0.iter().filter(move |one| !one.is_live(today))
    }
}

/// An empty list speaks of all.
fn fits<T>(list: &[T], same: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(same)
}

fn listed(list: &[[u8; 8]], fingerprint: Option<&str>) -> bool {
    let hex = |digest: &[u8; 8]| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    fingerprint.is_some_and(|fingerprint| list.iter().any(|digest| hex(digest) == fingerprint))
}

/// The day that it is, UTC.
pub(crate) fn today() -> Date {
    Date::from_unix_seconds(u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\nexceptions:\n  - {name: one, detector: jwt, bottles: [local], hosts: [api.test], \
                        surfaces: [body], fingerprints: [0011223344556677], action: alert, until: 2027-01-31, \
                        reason: a fixture}\n";

    fn exceptions() -> Exceptions {
        let pack = Some(decant_detectors::pack::FILES);
        let overrides = decant_config::Overrides { pack, ..decant_config::Overrides::default() };
        let config = decant_config::parse("test.yaml", TEXT, &overrides).expect("it is fine");
        Exceptions::new(&config.exceptions)
    }

    #[test]
    fn every_condition_counts() {
        let all = exceptions();
        let (host, other) = (Host::Name("api.test".into()), Host::Name("b.test".into()));
        let found = |detector, bottle, host, surface| Match { detector, bottle, host, surface };
        for (found, today, fingerprint, holds) in [
            (found("jwt", "local", &host, "body"), "2027-01-31", "0011223344556677", true),
            (found("jwt", "local", &host, "body"), "2027-02-01", "0011223344556677", false),
            (found("jwt", "local", &host, "body"), "2027-01-31", "0011223344556678", false),
            (found("jwt", "local", &host, "url"), "2027-01-31", "0011223344556677", false),
            (found("jwt", "local", &other, "body"), "2027-01-31", "0011223344556677", false),
            (found("jwt", "dev", &host, "body"), "2027-01-31", "0011223344556677", false),
            (found("github-pat", "local", &host, "body"), "2027-01-31", "0011223344556677", false),
        ] {
            let today = today.parse().expect("a date");
            let exception = all.find(&found, today, || Some(fingerprint.to_owned()));
            assert_eq!(exception.is_some(), holds, "{today} {fingerprint}");
            assert!(all.find(&found, today, || None).is_none(), "an unknown value is on no list");
        }
        assert_eq!(all.count("2027-02-01".parse().expect("a date")), (0, 1));
    }
}
