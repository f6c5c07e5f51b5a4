use super::*;

/// Spelling and canonical form; `!` stands before what a refusal says.
const HOSTS: &[(&str, &str)] = &[
    ("example.org", "example.org"),
    ("EXAMPLE.Org", "example.org"),
    ("example.org.", "example.org"),
    ("bücher.example", "xn--bcher-kva.example"),
    ("BÜCHER.example.", "xn--bcher-kva.example"),
    ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("ｅｘａｍｐｌｅ.org", "example.org"),
    ("example。org", "example.org"),
    ("faß.example", "xn--fa-hia.example"),
    ("a_b.example", "a_b.example"),
    ("localhost", "localhost"),
    ("1e100.net", "1e100.net"),
    ("3com.example", "3com.example"),
    ("192.0.2.1", "192.0.2.1"),
    ("192.0.2.1.", "192.0.2.1"),
    ("１９２.0.2.1", "192.0.2.1"),
    ("2001:DB8::1", "[2001:db8::1]"),
    ("[2001:db8:0:0::1]", "[2001:db8::1]"),
    ("::ffff:192.0.2.1", "192.0.2.1"),
    ("[::ffff:c000:201]", "192.0.2.1"),
    ("2130706433", "!write an IPv4 address as"),
    ("127.1", "!write an IPv4 address as"),
    ("0x7f.0.0.1", "!write an IPv4 address as"),
    ("0x7f000001", "!write an IPv4 address as"),
    ("0x", "!write an IPv4 address as"),
    ("0177.0.0.1", "!write an IPv4 address as"),
    ("127.0.0.01", "!write an IPv4 address as"),
    ("example.123", "!write an IPv4 address as"),
    ("256.0.0.1", "!write an IPv4 address as"),
    ("", "!it is empty: write a name"),
    (".", "!names are labels"),
    ("a..b", "!names are labels"),
    (".example.org", "!names are labels"),
    ("example.org..", "!names are labels"),
    ("exa mple.org", "!names are labels"),
    ("exa\0mple.org", "!names are labels"),
    ("exa\u{202e}mple.org", "!names are labels"),
    ("example.org:443", "!ports have a key of their own"),
    ("https://example.org", "!without a scheme"),
    ("example.org/x", "!without a path"),
    ("user@example.org", "!without a user"),
    ("exa%6dple.org", "!without escapes"),
    ("fe80::1%eth0", "!without escapes or a zone"),
    ("[fe80::1%25eth0]", "!without escapes or a zone"),
    ("[2001:db8::1", "!ports have a key of their own"),
    ("[example.org]", "!names are labels"),
    ("xn--0.example", "!names are labels"),
    ("exam*ple.org", "!names are labels"),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.org", "!names are labels"),
];

#[test]
fn a_host_has_one_form() {
    for (text, wanted) in HOSTS {
        match (Host::parse(text), wanted.strip_prefix('!')) {
            (Ok(host), None) => assert_eq!(host.to_string(), *wanted, "{text:?}"),
            (Err(message), Some(reason)) => assert!(message.contains(reason), "{text:?}: {message}"),
            (result, _) => panic!("{text:?}: {result:?}, wanted {wanted:?}"),
        }
    }
}

#[test]
fn the_canonical_form_is_its_own() {
    for (_, wanted) in HOSTS.iter().filter(|(_, wanted)| !wanted.starts_with('!')) {
        assert_eq!(Host::parse(wanted).unwrap().to_string(), *wanted);
    }
}

/// Pattern, a host, and whether the pattern speaks of it.
const MATCHES: &[(&str, &str, bool)] = &[
    ("*", "example.org", true),
    ("*", "192.0.2.1", true),
    ("example.org", "example.org", true),
    ("EXAMPLE.org.", "example.org", true),
    ("example.org", "www.example.org", false),
    ("*.example.org", "www.example.org", true),
    ("*.example.org", "a.b.example.org", true),
    ("*.example.org", "example.org", false),
    ("*.example.org", "badexample.org", false),
    ("*.example.org", "example.org.evil.test", false),
    ("*.bücher.example", "www.xn--bcher-kva.example", true),
    ("192.0.2.1", "192.0.2.1", true),
    ("192.0.2.1", "192.0.2.2", false),
    ("[2001:db8::1]", "2001:db8:0::1", true),
    ("::ffff:192.0.2.1", "192.0.2.1", true),
];

#[test]
fn patterns_match_canonical_hosts() {
    for (pattern, host, wanted) in MATCHES {
        let pattern: HostPattern = pattern.parse().unwrap();
        assert_eq!(pattern.matches(&Host::parse(host).unwrap()), *wanted, "{pattern} {host}");
    }
}

#[test]
fn patterns_cover_narrower_ones() {
    let covers =
        |left: &str, right: &str| left.parse::<HostPattern>().unwrap().covers(&right.parse().unwrap());
    assert!(covers("*", "*.org"));
    assert!(covers("*.org", "*.example.org"));
    assert!(covers("*.org", "example.org"));
    assert!(covers("*.example.org", "*.example.org"));
    assert!(!covers("*.example.org", "*.org"));
    assert!(!covers("*.example.org", "example.org"));
    assert!(!covers("*.example.org", "*"));
    assert!(!covers("example.org", "*.example.org"));
}

#[test]
fn a_star_stands_alone_or_in_front() {
    for text in ["a.*.org", "*example.org", "example.*", "**", "*.*.org", "*.192.0.2.1", "*."] {
        assert!(text.parse::<HostPattern>().is_err(), "{text}");
    }
}
