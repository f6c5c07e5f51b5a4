//! Every row is one spelling and what it means.

use proptest::prelude::*;

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "rows read better")]
fn check_authority(text: &str, expected: Result<&str, TargetError>) {
    let found = Target::from_authority(text).map(|target| format!("{} {}", target.host, target.port));
    assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text), "authority {text:?}");
}

#[test]
fn spellings_of_one_name_are_one_host() {
    for text in [
        "example.org:443",
        "EXAMPLE.org:443",
        "example.org.:443",
        "ExAmPlE.OrG.:443",
        "example。org:443",
        "ｅxample.org:443",
    ] {
        check_authority(text, Ok("example.org 443"));
    }
    check_authority("bücher.example:443", Ok("xn--bcher-kva.example 443"));
    check_authority("BÜCHER.example:443", Ok("xn--bcher-kva.example 443"));
    check_authority("xn--bcher-kva.example:443", Ok("xn--bcher-kva.example 443"));
    check_authority("faß.de:443", Ok("xn--fa-hia.de 443"));
    check_authority("_acme.my_bucket.example:443", Ok("_acme.my_bucket.example 443"));
}

#[test]
fn every_notation_of_an_ipv4_address_is_that_address() {
    for text in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f.1",
        "0X7F.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "127.0x0.0.01",
        "１２７.0.0.1",
        "127。0。0。1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ] {
        check_authority(&format!("{text}:80"), Ok("127.0.0.1 80"));
    }
    check_authority("0x:80", Ok("0.0.0.0 80"));
    check_authority("0:80", Ok("0.0.0.0 80"));
    check_authority("4294967295:80", Ok("255.255.255.255 80"));
    check_authority("169.16689662:80", Ok("169.254.169.254 80"));
}

#[test]
fn what_ends_in_a_number_is_an_address_or_nothing() {
    for text in [
        "256.0.0.1",
        "1.2.3.4.5",
        "4294967296",
        "127.0.0.256",
        "1.2.3.09",
        "example.1",
        "a.0x1f",
        "1..2",
        "08.1",
        "99999999999999999999",
        "0x1ffffffffffffffff",
        "127.0.0.0x100",
    ] {
        let error = Target::from_authority(&format!("{text}:80")).expect_err(text);
        assert!(matches!(error, TargetError::Ipv4(_) | TargetError::EmptyLabel), "{text}: {error:?}");
    }
}

#[test]
fn ipv6_stands_in_brackets() {
    check_authority("[::1]:443", Ok("[::1] 443"));
    check_authority("[2001:DB8:0:0::1]:8443", Ok("[2001:db8::1] 8443"));
    check_authority("::1:443", Err(TargetError::UnbracketedIpv6));
    check_authority("fe80::1:443", Err(TargetError::UnbracketedIpv6));
    check_authority("[fe80::1%25lo]:443", Err(TargetError::ZoneId));
    check_authority("[fe80::1%lo]:443", Err(TargetError::ZoneId));
    check_authority("[::1:443", Err(TargetError::Ipv6(Excerpt::new("[::1:443"))));
    check_authority("[::1]443", Err(TargetError::Ipv6(Excerpt::new("[::1]443"))));
    check_authority("[127.0.0.1]:443", Err(TargetError::Ipv6(Excerpt::new("127.0.0.1"))));
    check_authority("[v1.x]:443", Err(TargetError::Ipv6(Excerpt::new("v1.x"))));
}

#[test]
fn what_has_no_clear_meaning_is_refused() {
    check_authority("", Err(TargetError::PortMissing));
    check_authority(":443", Err(TargetError::HostEmpty));
    check_authority(".:443", Err(TargetError::HostEmpty));
    check_authority("a..b:443", Err(TargetError::EmptyLabel));
    check_authority(".a:443", Err(TargetError::EmptyLabel));
    check_authority("a..:443", Err(TargetError::EmptyLabel));
    check_authority("user@a.test:443", Err(TargetError::Userinfo));
    check_authority("user:pw@a.test:443", Err(TargetError::Userinfo));
    check_authority("%65xample.org:443", Err(TargetError::PercentEncoded));
    check_authority("a b:443", Err(TargetError::Character(' ')));
    check_authority("a/b:443", Err(TargetError::Character('/')));
    check_authority("a\0b:443", Err(TargetError::Character('\0')));
    check_authority("a~b:443", Err(TargetError::Character('~')));
    check_authority("xn--a:443", Err(TargetError::Idna(Excerpt::new("xn--a"))));
    check_authority("xn--999999999:443", Err(TargetError::Idna(Excerpt::new("xn--999999999"))));
    check_authority(&format!("{}.test:443", "a".repeat(64)), Err(TargetError::NameTooLong));
    check_authority(&format!("{}test:443", "a.".repeat(125)), Err(TargetError::NameTooLong));
    check_authority(&format!("{}:443", "ü".repeat(2000)), Err(TargetError::NameTooLong));
}

