//! Heads of either form, in the form of either version.

use http::{Method, Request};

use super::*;

fn parts(method: Method, uri: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn address(text: &str) -> Address {
    Address::of(&Target::from_authority(text).unwrap()).unwrap()
}

#[test]
fn the_target_form_is_the_versions_own() {
    for (uri, path) in [
        ("https://other.test/a?b=c", "/a?b=c"),
        ("/a?b=c", "/a?b=c"),
        ("https://other.test", "/"),
        ("https://other.test?q", "/?q"),
        ("/", "/"),
    ] {
        let mut head = parts(Method::GET, uri, &[("host", "other.test"), ("accept", "*/*")]);
        for_http1(&mut head, &address("a.test:443"));
        assert_eq!((head.uri.to_string().as_str(), head.version), (path, Version::HTTP_11));
        assert_eq!(head.headers.get_all(HOST).iter().collect::<Vec<_>>(), ["a.test"]);
        for_http2(&mut head, &address("a.test:8443"));
        assert_eq!(head.uri.to_string(), format!("https://a.test:8443{path}"));
        assert_eq!(head.version, Version::HTTP_2);
        assert!(!head.headers.contains_key(HOST));
        assert_eq!(head.headers["accept"], "*/*");
        for_http1(&mut head, &address("[::1]:443"));
        assert_eq!(
            (head.uri.to_string().as_str(), &head.headers[HOST]),
            (path, &HeaderValue::from_static("[::1]"))
        );
    }
}

#[test]
fn the_asterisk_form_stays() {
    let mut head = parts(Method::OPTIONS, "*", &[]);
    for_http1(&mut head, &address("a.test:443"));
    assert_eq!(head.uri.to_string(), "*");
    for_http2(&mut head, &address("a.test:443"));
    assert_eq!(head.uri.path(), "*");
}

#[test]
fn cookie_crumbs_become_one_field_on_http1() {
    let crumbs = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c=3"), ("cookie", "d=\u{e9}")];
    let mut head = parts(Method::GET, "/", &crumbs);
    for_http2(&mut head, &address("a.test:443"));
    assert_eq!(head.headers.get_all(COOKIE).iter().count(), 3, "HTTP/2 keeps them apart");
    for_http1(&mut head, &address("a.test:443"));
    let cookies: Vec<_> = head.headers.get_all(COOKIE).iter().collect();
    assert_eq!(cookies, [&HeaderValue::from_bytes("a=1; b=2; c=3; d=\u{e9}".as_bytes()).unwrap()]);
}
