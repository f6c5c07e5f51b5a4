use super::*;

/// The anchor of `pattern` as text, and whether it has a head.
fn anchor_of(pattern: &str, keywords: &[&str]) -> Result<String, Reason> {
    let limits = BuildLimits::default();
    let keywords: Vec<String> = keywords.iter().map(|&k| k.to_owned()).collect();
    let pattern = Pattern::parse(pattern, Some(4096), &limits)?;
    let choice = choose(&pattern, &keywords, &Frequencies::of_traffic(), &limits)?;
    let head = if choice.cut.head().is_some() { "^" } else { "" };
    Ok(match choice.anchor {
        Anchor::Literals(literals) => {
            let texts: Vec<String> = literals.iter().map(|l| l.escape_ascii().to_string()).collect();
            format!("{head}{}", texts.join(" "))
        }
        Anchor::Classes(classes) => {
            format!("{head}{}", classes.iter().map(ByteSet::to_string).collect::<String>())
        }
    })
}

#[test]
fn the_rarest_required_literal_or_class_run_is_chosen() {
    let cases = [
        ("ghp_[A-Za-z0-9]{36}", "ghp_"),
        ("(ghp)_[A-Za-z0-9]{36}", "ghp_"),
        (r"\bAKIA[A-Z2-7]{16}\b", "AKIA"),
        ("xox[bp]-[0-9]+", "xoxb- xoxp-"),
        ("(?:sk|rk)_(?:live|test)_[a-z]{3}", "rk_live_ rk_test_ sk_live_ sk_test_"),
        ("[0-9a-f]{32}-us[0-9]{1,2}", "^-us"),
        ("[0-9]{8,10}:AA[A-Za-z0-9_-]{33}", "^:AA"),
        ("[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9]{31}", "^Q~"),
        ("(?i)key", "KEY KEy KeY Key kEY kEy keY key"),
        ("(?:https?)://x", "http://x https://x"),
        (r"\b[0-9]{13,19}\b", "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"),
        (r"[0-9]{3}-[0-9]{2}-[0-9]{4}", "[0-9][0-9][0-9]-[0-9][0-9]-[0-9]"),
        ("-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----", "-----BEGIN "),
        ("foo|foobar", "foo"),
    ];
    for (pattern, expected) in cases {
        assert_eq!(anchor_of(pattern, &[]).unwrap(), expected, "{pattern}");
    }
}

#[test]
fn case_blind_words_are_cut_where_their_spellings_grow_too_many() {
    let anchor = anchor_of("(?i)password=", &[]).unwrap();
    assert_eq!(anchor.split(' ').count(), SPELLINGS);
    assert!(anchor.contains("PaSs"), "{anchor}");
}

#[test]
fn keywords_choose_among_literals_and_are_checked() {
    let pattern = "abc[0-9]{4}xyz[0-9]";
    assert_eq!(anchor_of(pattern, &[]).unwrap(), "abc");
    assert_eq!(anchor_of(pattern, &["xyz"]).unwrap(), "^xyz");
    let refused = anchor_of(pattern, &["token"]).unwrap_err();
    assert!(matches!(&refused, Reason::Keyword { keyword, .. } if keyword == "token"), "{refused}");
}

#[test]
fn a_pattern_with_nothing_rare_is_refused() {
    for pattern in ["[a-z]+", r"\w{3}", "[^x]{20}", r"[A-Za-z0-9+/]{40}"] {
        let refused = anchor_of(pattern, &[]).unwrap_err();
        assert!(matches!(refused, Reason::NoAnchor { .. }), "{pattern}: {refused}");
    }
}

#[test]
fn credential_prefixes_are_evidence_and_words_are_not() {
    let cases = [
        ("ghp_[a-z]{3}", Some(4)),
        ("eyJ[a-z]{3}", Some(3)),
        ("AKIA[A-Z]{3}", Some(4)),
        ("(?:sk-|sk-proj-)[0-9]", Some(3)),
        ("SK[0-9a-f]{32}", None),
        ("dapi[0-9a-f]{32}", None),
        ("://[a-z]{3}", None),
        ("(?i)password[0-9]", None),
    ];
    for (pattern, expected) in cases {
        let limits = BuildLimits::default();
        let parsed = Pattern::parse(pattern, Some(4096), &limits).unwrap();
        let choice = choose(&parsed, &[], &Frequencies::of_traffic(), &limits).unwrap();
        assert_eq!(choice.evident_after, expected, "{pattern}");
    }
}
