//! One exchange as it stands in the log: one JSON object a line.
//!
//! Invariant: no body byte, no query, no value that was found; what a client chose is masked where a detector finds
//! something in it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::super::refusal::Refusal;
use crate::audit;

/// The line of one exchange. Fields that are not known are left out.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    /// Tells these lines from others on the same stream.
    pub(super) log: &'static str,
    /// RFC 3339, UTC: when it ended.
    pub(super) time: String,
    pub(super) id: &'a str,
    pub(super) bottle: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'static str>,
    /// The client's address, where no bottle stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<IpAddr>,
    pub(super) method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<&'a str>,
    /// Of the answer; left out where none was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    pub(super) verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detector: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Half<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<Half<'a>>,
    /// From the request's head to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    /// From the request sent upstream to its answer's head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream_seconds: Option<f64>,
    /// `client`, `upstream` or `gateway`: who broke off what had begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) aborted_by: Option<&'static str>,
}

/// One direction of an exchange, in bytes of its body on the wire.
#[derive(Clone, Default, Serialize)]
pub(super) struct Half<'a> {
    pub(super) received: u64,
    pub(super) scanned: u64,
    pub(super) skipped: u64,
    /// Why bytes were skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped_because: Option<&'static str>,
    /// Content codings, outermost first.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) codings: &'a [&'static str],
}

impl<'a> Line<'a> {
    /// A line with what every exchange has.
    pub(super) fn new(id: &'a str, bottle: &'a str, method: &'a str, verdict: &'static str) -> Self {
        Self {
            log: "exchange",
            time: audit::now(),
            id,
            bottle,
            labels: None,
            policy: None,
            route: None,
            mode: None,
            client: None,
            method,
            host: None,
            path: None,
            status: None,
            verdict,
            reason: None,
            detail: None,
            detector: None,
            request: None,
            response: None,
            seconds: None,
            upstream_seconds: None,
            aborted_by: None,
        }
    }

    /// With what is said of a refusal; `detail` as it may be written down.
    pub(super) fn refused(mut self, refusal: &'a Refusal, detail: String) -> Self {
        self.reason = Some(refusal.reason.as_str());
        self.detector = refusal.detector.as_deref();
        self.detail = Some(detail);
        self
    }
}