#[test]
fn ports_are_numbers_from_1_to_65535() {
    check_authority("a.test:1", Ok("a.test 1"));
    check_authority("a.test:65535", Ok("a.test 65535"));
    check_authority("a.test:0443", Ok("a.test 443"));
    check_authority("a.test", Err(TargetError::PortMissing));
    for port in ["", "0", "65536", "99999", "+443", "-1", "4 43", "443x", "99999999999999999999"] {
        check_authority(&format!("a.test:{port}"), Err(TargetError::Port(Excerpt::new(port))));
    }
}

#[test]
fn absolute_uris_give_scheme_host_and_port() {
    let rows = [
        ("http://a.test/x", Ok("http://a.test")),
        ("HTTP://A.test:80/", Ok("http://a.test")),
        ("https://a.test:443/", Ok("https://a.test")),
        ("https://a.test:80/", Ok("https://a.test:80")),
        ("http://[::1]:8080/", Ok("http://[::1]:8080")),
        ("http://user@a.test/", Err(TargetError::Userinfo)),
        ("ftp://a.test/", Err(TargetError::Scheme(Excerpt::new("ftp")))),
        ("http://a.test:0/", Err(TargetError::Port(Excerpt::new("0")))),
        ("http://a.test:99999/", Err(TargetError::Port(Excerpt::new("99999")))),
        ("/only/a/path", Err(TargetError::NotAbsolute)),
        ("a.test:443", Err(TargetError::NotAbsolute)),
    ];
    for (text, expected) in rows {
        let uri: Uri = text.parse().unwrap();
        let found = Target::from_absolute_uri(&uri).map(|target| target.to_string());
        assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text), "uri {text}");
    }
}

#[test]
fn authorities_agree_when_host_and_port_do() {
    let target = Target::from_authority("a.test:443").unwrap();
    for same in ["a.test", "A.TEST", "a.test:443", "a.test.", "a.test.:443"] {
        assert_eq!(target.is_named_by(same), Ok(true), "{same}");
    }
    for other in ["b.test", "a.test:80", "a.test:8443", "x.a.test", "127.0.0.1"] {
        assert_eq!(target.is_named_by(other), Ok(false), "{other}");
    }
    assert!(target.is_named_by("a.test:0").is_err());
    assert!(target.is_named_by("u@a.test").is_err());
    let plain = Target::from_authority("a.test:80").unwrap().with_scheme(Scheme::Http);
    assert_eq!(plain.is_named_by("a.test"), Ok(true));
    assert_eq!(plain.is_named_by("a.test:443"), Ok(false));
    let address = Target::from_authority("[::1]:443").unwrap();
    assert_eq!(address.is_named_by("[0:0::1]"), Ok(true));
}

#[test]
fn server_names_agree_with_the_host() {
    let target = Target::from_authority("a.test:443").unwrap();
    assert!(target.is_served_as("A.test"));
    assert!(!target.is_served_as("b.test"));
    assert!(!target.is_served_as(""));
    assert!(target.host.server_name().is_some());
    assert!(Host::parse("-a.test").unwrap().server_name().is_none());
    assert!(matches!(Host::parse("[::1]").unwrap().server_name(), Some(ServerName::IpAddress(_))));
}

proptest! {
    /// A canonical authority parses to itself: nothing is lost or changed by a second pass.
    #[test]
    fn parsing_is_idempotent(text in "\\PC{0,40}:[0-9]{1,5}") {
        if let Ok(target) = Target::from_authority(&text) {
            let again = format!("{}:{}", target.host, target.port);
            prop_assert_eq!(Target::from_authority(&again), Ok(target));
        }
    }

    /// Any text is answered, none panics.
    #[test]
    fn no_text_panics(text in ".{0,80}") {
        let _ = Host::parse(&text);
        let _ = Target::from_authority(&text);
    }
}
