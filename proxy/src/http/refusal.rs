//! Refusals: what a bottle reads when the gateway says no.
//!
//! Owns the one table from reason to status code, and the three forms a refusal takes: a problem document
//! (RFC 9457), plain text where the client excludes JSON, and `Proxy-Status` (RFC 9209) in short. Invariant: a
//! refusal never carries a matched value; where the value may stand in the host or the path, those are left out.

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
    PROXY_AUTHENTICATE, RETRY_AFTER, USER_AGENT,
};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;
use serde::Serialize;

use crate::budget::NoMemory;

/// Why the gateway refused, in the words that logs, metrics and problem documents share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reason {
    /// The address is forbidden: private, metadata, or the gateway's own.
    Address,
    /// SNI, CONNECT host and Host or `:authority` disagree.
    Authority,
    /// An operator cut the bottle off.
    Cut,
    /// A detector found something that must not pass.
    Detector,
    /// The message's framing or syntax is in doubt.
    Framing,
    /// No bottle is known for this source, or its token is missing or wrong.
    Identity,
    /// A limit of the gateway is reached.
    Limit,
    /// The gateway has no memory for it now.
    Memory,
    /// Content that cannot be looked into.
    Opaque,
    /// Something that begins like a match outgrew what can be followed.
    Overlong,
    /// No route allows it.
    Policy,
    /// The worker died too often while the bottle sent requests.
    Quarantine,
    /// The bottle asks more often than it may.
    Rate,
    /// A coded body that cannot be decoded within the limits.
    Undecodable,
    /// A protocol switch.
    Upgrade,
    /// The upstream could not be reached, failed, or answered nonsense.
    Upstream,
}

impl Reason {
    /// Every reason.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 16] = [
        Self::Address,
        Self::Authority,
        Self::Cut,
        Self::Detector,
        Self::Framing,
        Self::Identity,
        Self::Limit,
        Self::Memory,
        Self::Opaque,
        Self::Overlong,
        Self::Policy,
        Self::Quarantine,
        Self::Rate,
        Self::Undecodable,
        Self::Upgrade,
        Self::Upstream,
    ];

    /// The name in logs, metrics and problem documents.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Authority => "authority",
            Self::Cut => "cut",
            Self::Detector => "detector",
            Self::Framing => "framing",
            Self::Identity => "identity",
            Self::Limit => "limit",
            Self::Memory => "memory",
            Self::Opaque => "opaque",
            Self::Overlong => "overlong",
            Self::Policy => "policy",
            Self::Quarantine => "quarantine",
            Self::Rate => "rate",
            Self::Undecodable => "undecodable",
            Self::Upgrade => "upgrade",
            Self::Upstream => "upstream",
        }
    }

    /// Whether something failed rather than was forbidden.
    pub(crate) fn is_failure(self) -> bool {
        self == Self::Upstream
    }

    /// The status code where nothing more specific applies.
    fn status(self) -> StatusCode {
        match self {
            Self::Framing => StatusCode::BAD_REQUEST,
            Self::Authority => StatusCode::MISDIRECTED_REQUEST,
            Self::Undecodable => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Limit | Self::Memory | Self::Quarantine => StatusCode::SERVICE_UNAVAILABLE,
            Self::Rate => StatusCode::TOO_MANY_REQUESTS,
            Self::Upstream => StatusCode::BAD_GATEWAY,
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
            Self::Address
            | Self::Cut
            | Self::Detector
            | Self::Identity
            | Self::Opaque
            | Self::Overlong
            | Self::Policy => StatusCode::FORBIDDEN,
        }
    }

    /// The error type of RFC 9209 §2.3 that comes nearest.
    fn proxy_error(self) -> &'static str {
        match self {
            Self::Address => "destination_ip_prohibited",
            Self::Framing => "http_request_error",
            Self::Limit | Self::Memory | Self::Rate => "connection_limit_reached",
            Self::Policy | Self::Detector | Self::Identity | Self::Opaque | Self::Overlong => {
                "http_request_denied"
            }
            Self::Authority | Self::Cut | Self::Undecodable | Self::Upgrade => "http_request_denied",
            Self::Quarantine => "destination_unavailable",
            Self::Upstream => "destination_unavailable",
        }
    }
}

/// One refusal, with every field that CONTRACT's problem document may carry.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Refusal {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    pub(crate) reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    bottle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detector: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) surface: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip)]
    retry_after: u64,
    #[serde(skip)]
    proxy_error: &'static str,
    #[serde(skip)]
    close: bool,
}

impl From<NoMemory> for Refusal {
    fn from(short: NoMemory) -> Self {
        Self::new(Reason::Memory, short.to_string()).limit(short.limit, short.setting)
    }
}

