//! The authority on disk and what clients make of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-10-18 12:00 UTC);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn settings() -> AuthoritySettings {
    AuthoritySettings { validity: 3650 * DAY, backdate: 2 * DAY }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn write(path: &Path, mode: u32, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn it_is_made_once_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let first = Authority::load_or_create(dir.path(), &settings(), NOW).unwrap();
    let again = Authority::load_or_create(dir.path(), &settings(), NOW + 100 * DAY).unwrap();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert_eq!(first.pem(), again.pem());
    assert_eq!(first.not_after(), NOW + 3650 * DAY);
    assert_eq!(first.not_before(), NOW - 2 * DAY);
    assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
}

#[test]
fn nobody_else_can_read_the_key() {
    let dir = tempfile::tempdir().unwrap();
    Authority::load_or_create(dir.path(), &settings(), NOW).unwrap();
    let folder = dir.path().join("ca");
    let key = folder.join("1/key.pem");
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("1")), 0o700);
    assert_eq!(mode(&key), 0o600);
    for exposed in [0o640, 0o604, 0o620, 0o660, 0o644] {
        fs::set_permissions(&key, fs::Permissions::from_mode(exposed)).unwrap();
        let error = Authority::load_or_create(dir.path(), &settings(), NOW).unwrap_err();
        assert!(error.to_string().contains("others may read this private key"), "{exposed:o}: {error}");
    }
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("ca");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let error = Authority::load_or_create(dir.path(), &settings(), NOW).unwrap_err();
    assert!(error.to_string().contains("chmod 700"), "{error}");
}

#[test]
fn the_key_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::load_or_create(dir.path(), &settings(), NOW).unwrap();
    let key = fs::read_to_string(dir.path().join("ca/1/key.pem")).unwrap();
    let secret = key.lines().nth(1).unwrap();
    assert!(!format!("{authority:?}").contains(secret));
    assert!(!authority.pem().contains("PRIVATE"));
}

#[test]
fn many_at_once_get_the_same_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = store::folder(dir.path());
    let made: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    Authority::load_or_create(dir.path(), &settings(), NOW).map(|made| made.fingerprint())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert!(made.iter().all(|fingerprint| *fingerprint == made[0]), "{made:?}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing temporary stays");
}

#[test]
fn a_rotation_is_trusted_at_once_and_signs_after_the_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let old = Authority::load_or_create(dir.path(), &settings(), NOW).unwrap();
    let during = Authority::rotate(dir.path(), &settings(), 7 * DAY, NOW).unwrap();
    assert_eq!(during.fingerprint(), old.fingerprint(), "the old one signs");
    let pending = during.pending().expect("a next one").clone();
    assert_eq!(pending.signs_from, NOW + 7 * DAY);
    assert_ne!(pending.anchor.fingerprint(), old.fingerprint());
    assert_eq!(during.pem(), old.pem() + &pending.anchor.pem(), "the bundle holds both");
    let error = Authority::rotate(dir.path(), &settings(), 7 * DAY, NOW + DAY).unwrap_err();
    assert!(error.to_string().contains("a rotation is under way"), "{error}");

    let after = Authority::load_or_create(dir.path(), &settings(), NOW + 7 * DAY).unwrap();
    assert_eq!(after.fingerprint(), pending.anchor.fingerprint());
    assert_eq!(after.pem(), pending.anchor.pem());
    assert!(dir.path().join("ca/1").exists(), "reading changes nothing");
    Authority::rotate(dir.path(), &settings(), DAY, NOW + 8 * DAY).unwrap();
    assert!(!dir.path().join("ca/1").exists(), "a key that signs no more is removed");
}

#[test]
fn an_expired_one_is_refused_and_replaced_by_rotation() {
    let dir = tempfile::tempdir().unwrap();
    Authority::load_or_create(dir.path(), &settings(), NOW).unwrap();
    let later = NOW + 3651 * DAY;
    let error = Authority::load_or_create(dir.path(), &settings(), later).unwrap_err();
    assert!(error.has_expired() && error.to_string().contains("decant ca rotate"), "{error}");
    let new = Authority::rotate(dir.path(), &settings(), 7 * DAY, later).unwrap();
    assert!(new.pending().is_none() && new.not_after() > later);
}

/// An operator's root, an intermediate below it, and the intermediate's key.
fn intermediate() -> (String, String, String) {
    let root_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&root_key).unwrap();
    let issuer = Issuer::new(params, root_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Intermediate");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let below = params.signed_by(&key, &issuer).unwrap();
    (store::to_pem(root.der()), store::to_pem(below.der()), key.serialize_pem())
}

#[test]
fn an_intermediate_is_sent_and_its_root_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let (root, below, key) = intermediate();
    let (cert_path, key_path) = (dir.path().join("cert"), dir.path().join("key"));
    write(&cert_path, 0o644, &(below.clone() + &root));
    write(&key_path, 0o640, &key);
    let authority = Authority::from_files(&cert_path, &key_path, NOW).unwrap();
    assert_eq!(authority.pem(), root);
    assert_eq!(authority.chain().iter().map(|der| store::to_pem(der)).collect::<String>(), below);
}

#[test]
fn files_that_cannot_sign_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, below, key) = intermediate();
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&leaf_key).unwrap();
    let (cert_path, key_path) = (dir.path().join("cert"), dir.path().join("key"));
    let rows = [
        (root.clone() + &below, key.clone(), 0o600, "for another key"),
        (store::to_pem(leaf.der()), leaf_key.serialize_pem(), 0o600, "no certificate authority"),
        (below.clone(), key.clone(), 0o644, "others may read"),
        (String::new(), key.clone(), 0o600, "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\n!\n".into(), key.clone(), 0o600, "malformed"),
        (below.clone(), "no key".into(), 0o600, "malformed"),
    ];
    for (certificate, key, mode, expected) in rows {
        write(&cert_path, 0o644, &certificate);
        write(&key_path, mode, &key);
        let error = Authority::from_files(&cert_path, &key_path, NOW).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = Authority::from_files(&dir.path().join("none"), &key_path, NOW).unwrap_err();
    assert!(error.to_string().contains("none: cannot open"), "{error}");
}
