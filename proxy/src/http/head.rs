//! Heads: which fields cross the hop, and which requests are refused for their syntax alone.
//!
//! Framing and connection-specific fields belong to one connection (RFC 9110 §7.6.1, RFC 9113 §8.2.2) and never
//! cross; all others pass untouched. Invariant: what is doubtful about a message's framing is refused here, before
//! policy and scanner see it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Version, request};

use super::refusal::{Reason, Refusal};

/// Fields that belong to one connection, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Fields that `Connection` may name but must not remove: they frame or route the message.
const PROTECTED: [HeaderName; 3] = [header::CONTENT_LENGTH, header::HOST, header::TRAILER];

/// Fields by which a client asks a server to treat the request as another method or another path.
const OVERRIDES: [&str; 6] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];

/// Removes what does not cross the hop. `TE` survives as exactly `trailers` (RFC 9113 §8.2.2).
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let trailers = lists_token(headers, &header::TE, "trailers");
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(header::TE);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(|name| !PROTECTED.contains(name)).collect()
}

/// Whether the comma-separated lists under `name` hold `token`, parameters and case aside.
pub(crate) fn lists_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|item| item.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(token))
    })
}

/// One `Cookie` line for an HTTP/1.1 hop out of the crumbs that HTTP/2 allows (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// The first field by which the client asks for another method or path than the one policy sees.
pub(crate) fn override_field(headers: &HeaderMap) -> Option<&'static str> {
    OVERRIDES.into_iter().find(|name| headers.contains_key(*name))
}

/// Digests and signatures of a message that stand in fields of its own (RFC 9530, RFC 9421, RFC 1864; S3, Google and
/// Azure storage; webhooks). The first column is a whole name, or its beginning where it ends in `-`.
const SEALS: [&str; 16] = [
    "content-md5",
    "digest",
    "content-digest",
    "repr-digest",
    "signature",
    "signature-input",
    "x-amz-content-sha256",
    "x-amz-checksum-",
    "x-goog-hash",
    "x-goog-content-sha256",
    "x-ms-content-md5",
    "x-ms-content-crc64",
    "x-ms-content-sha256",
    "x-hub-signature",
    "x-hub-signature-",
    "x-signature-",
];

/// Whether a message carries a digest or a signature of itself, so that nothing in it can be overwritten unnoticed. That
/// is also so where it announces one in its trailers, or signs itself in `Authorization`.
pub(crate) fn is_sealed(headers: &HeaderMap) -> bool {
    let seals = |name: &str| {
        SEALS.iter().any(|seal| name == *seal || (seal.ends_with('-') && name.starts_with(seal)))
    };
    let announced = headers.get_all(header::TRAILER).into_iter().filter_map(|value| value.to_str().ok());
    let mut announced = announced.flat_map(|value| value.split(','));
    headers.keys().any(|name| seals(name.as_str()))
        || announced.any(|name| seals(&name.trim().to_ascii_lowercase()))
        || headers.get_all(header::AUTHORIZATION).into_iter().any(signs)
}

/// Whether an `Authorization` signs the message instead of presenting a credential.
fn signs(authorization: &HeaderValue) -> bool {
    let scheme =
        authorization.as_bytes().trim_ascii_start().split(|byte| *byte == b' ').next().unwrap_or(b"");
    let scheme = scheme.to_ascii_lowercase();
    [&b"aws4-"[..], b"goog4-", b"sharedkey", b"hmac", b"signature"].iter().any(|one| scheme.starts_with(one))
}

/// Refuses a request whose framing or form is in doubt (RFC 9112 §6.1, §6.3; RFC 9110 §7.8, §9.3.6).
pub(crate) fn check_request(parts: &request::Parts) -> Result<(), Refusal> {
    let headers = &parts.headers;
    if parts.method == Method::CONNECT {
        return Err(framing("CONNECT inside a tunnel is not forwarded"));
    }
    if parts.method == Method::TRACE {
        return Err(framing("TRACE would echo what the gateway holds back")
            .status(http::StatusCode::METHOD_NOT_ALLOWED));
    }
    check_length(headers, parts.version)?;
    check_upgrade(headers)
}

