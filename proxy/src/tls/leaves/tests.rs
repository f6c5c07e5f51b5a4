//! What a client gets to see, and what the cache does.

use std::process::Command;

use time::macros::datetime;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::super::AuthoritySettings;
use super::*;

const NOW: OffsetDateTime = datetime!(2026-10-18 12:00 UTC);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn authority(now: OffsetDateTime) -> Authority {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuthoritySettings { validity: 3650 * DAY, backdate: 2 * DAY };
    Authority::load_or_create(dir.path(), &settings, now).unwrap()
}

fn settings() -> LeafSettings {
    LeafSettings { validity: 7 * DAY, backdate: DAY, entries: 6, entries_per_bottle: 4 }
}

fn leaves() -> Leaves {
    Leaves::new(authority(NOW), settings()).unwrap()
}

fn bottle(name: &str) -> BottleKey {
    BottleKey { name: name.into(), epoch: 0 }
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn sign(host_text: &str) -> Vec<u8> {
    let mint = Mint::new(authority(NOW)).unwrap();
    mint.sign(&host(host_text), DAY, 7 * DAY, NOW).unwrap().certified.cert[0].to_vec()
}

#[test]
fn names_and_addresses_stand_in_the_san() {
    let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(60));
    for (text, common_name) in [
        ("a.test", true),
        ("xn--bcher-kva.example", true),
        ("127.0.0.1", true),
        ("[2001:db8::1]", true),
        (long.as_str(), false),
    ] {
        let der = sign(text);
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        let san = leaf.subject_alternative_name().unwrap().expect("a SAN");
        let names = match (host(text), &san.value.general_names[..]) {
            (Host::Name(name), [GeneralName::DNSName(found)]) => *name == **found,
            (Host::Ip(std::net::IpAddr::V4(ip)), [GeneralName::IPAddress(found)]) => ip.octets() == **found,
            (Host::Ip(std::net::IpAddr::V6(ip)), [GeneralName::IPAddress(found)]) => ip.octets() == **found,
            _ => false,
        };
        assert!(names, "{text}: {san:?}");
        assert_eq!(leaf.subject().iter_common_name().count() == 1, common_name, "{text}");
        assert_eq!(san.critical, !common_name, "{text}: critical exactly where the subject is empty");
    }
}

#[test]
fn extensions_satisfy_strict_verifiers() {
    let der = sign("a.test");
    let (_, leaf) = X509Certificate::from_der(&der).unwrap();
    assert!(!leaf.is_ca());
    let usage = leaf.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && !usage.value.key_cert_sign());
    let extended = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.server_auth && !extended.client_auth && !extended.any);
    let ids: Vec<String> = leaf.extensions().iter().map(|extension| extension.oid.to_id_string()).collect();
    assert!(ids.contains(&"2.5.29.14".into()), "subject key identifier: {ids:?}");
    assert!(ids.contains(&"2.5.29.35".into()), "authority key identifier: {ids:?}");
}

/// rcgen leaves the authority key identifier out unless it is asked for, and numbers certificates by their key.
#[test]
fn the_defaults_of_rcgen_would_not_do() {
    let key = rcgen::KeyPair::generate().unwrap();
    let issuer_key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::new(rcgen::CertificateParams::default(), issuer_key);
    let plain = |name: &str| {
        rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap()
    };
    let (first, second) = (plain("a.test"), plain("b.test"));
    let (_, first) = X509Certificate::from_der(first.der()).unwrap();
    let (_, second) = X509Certificate::from_der(second.der()).unwrap();
    assert_eq!(first.raw_serial(), second.raw_serial());
    assert!(first.extensions().iter().all(|extension| extension.oid.to_id_string() != "2.5.29.35"));
}

#[test]
fn serial_numbers_are_random_positive_and_of_one_length() {
    let mint = Mint::new(authority(NOW)).unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..500 {
        let leaf = mint.sign(&host("a.test"), DAY, 7 * DAY, NOW).unwrap();
        let (_, parsed) = X509Certificate::from_der(&leaf.certified.cert[0]).unwrap();
        let serial = parsed.raw_serial();
        assert_eq!(serial.len(), 16);
        assert!(serial[0] & 0x80 == 0 && serial[0] & 0x40 != 0);
        assert!(seen.insert(serial.to_vec()), "a serial number came twice");
    }
}

