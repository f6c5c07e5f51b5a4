use decant_detectors::Selection;

use super::*;
use crate::inspect::testing::{Recorder, TOKEN, rules};
use crate::inspect::verdict::{Place, Ruling};

/// Runs a scan under a judge that rules the same on everything.
fn judged<T>(
    ruling: Ruling,
    direction: Direction,
    scan: impl FnOnce(&HeadScan<'_>) -> T,
) -> (T, Arc<Recorder>) {
    let judge = Recorder::new(ruling);
    let rules = rules();
    let selection = Arc::new(Selection::all(&rules));
    let head =
        HeadScan { rules: &rules, selection: &selection, direction, judge: judge.as_ref(), fixed: None };
    (scan(&head), judge)
}

/// What a scan finds: surface, field, view and offset of each.
fn scan(direction: Direction, scan: impl FnOnce(&HeadScan<'_>) -> Result<(), Blocked>) -> Vec<String> {
    let (passed, judge) = judged(Ruling::Pass, direction, scan);
    passed.expect("everything passes");
    assert!(
        judge.found().iter().all(|(.., value)| value.eq_ignore_ascii_case(TOKEN)),
        "the value is at hand"
    );
    let hits = judge.hits.lock().unwrap();
    let show = |hit: &Hit| {
        let Place { surface, field, view, offset, .. } = &hit.place;
        let field = field.as_ref().map_or("-", HeaderName::as_str);
        format!("{} {field} [{view}] {offset}", surface.name())
    };
    hits.iter().map(|(hit, _)| show(hit)).collect()
}

/// The values that a scan finds.
fn found_in(scan: impl FnOnce(&HeadScan<'_>) -> Result<(), Blocked>) -> Vec<String> {
    let (passed, judge) = judged(Ruling::Pass, Direction::Request, scan);
    passed.expect("everything passes");
    judge.found().into_iter().map(|(.., value)| String::from_utf8(value).expect("text")).collect()
}

fn token() -> &'static str {
    std::str::from_utf8(TOKEN).expect("it is text")
}

fn request(method: &str, uri: &str, fields: &[(&str, &str)]) -> Vec<String> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let headers = headers(fields);
    scan(Direction::Request, |head| {
        head.opening(None, &method, &uri.parse().expect("a URI"), &headers).map(drop)
    })
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(
            HeaderName::try_from(*name).expect("a name"),
            HeaderValue::from_str(value).expect("a value"),
        );
    }
    headers
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn every_part_of_a_request_is_scanned() {
    let token = token();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("user:{token}"));
    /// Method, URI, fields, and what is found.
    type Head<'a> = (&'a str, String, &'a [(&'a str, String)], &'a [&'a str]);
    let cases: &[Head<'_>] = &[
        ("GET", "/".into(), &[("accept", "*/*".into()), ("cookie", "a=b".into())], &[]),
        (token, "/".into(), &[], &["method - [] 0"]),
        ("GET", format!("/a/{token}/b"), &[], &["url - [] 3"]),
        ("GET", format!("/?q={token}"), &[], &["url - [] 4"]),
        ("GET", format!("http://{token}.example/x"), &[], &["url - [] 0"]),
        ("GET", format!("/?q={}", percent(token)), &[], &["url - [percent] 4"]),
        ("GET", format!("/?q={}", percent(&percent(token))), &[], &["url - [percent>percent] 4"]),
        ("GET", format!("/%20{token}"), &[], &["url - [] 4", "url - [percent] 2"]),
        ("GET", "/".into(), &[("x-key", token.into())], &["header x-key [] 7"]),
        ("GET", "/".into(), &[("a", "b".into()), ("x-key", format!("a {token}"))], &["header x-key [] 9"]),
        ("GET", "/".into(), &[("cookie", format!("s={token}; t=1"))], &["cookie cookie [] 10"]),
        (
            "GET",
            "/".into(),
            &[("authorization", format!("Bearer {token}"))],
            &["authorization authorization [] 22"],
        ),
        (
            "GET",
            "/".into(),
            &[("authorization", format!("bAsIC {basic}"))],
            &["authorization authorization [base64] 5"],
        ),
        (
            "GET",
            "/".into(),
            &[("proxy-authorization", format!("Basic  {}", basic.trim_end_matches('=')))],
            &["authorization proxy-authorization [base64] 5"],
        ),
        (
            "GET",
            "/".into(),
            &[("authorization", format!("Basic\t{basic}"))],
            &["authorization authorization [base64] 5"],
        ),
        ("GET", "/".into(), &[("authorization", "Basic not base64".into())], &[]),
    ];
    for (method, uri, fields, expected) in cases {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(request(method, uri, &fields), *expected, "{method} {uri} {fields:?}");
    }
}

