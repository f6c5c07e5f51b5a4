//! Policy: which bottle may reach which target, and what is inspected on the way.
//!
//! Owns the compiled routes. Pure: no I/O, no clock; a head goes in, a verdict comes out. Invariants: only this
//! module makes an [`Authorized`], and the connector dials nothing else, so a target that policy has not approved
//! cannot be reached; what no route allows is denied; a verdict says whether it is enforced or only observed.

mod compile;
mod path;
mod route;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use decant_config::Mode;
use http::{HeaderMap, Method, request};

pub(crate) use self::compile::compile;
pub(crate) use self::path::normalise;
pub(crate) use self::route::{PathRule, Route, Side, covers};
use crate::http::head;
use crate::target::Target;

/// Proof that policy approved `T`. Only this module can make one.
#[derive(Clone, Debug)]
pub(crate) struct Authorized<T>(T);

impl<T> Deref for Authorized<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// All policies of one configuration.
#[derive(Debug)]
pub(crate) struct Policies {
    by_name: BTreeMap<Arc<str>, Arc<Policy>>,
}

impl Policies {
    /// The policy called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Policy>> {
        self.by_name.get(name)
    }
}

/// One policy: routes in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) routes: Vec<Arc<Route>>,
    /// What inspects a request that no route allows but that is only observed.
    observed: Arc<Route>,
}

/// What policy knows about a host before it has seen a request.
#[derive(Debug)]
pub(crate) enum HostVerdict {
    /// Some route may allow a request to it.
    Possible,
    /// Bytes are to be passed without a look.
    Passthrough(Authorized<Target>, Arc<Route>),
    /// No route names it.
    Denied,
}

/// What policy says about one request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// A route allows it.
    Granted(Grant),
    /// No route allows it, or one denies it. `observed` is the grant under which a merely observed policy lets it
    /// pass.
    Denied { why: String, observed: Grant },
    /// The request's form leaves open which route it belongs to; never relaxed.
    Ambiguous(String),
}

/// An approved request: where it may go and what is inspected.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) target: Authorized<Target>,
    pub(crate) route: Arc<Route>,
}

/// The parts of a request's head that routes look at.
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    /// The path as it came, without the query.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    /// Those of a request.
    pub(crate) fn of(parts: &'a request::Parts) -> Self {
        let (path, query) = (parts.uri.path(), parts.uri.query());
        Self { method: &parts.method, path, query, headers: &parts.headers }
    }
}

impl Policy {
    /// Judges a host before any request: may it be opened, spliced, or is it denied?
    pub(crate) fn host(&self, target: &Target) -> HostVerdict {
        let mut routes = self.routes.iter().filter(|route| route.covers(target));
        match routes.next() {
            None => HostVerdict::Denied,
            Some(route) if route.is_passthrough() => {
                HostVerdict::Passthrough(Authorized(target.clone()), route.clone())
            }
            Some(route) if route.denies_all() => HostVerdict::Denied,
            Some(_) => HostVerdict::Possible,
        }
    }

    /// Judges one request. The raw and the normalised path must lead to the same route.
    pub(crate) fn request(&self, target: &Target, head: &Head<'_>) -> Verdict {
        let raw = self.first_match(target, head, head.path);
        let normal = normalise(head.path);
        if normal != head.path && !same_route(raw, self.first_match(target, head, &normal)) {
            return Verdict::Ambiguous(
                "the path means different things before and after decoding".to_owned(),
            );
        }
        let Some(route) = raw else {
            return self
                .denied(target, format!("no route of policy `{}` allows {} here", self.name, head.method));
        };
        if !route.matches.is_empty()
            && let Some(field) = head::override_field(head.headers)
        {
            return Verdict::Ambiguous(format!(
                "the field `{field}` asks for another method or path than the request's"
            ));
        }
        match route.refuses(head) {
            Some(why) => self.denied(target, why),
            None => Verdict::Granted(Grant { target: Authorized(target.clone()), route: route.clone() }),
        }
    }

    fn denied(&self, target: &Target, why: String) -> Verdict {
        let observed = Grant { target: Authorized(target.clone()), route: self.observed.clone() };
        Verdict::Denied { why, observed }
    }

    fn first_match(&self, target: &Target, head: &Head<'_>, path: &str) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.covers(target) && route.matches(head, path))
    }
}

fn same_route(one: Option<&Arc<Route>>, other: Option<&Arc<Route>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