#[test]
fn validity_lies_within_the_authoritys() {
    let mint = Mint::new(authority(NOW)).unwrap();
    let end = mint.authority().not_after();
    for (now, not_before, not_after) in [
        (NOW, NOW - DAY, NOW + 7 * DAY),
        (NOW - DAY, NOW - 2 * DAY, NOW + 6 * DAY),
        (NOW - DAY - DAY / 2, NOW - 2 * DAY, NOW + 5 * DAY + DAY / 2),
        (end - DAY, end - 2 * DAY, end),
    ] {
        let leaf = mint.sign(&host("a.test"), DAY, 7 * DAY, now).unwrap();
        let (_, parsed) = X509Certificate::from_der(&leaf.certified.cert[0]).unwrap();
        assert_eq!(parsed.validity().not_before.to_datetime(), not_before);
        assert_eq!(parsed.validity().not_after.to_datetime(), not_after);
        assert_eq!(leaf.not_after, not_after);
    }
    let error = mint.sign(&host("a.test"), DAY, 7 * DAY, end).err().expect("expired");
    assert!(matches!(error, LeafError::AuthorityExpired(_)), "{error}");
}

#[test]
fn openssl_accepts_leaves_strictly() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: no openssl");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let now = OffsetDateTime::now_utc();
    let authority = authority(now);
    std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
    let mint = Mint::new(authority).unwrap();
    let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(60));
    for (text, option, name) in [
        ("a.test", "-verify_hostname", "a.test"),
        ("xn--bcher-kva.example", "-verify_hostname", "xn--bcher-kva.example"),
        (long.as_str(), "-verify_hostname", long.as_str()),
        ("127.0.0.1", "-verify_ip", "127.0.0.1"),
        ("[::1]", "-verify_ip", "::1"),
    ] {
        let leaf = mint.sign(&host(text), DAY, 7 * DAY, now).unwrap();
        let path = dir.path().join("leaf.pem");
        std::fs::write(&path, super::super::store::to_pem(&leaf.certified.cert[0])).unwrap();
        let output = Command::new("openssl")
            .args([
                "verify",
                "-x509_strict",
                "-purpose",
                "sslserver",
                "-no-CApath",
                "-CAfile",
                "ca.pem",
                option,
                name,
            ])
            .arg("leaf.pem")
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{text}: {output:?}");
    }
}

#[test]
fn a_leaf_is_kept_until_a_quarter_of_its_time_is_left() {
    let leaves = leaves();
    let at = |now| leaves.server_config_at(&bottle("a"), &host("a.test"), now).unwrap();
    let first = at(NOW);
    assert!(Arc::ptr_eq(&first, &at(NOW + 5 * DAY)));
    assert!(!Arc::ptr_eq(&first, &at(NOW + 5 * DAY + DAY / 4)));
    assert_eq!(leaves.counts(), (2, 1));
}

#[test]
fn bottles_share_nothing() {
    let leaves = leaves();
    let of = |name: &str| leaves.server_config_at(&bottle(name), &host("a.test"), NOW).unwrap();
    let (a, b) = (of("a"), of("b"));
    assert!(!Arc::ptr_eq(&a, &b));
    let ticket = a.ticketer.encrypt(b"session").unwrap();
    assert!(a.ticketer.decrypt(&ticket).is_some());
    assert!(b.ticketer.decrypt(&ticket).is_none());
    let later_epoch = BottleKey { name: "a".into(), epoch: 1 };
    let next = leaves.server_config_at(&later_epoch, &host("a.test"), NOW).unwrap();
    assert!(
        next.ticketer.decrypt(&ticket).is_none(),
        "a bottle of the same name that came later is another one"
    );
}

#[test]
fn the_cache_is_bounded_and_a_bottle_keeps_to_its_share() {
    let leaves = leaves();
    let get = |name: &str, number: usize| {
        leaves.server_config_at(&bottle(name), &host(&format!("h{number}.test")), NOW).unwrap()
    };
    let first = get("a", 0);
    for number in 1..4 {
        get("a", number);
    }
    assert!(Arc::ptr_eq(&first, &get("a", 0)), "within its share nothing is lost");
    get("a", 4);
    assert_eq!(leaves.len(), 4);
    assert!(Arc::ptr_eq(&first, &get("a", 0)), "what was used last stays");
    for number in 0..50 {
        get("b", number);
        get("c", number);
        assert!(leaves.len() <= 6);
    }
    leaves.forget(&bottle("b"));
    leaves.forget(&bottle("c"));
    leaves.forget(&bottle("a"));
    assert_eq!(leaves.len(), 0);
}

#[test]
fn of_many_wishes_at_once_one_signs() {
    let leaves = leaves();
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                leaves.server_config_at(&bottle("a"), &host("a.test"), NOW).unwrap();
            });
        }
    });
    assert_eq!(leaves.counts(), (1, 7));
}

#[test]
fn both_versions_of_http_are_offered() {
    let config = leaves().server_config_at(&bottle("a"), &host("a.test"), NOW).unwrap();
    assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert!(!config.session_storage.can_cache(), "sessions are the clients' to keep");
    assert!(!config.cert_resolver.only_raw_public_keys());
}
