//! Reads the entries of `secrets`, `exceptions` and `tests`.

use crate::bottle::read::secret_from;
use crate::config::{Exception, Expect, PolicyTest, Secret, TestBody};
use crate::detectors::Surface;
use crate::host::{Host, HostPattern};
use crate::name::Name;
use crate::policy::MatchAction;
use crate::policy::read::{parse_field_name, parse_field_value, parse_method};
use crate::problem::quoted;
use crate::value::port::parse_port;
use crate::yaml::{Cx, Fields, Node, Row, Section, hex, identifier, name, path, text, word};

const BEFORE: Row =
    Row { key: "before", kind: "name", default: "the end", words: "Places it before the one of this name." };

pub(crate) static SECRET: Section = Section {
    path: "secrets[]",
    rows: &[
        Row { key: "name", kind: "name", default: "required", words: "Its name, for operators alone." },
        Row {
            key: "from",
            kind: "{env: NAME}, {file: PATH}, {dir: PATH} or {canary: bottle}",
            default: "required",
            words: "Where the value is kept, without the newline at its end; `dir`: every file that is not hidden holds \
                    one, named after the file; `canary`: one is made for each bottle.",
        },
        Row {
            key: "to",
            kind: "map",
            default: "nowhere",
            words: "Where the value may go. A value is at least 12 bytes long and hard to guess (64 bits); a part of it \
                    that is as long counts as the value.",
        },
        BEFORE,
    ],
};

pub(crate) static TO: Section = Section {
    path: "secrets[].to",
    rows: &[
        Row {
            key: "hosts",
            kind: "list of hosts",
            default: "required",
            words: "The hosts it may leave for.",
        },
        Row {
            key: "surfaces",
            kind: "list of surfaces",
            default: "every one",
            words: "method, url, authorization, cookie, header, body, trailer, websocket.",
        },
    ],
};

pub(crate) static EXCEPTION: Section = Section {
    path: "exceptions[]",
    rows: &[
        Row { key: "name", kind: "name", default: "required", words: "Its name." },
        Row { key: "detector", kind: "name", default: "required", words: "The detector it speaks of." },
        Row { key: "bottles", kind: "list of names", default: "all", words: "For these bottles." },
        Row { key: "hosts", kind: "list of hosts", default: "all", words: "On these hosts." },
        Row {
            key: "surfaces",
            kind: "list of surfaces",
            default: "all",
            words: "On these parts of a message.",
        },
        Row {
            key: "fingerprints",
            kind: "list of 16 hex digits",
            default: "all",
            words: "For these values, as findings show them.",
        },
        Row {
            key: "action",
            kind: "alert | redact",
            default: "alert",
            words: "What a match leads to instead.",
        },
        Row {
            key: "until",
            kind: "date",
            default: "required",
            words: "The last day, UTC; afterwards the exception is inert, counted and warned about.",
        },
        Row { key: "reason", kind: "text", default: "required", words: "Why." },
        BEFORE,
    ],
};

pub(crate) static TEST: Section = Section {
    path: "tests[]",
    rows: &[
        Row { key: "name", kind: "name", default: "none", words: "Its name." },
        Row { key: "bottle", kind: "name", default: "required", words: "Who sends it." },
        Row {
            key: "request",
            kind: "METHOD URL",
            default: "required",
            words: "As in `POST https://api.example.org/x`.",
        },
        Row { key: "headers", kind: "map of texts", default: "{}", words: "Its header fields." },
        Row { key: "body", kind: "text", default: "none", words: "Its body." },
        Row { key: "body_file", kind: "path", default: "none", words: "A file that holds its body." },
        Row {
            key: "expect",
            kind: "allow | policy | secret | a detector",
            default: "required",
            words: "The verdict it must get: it passes, policy refuses it, a value of `secrets` may not go there, or this detector blocks or redacts it. Modes do not count.",
        },
        BEFORE,
    ],
};

pub(super) fn secret(node: &Node, cx: &mut Cx) -> Option<Secret> {
    let map = Fields::open(node, &SECRET, cx)?;
    let name = map.required(cx, "name", identifier);
    let from = map.required(cx, "from", secret_from);
    let to = map.optional(cx, "to", to);
    map.optional(cx, "before", identifier);
    let (hosts, surfaces) = to.unwrap_or_default();
    Some(Secret { name: name?, from: from?, hosts, surfaces, at: node.at.clone() })
}