/// Refuses a response whose framing is in doubt.
pub(crate) fn check_length(headers: &HeaderMap, version: Version) -> Result<(), Refusal> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).into_iter();
    let first = lengths.next();
    if let Some(first) = first
        && (!is_digits(first.as_bytes()) || lengths.any(|other| other != first))
    {
        return Err(framing("Content-Length is not one plain number"));
    }
    if !headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(());
    }
    if first.is_some() {
        return Err(framing("Content-Length stands beside Transfer-Encoding"));
    }
    if version == Version::HTTP_10 {
        return Err(framing("Transfer-Encoding in an HTTP/1.0 message"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let exactly_chunked = codings.next().is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"chunked"))
        && codings.next().is_none();
    if exactly_chunked { Ok(()) } else { Err(framing("Transfer-Encoding is not exactly chunked")) }
}

/// `h2c` is quietly ignored, as RFC 9113 asks; any other switch of protocol is refused.
fn check_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(protocol) = headers.get(header::UPGRADE) else { return Ok(()) };
    if protocol.as_bytes().eq_ignore_ascii_case(b"h2c") {
        return Ok(());
    }
    Err(Refusal::new(Reason::Upgrade, "a protocol switch would carry bytes that are not inspected")
        .status(http::StatusCode::FORBIDDEN)
        .hint("use the plain HTTP form of this interface; WebSocket is not forwarded"))
}

fn is_digits(value: &[u8]) -> bool {
    !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit)
}

fn framing(detail: &str) -> Refusal {
    Refusal::new(Reason::Framing, detail).close()
}

/// Codings whose decoders need a large window.
const DEAR_CODINGS: [&str; 2] = ["br", "zstd"];

/// Takes codings that need much memory out of `Accept-Encoding`, unless the request is signed: the field may be part of
/// what was signed.
pub(super) fn drop_dear_codings(headers: &mut HeaderMap, query: Option<&str>) {
    if is_signed(headers, query) {
        return;
    }
    let fields: Vec<_> = headers.get_all(header::ACCEPT_ENCODING).iter().cloned().collect();
    let Ok(texts) = fields.iter().map(HeaderValue::to_str).collect::<Result<Vec<_>, _>>() else { return };
    let all: Vec<&str> = texts.iter().flat_map(|text| text.split(',')).map(str::trim).collect();
    let is_dear = |item: &str| {
        let name = item.split(';').next().unwrap_or("").trim();
        DEAR_CODINGS.iter().any(|dear| name.eq_ignore_ascii_case(dear))
    };
    let kept: Vec<&str> = all.iter().copied().filter(|item| !is_dear(item)).collect();
    if kept.len() == all.len() {
        return;
    }
    let kept = if kept.is_empty() { "identity".to_owned() } else { kept.join(", ") };
    if let Ok(value) = HeaderValue::try_from(kept) {
        headers.insert(header::ACCEPT_ENCODING, value);
    }
}