#[test]
fn secrets_in_names_and_across_a_name_and_its_value_are_seen_as_they_stand() {
    let name = token().to_ascii_lowercase();
    assert_eq!(
        request("GET", "/", &[(&name, "x")]),
        ["header ghp_0123456789abcdefghijabcdefghij012345 [] 0", "header - [] 0"]
    );
    let (front, back) = token().split_at(20);
    assert_eq!(request("GET", "/", &[(front, back)]), [""; 0], "a separator stands between them");
}

/// What a name is encoded in may be read without its case.
#[test]
fn names_are_scanned_behind_their_encodings() {
    let hex: String = token().bytes().map(|byte| format!("{byte:02x}")).collect();
    for name in [hex, percent(token())] {
        let fields = headers(&[(&format!("x-{name}"), "1")]);
        assert!(found_in(|head| head.trailers(&fields)).contains(&token().to_owned()), "{name}");
    }
}

/// HTTP/1 passes names on as they were spelt, and labels of hosts are told to resolvers and origins.
#[test]
fn names_that_have_lost_their_case_are_scanned_in_both() {
    let key = ["AKIA", "QWERTYUIOPASDFGH"].concat();
    let host = format!("{}.test", key.to_lowercase());
    assert_eq!(found_in(|head| head.host(&host)).concat(), key);
    let fields = headers(&[(&key, "1")]);
    assert_eq!(found_in(|head| head.trailers(&fields)), [key]);
}

#[test]
fn what_is_encoded_over_and_over_is_trouble() {
    for (rounds, kinds) in [(PERCENT_ROUNDS, vec![]), (PERCENT_ROUNDS + 1, vec![TroubleKind::Nested])] {
        let uri = format!("/?q=%{}67hp", "25".repeat(rounds - 1)).parse().expect("a URI");
        let (passed, judge) = judged(Ruling::Pass, Direction::Request, |head| {
            head.opening(None, &Method::GET, &uri, &HeaderMap::new()).map(drop)
        });
        passed.expect("everything passes");
        assert_eq!(judge.trouble_kinds(), kinds, "{rounds} rounds");
    }
}

#[test]
fn responses_and_trailers_are_scanned() {
    let fields = headers(&[("set-cookie", &format!("s={}", token()))]);
    let found = scan(Direction::Response, |head| head.response(Some(TOKEN), &fields).map(drop));
    assert_eq!(found, ["header - [] 0", "cookie set-cookie [] 14"]);
    let found = scan(Direction::Response, |head| head.trailers(&fields));
    assert_eq!(found, ["trailer set-cookie [] 14"]);
}

#[test]
fn a_block_ends_the_scan() {
    let fields = headers(&[("x-key", token()), ("y-key", token())]);
    let (passed, judge) = judged(Ruling::Block, Direction::Request, |head| {
        head.opening(None, &Method::GET, &Uri::from_static("/"), &fields)
    });
    let blocked = passed.expect_err("it is blocked");
    assert!(matches!(blocked, Blocked::Match(hit) if hit.place.surface == Surface::Header));
    assert_eq!(judge.found().len(), 1, "nothing behind it is looked at");
}

/// What becomes of a field under a judge that has everything overwritten; `None` where it blocks.
fn redacted(name: &str, value: &str) -> Option<String> {
    let mut fields = headers(&[("a", "b"), (name, value), ("c", "d")]);
    let (passed, _) = judged(Ruling::Redact, Direction::Request, |head| {
        let found = head.opening(None, &Method::GET, &Uri::from_static("/"), &fields)?;
        head.overwrite(&found, &mut fields)
    });
    assert_eq!(
        (&fields["a"], &fields["c"]),
        (&HeaderValue::from_static("b"), &HeaderValue::from_static("d"))
    );
    passed.ok().map(|()| fields[name].to_str().expect("text").to_owned())
}