impl Refusal {
    /// A refusal for `reason` with the sentence that explains it.
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:decant:refusal:{}", reason.as_str()),
            title: "Blocked by Decant",
            status: reason.status().as_u16(),
            detail: detail.into(),
            instance: None,
            reason,
            bottle: None,
            host: None,
            detector: None,
            direction: None,
            surface: None,
            offset: None,
            limit: None,
            setting: None,
            hint: None,
            // The usual rate is by the second.
            retry_after: 1,
            proxy_error: reason.proxy_error(),
            close: false,
        }
    }

    /// Another status code than the reason's usual one.
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status.as_u16();
        self
    }

    /// The error type for `Proxy-Status`.
    pub(crate) fn proxy_error(mut self, error: &'static str) -> Self {
        self.proxy_error = error;
        self
    }

    /// The host the request was for. Left out where the host itself may carry a matched value.
    pub(crate) fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Whether it may name the host.
    pub(crate) fn names_host(&self) -> bool {
        self.host.is_some()
    }

    /// The host that it names.
    pub(crate) fn host_name(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The limit that was reached and the setting that moves it.
    pub(crate) fn limit(mut self, limit: u64, setting: &'static str) -> Self {
        self.limit = Some(limit);
        self.setting = Some(setting);
        self
    }

    /// When to ask again, in seconds.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = seconds;
        self
    }

    /// The setting that moves the limit.
    pub(crate) fn setting(mut self, setting: &'static str) -> Self {
        self.setting = Some(setting);
        self
    }

    /// The whole answer as HTTP/1.1 text, for a connection that no server was started on.
    pub(crate) fn raw(&self) -> Vec<u8> {
        let body = self.json();
        let status = self.status;
        let phrase = self.phrase();
        let head = format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        (head + &body).into_bytes()
    }

    /// What the reader can do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Who was refused, and in which request.
    pub(crate) fn for_exchange(mut self, bottle: &str, id: &str) -> Self {
        self.bottle = Some(bottle.to_owned());
        self.instance = Some(format!("urn:decant:request:{id}"));
        self
    }

    /// Closes the connection behind the answer: what follows on it cannot be trusted.
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// The status code it will be sent with.
    pub(crate) fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::FORBIDDEN)
    }

    /// The answer on the wire. `request` decides between JSON and plain text; `h1` whether a reason phrase and a
    /// `Connection` field exist.
    pub(crate) fn response(&self, request: &HeaderMap, h1: bool) -> Response<Bytes> {
        let json = accepts_json(request);
        let body = if json { self.json() } else { self.text() };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static(if json {
                "application/problem+json"
            } else {
                "text/plain; charset=utf-8"
            }),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(value) = HeaderValue::try_from(self.proxy_status()) {
            headers.insert("proxy-status", value);
        }
        if self.code() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            headers.insert(
                PROXY_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"decant\", Bearer realm=\"decant\""),
            );
        }
        if self.code() == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        if h1 {
            self.dress_for_h1(&mut response);
        }
        response
    }

    fn dress_for_h1(&self, response: &mut Response<Bytes>) {
        if self.close {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Ok(phrase) = ReasonPhrase::try_from(self.phrase().into_bytes()) {
            response.extensions_mut().insert(phrase);
        }
    }

    /// The reason phrase of HTTP/1.1: the one line that clients such as git, wget and apt show a person.
    fn phrase(&self) -> String {
        let mut phrase = format!("Blocked by Decant: {}", self.reason.as_str());
        if let Some(host) = &self.host {
            phrase.push(' ');
            phrase.extend(host.chars().filter(char::is_ascii_graphic));
        }
        phrase
    }

    fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{\"title\":\"Blocked by Decant\"}".to_owned()) + "\n"
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.phrase(), self.detail);
        if let Some(hint) = &self.hint {
            text.push_str(hint);
            text.push('\n');
        }
        text
    }

    /// RFC 9209: `decant; error=…; details="…"`, the details as an sf-string (RFC 8941 §3.3.3).
    fn proxy_status(&self) -> String {
        let details: String = self.phrase().chars().filter(|c| !matches!(c, '"' | '\\')).collect();
        format!("decant; error={}; details=\"{details}\"", self.proxy_error)
    }
}

/// Whether the client takes JSON: it does unless its `Accept` names types and JSON is not among them. Git takes anything
/// and shows a person plain text alone.
fn accepts_json(request: &HeaderMap) -> bool {
    if request.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"git/")) {
        return false;
    }
    let mut named = false;
    for value in request.get_all(ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',').map(|part| part.split(';').next().unwrap_or("").trim()) {
            named |= !range.is_empty();
            let json = range.ends_with("/json") || range.ends_with("+json");
            if json || matches!(range, "*/*" | "application/*") {
                return true;
            }
        }
    }
    !named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers
    }

    #[test]
    fn json_unless_accept_excludes_it() {
        let cases =
            [("*/*", true), ("application/json", true), ("text/html", false), ("text/html, */*;q=0.1", true)];
        for (accept, json) in cases {
            assert_eq!(accepts_json(&headers(accept)), json, "{accept}");
        }
        assert!(accepts_json(&HeaderMap::new()));
        let mut git = headers("*/*");
        git.insert(USER_AGENT, HeaderValue::from_static("git/2.47.3"));
        assert!(!accepts_json(&git));
    }

    #[test]
    fn every_form_names_reason_and_host() {
        let refusal =
            Refusal::new(Reason::Policy, "no route allows it").host("example.org").for_exchange("dev", "7");
        for (accept, h1) in [("*/*", true), ("text/plain", true), ("*/*", false)] {
            let response = refusal.response(&headers(accept), h1);
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            let body = std::str::from_utf8(response.body()).unwrap();
            assert!(body.contains("policy") && body.contains("example.org"), "{body}");
            assert_eq!(response.extensions().get::<ReasonPhrase>().is_some(), h1);
            let status = response.headers()["proxy-status"].to_str().unwrap();
            assert_eq!(
                status,
                "decant; error=http_request_denied; details=\"Blocked by Decant: policy example.org\""
            );
        }
    }

    #[test]
    fn every_reason_has_an_error_status() {
        for reason in Reason::ALL {
            let refusal = Refusal::new(reason, "");
            assert!(
                refusal.code().is_client_error() || refusal.code().is_server_error(),
                "{}",
                reason.as_str()
            );
        }
    }
}