/// Whether the request carries a signature over itself (RFC 9421, the draft before it, the providers' own schemes).
fn is_signed(headers: &HeaderMap, query: Option<&str>) -> bool {
    const FIELDS: [&str; 2] = ["signature", "signature-input"];
    const SCHEMES: [&str; 7] = ["aws4-", "aws ", "goog4-", "signature", "tc3-", "sharedkey", "hmac"];
    const PARAMETERS: [&str; 4] = ["x-amz-signature=", "x-goog-signature=", "sig=", "signature="];
    let scheme = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or("").to_ascii_lowercase();
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    };
    let parameter = |part: &str| {
        let part = part.to_ascii_lowercase();
        PARAMETERS.iter().any(|name| part.starts_with(name))
    };
    FIELDS.iter().any(|name| headers.contains_key(*name))
        || headers.get_all(header::AUTHORIZATION).iter().any(scheme)
        || query.is_some_and(|query| query.split('&').any(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = &'static [(&'static str, &'static str)];

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn connection_fields_stay_behind_and_framing_survives() {
        let mut all = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Foo, content-length"),
            ("x-foo", "1"),
            ("keep-alive", "5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "gzip, trailers"),
            ("content-length", "3"),
            ("x-bar", "kept"),
        ] {
            all.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        strip_hop_by_hop(&mut all);
        assert_eq!(all, headers(&[("te", "trailers"), ("content-length", "3"), ("x-bar", "kept")]));
    }

    #[test]
    fn doubtful_framing_is_refused() {
        let cases: [(Fields, Version, bool); 9] = [
            (&[("content-length", "5")], Version::HTTP_11, true),
            (&[("content-length", "5, 5")], Version::HTTP_11, false),
            (&[("content-length", "+5")], Version::HTTP_11, false),
            (&[("content-length", "")], Version::HTTP_11, false),
            (&[("content-length", "5"), ("transfer-encoding", "chunked")], Version::HTTP_11, false),
            (&[("transfer-encoding", "chunked")], Version::HTTP_11, true),
            (&[("transfer-encoding", "chunked")], Version::HTTP_10, false),
            (&[("transfer-encoding", "xchunked")], Version::HTTP_11, false),
            (&[("transfer-encoding", "gzip, chunked")], Version::HTTP_11, false),
        ];
        for (fields, version, fine) in cases {
            assert_eq!(check_length(&headers(fields), version).is_ok(), fine, "{fields:?} {version:?}");
        }
    }

    #[test]
    fn a_message_that_vouches_for_itself_is_sealed() {
        let cases: [(Fields, bool); 9] = [
            (&[("content-type", "text/plain"), ("authorization", "Bearer x"), ("etag", "\"1\"")], false),
            (&[("content-md5", "x")], true),
            (&[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], true),
            (&[("x-amz-checksum-crc32c", "x")], true),
            (&[("x-hub-signature-256", "sha256=x")], true),
            (&[("trailer", "x-one, Content-Digest")], true),
            (&[("trailer", "grpc-status")], false),
            (&[("authorization", "AWS4-HMAC-SHA256 Credential=x")], true),
            (&[("authorization", "SharedKey account:x")], true),
        ];
        for (fields, sealed) in cases {
            assert_eq!(is_sealed(&headers(fields)), sealed, "{fields:?}");
        }
    }

    #[test]
    fn h2c_is_ignored_and_other_upgrades_are_refused() {
        assert!(check_upgrade(&headers(&[("upgrade", "h2c")])).is_ok());
        assert!(check_upgrade(&headers(&[("upgrade", "websocket")])).is_err());
    }

    #[test]
    fn crumbs_become_one_line() {
        let mut all = HeaderMap::new();
        for crumb in ["a=1", "b=2", "c=3"] {
            all.append(header::COOKIE, crumb.parse().unwrap());
        }
        join_cookies(&mut all);
        assert_eq!(all, headers(&[("cookie", "a=1; b=2; c=3")]));
    }

    #[test]
    fn dear_codings_are_not_asked_for_unless_that_was_signed() {
        let plain: &[(&str, &str)] = &[];
        let signed = [("authorization", "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=accept-encoding;host")];
        let cases: [(&str, &[(&str, &str)], Option<&str>, &str); 7] = [
            ("gzip, deflate, br, zstd", plain, None, "gzip, deflate"),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", plain, Some("a=b"), "gzip;q=0.8, *;q=0.1"),
            ("BR", plain, None, "identity"),
            ("gzip", plain, None, "gzip"),
            ("gzip, br", &signed, None, "gzip, br"),
            ("gzip, br", &[("signature-input", "sig1=()")], None, "gzip, br"),
            ("gzip, br", plain, Some("a=b&X-Amz-Signature=ab"), "gzip, br"),
        ];
        for (accept, fields, query, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
            for (name, value) in fields {
                headers.insert(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
            }
            drop_dear_codings(&mut headers, query);
            assert_eq!(headers[header::ACCEPT_ENCODING], expected, "{accept} {fields:?} {query:?}");
        }
    }
}