#[test]
fn matches_in_values_of_fields_are_overwritten_unless_the_message_depends_on_them() {
    let (token, stars) = (token(), "*".repeat(TOKEN.len()));
    let bounded = ["ASIA", "QWERTYUIOPASDFGH"].concat();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("user:{token}"));
    let cases = [
        ("x-note", format!("see {token} and {token}."), Some(format!("see {stars} and {stars}."))),
        ("authorization", format!("Bearer {token}"), Some(format!("Bearer {stars}"))),
        ("cookie", format!("a={token}; b=c"), Some(format!("a={stars}; b=c"))),
        ("x-note", "nothing".to_owned(), Some("nothing".to_owned())),
        ("authorization", format!("Basic {basic}"), None),
        ("host", format!("{token}.test"), None),
        ("content-type", format!("text/{token}"), None),
        (token, "x".to_owned(), None),
        // What the overwritten token was glued to is a match by itself.
        ("x-note", format!("{bounded}{token}"), None),
        ("x-note", format!("{bounded}_{token}"), Some(format!("{bounded}_{stars}"))),
    ];
    for (name, value, expected) in cases {
        assert_eq!(redacted(name, &value), expected, "{name}: {value}");
    }
}

#[test]
fn nothing_else_of_a_head_is_overwritten() {
    let uri: Uri = format!("/?q={}", token()).parse().expect("a URI");
    let fields = headers(&[("x-note", token())]);
    let blocks = |scan: &dyn Fn(&HeadScan<'_>) -> Result<(), Blocked>| {
        let (passed, _) = judged(Ruling::Redact, Direction::Request, |head| scan(head));
        assert!(passed.is_err());
    };
    blocks(&|head| head.opening(None, &Method::GET, &uri, &HeaderMap::new()).map(drop));
    blocks(&|head| head.response(Some(TOKEN), &HeaderMap::new()).map(drop));
    blocks(&|head| head.trailers(&fields));
    blocks(&|head| HeadScan { fixed: Some(Fixed::Sealed), ..*head }.response(None, &fields).map(drop));
}

/// A URL that S3 has signed, with a session token that a rule knows.
fn signed_url(rest: &str) -> String {
    let signature = "0123456789abcdef".repeat(4);
    let secret = format!("{}{}", token().replace('_', "-"), "x".repeat(60));
    format!(
        "/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAQWERTYUIOPASDFGH%2F20261201%2Feu%2Fs3%2Faws4_request\
         &X-Amz-Date=20261201T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}\
         &X-Amz-Security-Token={secret}{rest}"
    )
}

#[test]
fn what_signs_a_url_is_marked_so() {
    // The key's id stands in the URL as it came and decoded, and there in the answer's `Location`.
    let cases = [("", true), ("&x-amz-date=1", false)];
    for (rest, signed) in cases {
        let url = signed_url(rest);
        let fields = headers(&[("location", &format!("https://a.test{url}")), ("x-note", &url)]);
        let (_, judge) = judged(Ruling::Pass, Direction::Request, |head| {
            head.opening(None, &Method::GET, &url.parse().expect("a URI"), &HeaderMap::new()).map(drop)
        });
        let (_, answered) =
            judged(Ruling::Pass, Direction::Response, |head| head.response(None, &fields).map(drop));
        let marks = |judge: &Recorder| {
            judge.hits.lock().unwrap().iter().map(|(hit, _)| hit.signed).collect::<Vec<_>>()
        };
        assert_eq!(marks(&judge), [signed, signed], "{url}");
        assert_eq!(marks(&answered), [signed, false], "elsewhere a URL is text: {url}");
    }
    let (_, judge) = judged(Ruling::Pass, Direction::Request, |head| {
        let beside = signed_url(&format!("&q={}", token()));
        head.opening(None, &Method::GET, &beside.parse().expect("a URI"), &HeaderMap::new()).map(drop)
    });
    let hits = judge.hits.lock().unwrap();
    assert!(hits.iter().any(|(hit, _)| !hit.signed), "beside the signature it is a leak");
}
