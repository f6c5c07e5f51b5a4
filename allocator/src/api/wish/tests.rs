//! Each bad request by the field that is to blame.

use super::*;
use crate::testing::FakeHost;

fn request(text: &str) -> Result<AcquireRequest, serde_json::Error> {
    serde_json::from_str(text)
}

fn check(text: &str) -> Result<Wish, Error> {
    let peer = i32::try_from(std::process::id()).ok();
    wish_of(&request(text).expect("it parses"), Duration::from_secs(7), peer, &FakeHost::default())
}

fn blamed(text: &str) -> &'static str {
    match check(text) {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_bad_request_names_its_field() {
    let long = "x".repeat(201);
    let many: String = (0..65).map(|index| format!(r#"{{"name":"p{index}"}},"#)).collect();
    let cases = [
        (r#"{"client_key":"","ports":[{"name":"a"}]}"#.to_owned(), "client_key"),
        (format!(r#"{{"client_key":"{long}","ports":[{{"name":"a"}}]}}"#), "client_key"),
        (r#"{"client_key":"a\u0007","ports":[{"name":"a"}]}"#.to_owned(), "client_key"),
        (r#"{"client_key":"k"}"#.to_owned(), "ports"),
        (format!(r#"{{"client_key":"k","ports":[{}]}}"#, many.trim_end_matches(',')), "ports"),
        (r#"{"client_key":"k","ports":[{"name":"a"},{"name":"a"}]}"#.to_owned(), "ports.name"),
        (r#"{"client_key":"k","ports":[{"name":"A_B"}]}"#.to_owned(), "ports.name"),
        (r#"{"client_key":"k","ports":[{"name":""}]}"#.to_owned(), "ports.name"),
        (r#"{"client_key":"k","session":"","ports":[{"name":"a"}]}"#.to_owned(), "session"),
        (r#"{"client_key":"k","policy":"a\nb","ports":[{"name":"a"}]}"#.to_owned(), "policy"),
        (r#"{"client_key":"k","ttl":"7","ports":[{"name":"a"}]}"#.to_owned(), "ttl"),
        (r#"{"client_key":"k","ttl":"500ms","ports":[{"name":"a"}]}"#.to_owned(), "ttl"),
        (r#"{"client_key":"k","ttl":"8d","ports":[{"name":"a"}]}"#.to_owned(), "ttl"),
        (r#"{"client_key":"k","owner":{"pid":2147483647},"ports":[{"name":"a"}]}"#.to_owned(), "owner.pid"),
        (
            r#"{"client_key":"k","owner":{"labels":{"":"x"}},"ports":[{"name":"a"}]}"#.to_owned(),
            "owner.labels",
        ),
    ];
    for (text, field) in cases {
        assert_eq!(blamed(&text), field, "{text}");
    }
}

#[test]
fn unknown_keys_and_wrong_types_do_not_parse() {
    for text in [
        r#"{"client_key":"k","port":[]}"#,
        r#"{"client_key":"k","ports":[{"name":"a","number":70000}]}"#,
        r#"{"client_key":"k","ports":[{"name":"a","proto":"sctp"}]}"#,
        r#"{"client_key":"k","subnet":{"prefix":"24"}}"#,
        r#"{"client_key":"k","subnet":{"cidr":"10.0.0.0/8"}}"#,
    ] {
        assert!(request(text).is_err(), "{text}");
    }
}

#[test]
fn defaults_are_filled_in() {
    let wish = check(r#"{"client_key":"k","subnet":{}}"#).expect("it is good");
    assert_eq!((wish.session.as_str(), wish.ttl, wish.policy), ("k", Duration::from_secs(7), None));
    assert_eq!(wish.subnet, Some(SubnetWish { prefix: None, create_network: false, internal: false }));
}

#[test]
fn a_fingerprint_is_of_the_meaning_and_not_of_the_key() {
    let print = |text: &str| check(text).expect("it is good").request;
    let base = print(r#"{"client_key":"k","ports":[{"name":"a"}],"ttl":"60s"}"#);
    assert_eq!(base, print(r#"{"ttl":"60s","ports":[{"proto":"tcp","name":"a"}],"client_key":"other"}"#));
    assert_ne!(base, print(r#"{"client_key":"k","ports":[{"name":"b"}],"ttl":"60s"}"#));
    assert_ne!(base, print(r#"{"client_key":"k","ports":[{"name":"a"}],"ttl":"61s"}"#));
}