fn to(node: &Node, cx: &mut Cx) -> Option<(Vec<HostPattern>, Vec<Surface>)> {
    let map = Fields::open(node, &TO, cx)?;
    let hosts = map.required_scalars(cx, "hosts", word);
    let surfaces = map.scalars(cx, "surfaces", word);
    Some((hosts?, surfaces))
}

pub(super) fn exception(node: &Node, cx: &mut Cx) -> Option<Exception> {
    let map = Fields::open(node, &EXCEPTION, cx)?;
    let name = map.required(cx, "name", identifier);
    let detector = map.required(cx, "detector", identifier);
    let until = map.required(cx, "until", word);
    let reason = map.required(cx, "reason", text);
    map.optional(cx, "before", identifier);
    Some(Exception {
        bottles: map.scalars(cx, "bottles", identifier),
        hosts: map.scalars(cx, "hosts", word),
        surfaces: map.scalars(cx, "surfaces", word),
        fingerprints: map.scalars(cx, "fingerprints", hex),
        action: map.optional(cx, "action", exception_action).unwrap_or(MatchAction::Alert),
        name: name?,
        detector: detector?,
        until: until?,
        reason: reason?,
        at: node.at.clone(),
    })
}

fn exception_action(node: &Node, cx: &mut Cx) -> Option<MatchAction> {
    match node.text(cx)? {
        "alert" => Some(MatchAction::Alert),
        "redact" => Some(MatchAction::Redact),
        other => cx.refuse(node, crate::suggest::not_one_of(other, &["alert", "redact"])),
    }
}

pub(super) fn test(node: &Node, cx: &mut Cx) -> Option<PolicyTest> {
    let map = Fields::open(node, &TEST, cx)?;
    let own_name = map.optional(cx, "name", name);
    let bottle = map.required(cx, "bottle", identifier);
    let request = map.required(cx, "request", |node, cx| node.parsed(cx, parse_request));
    let headers = map.optional(cx, "headers", headers).unwrap_or_default();
    let body = body(&map, cx);
    let expect = map.required(cx, "expect", |node, cx| node.parsed(cx, parse_expect));
    map.optional(cx, "before", name);
    let Request { method, scheme, host, port, path } = request?;
    let (bottle, expect, at) = (bottle?, expect?, node.at.clone());
    Some(PolicyTest { name: own_name, bottle, method, scheme, host, port, path, headers, body, expect, at })
}

fn body(map: &Fields<'_>, cx: &mut Cx) -> TestBody {
    let text = map.optional(cx, "body", Node::text).map(|text| TestBody::Text(text.to_owned()));
    let file = map.optional(cx, "body_file", path).map(TestBody::File);
    if let (Some(key), Some(_)) = (map.key("body_file"), map.key("body")) {
        cx.problem(&key.at, "`body` and `body_file` stand together: write one");
    }
    text.or(file).unwrap_or(TestBody::Empty)
}

fn headers(node: &Node, cx: &mut Cx) -> Option<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for (key, value) in node.entries(cx)? {
        let name = parse_field_name(&key.text).map_err(|message| cx.problem(&key.at, message)).ok();
        headers.extend(name.zip(value.parsed(cx, parse_field_value)));
    }
    Some(headers)
}

fn parse_expect(text: &str) -> Result<Expect, String> {
    match text {
        "allow" => Ok(Expect::Allow),
        "policy" => Ok(Expect::Policy),
        "secret" => Ok(Expect::Secret),
        _ => Name::identifier(text).map(Expect::Detector),
    }
}

struct Request {
    method: String,
    scheme: String,
    host: Host,
    port: u16,
    path: String,
}

fn parse_request(text: &str) -> Result<Request, String> {
    let shape = || format!("{} is not a request: write one like `GET https://example.org/x`", quoted(text));
    let (method, url) = text.split_once(' ').ok_or_else(shape)?;
    let (scheme, rest) = url.split_once("://").ok_or_else(shape)?;
    let default_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(shape()),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = split_port(authority);
    if path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{} is not a request: write the URL escaped and without a fragment",
            quoted(text)
        ));
    }
    Ok(Request {
        method: parse_method(method)?,
        scheme: scheme.to_owned(),
        host: Host::parse(host)?,
        port: port.map_or(Ok(default_port), parse_port)?,
        path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
    })
}

/// Host and port of an authority; the colons inside brackets are an address's.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}
