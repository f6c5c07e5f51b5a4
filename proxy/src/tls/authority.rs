//! The certificate authority: made once in the state folder, or brought by the operator.
//!
//! Invariants: the private key is used for signing and is neither shown nor logged; what signs is a CA that is valid
//! now and whose certificate belongs to its key. An authority lives in generations: [`rotate`](Authority::rotate)
//! makes the next one, which clients are given to trust at once and which signs only after the overlap, so that
//! nobody is cut off who fetches the bundle in between.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::leaf;
use super::store::{self, Generation};

/// How an authority is made.
#[derive(Clone, Debug)]
pub(crate) struct AuthoritySettings {
    /// How long a new authority is valid.
    pub(crate) validity: Duration,
    /// How far before its making a new authority becomes valid, for clients whose clocks are behind. At least as
    /// much as leaves are backdated, or the first leaves could not be.
    pub(crate) backdate: Duration,
}

/// A certificate that clients have to trust.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    der: CertificateDer<'static>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Anchor {
    /// SHA-256 over the certificate, as colon-separated hexadecimal.
    pub(crate) fn fingerprint(&self) -> String {
        let digest = Sha256::digest(&self.der);
        digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// The certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        store::to_pem(&self.der)
    }
}

/// An authority that has been made and does not sign yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Its certificate, part of the bundle already.
    pub(crate) anchor: Anchor,
    /// From when on it signs.
    pub(crate) signs_from: OffsetDateTime,
}

/// The certificate authority that signs leaves, and what clients trust because of it.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificates sent behind a leaf: intermediates, and none where the root signs itself.
    chain: Vec<CertificateDer<'static>>,
    /// Bounds of what it may sign.
    signer: Anchor,
    /// What clients trust: the root above the signer, which is the signer itself unless it is an intermediate.
    root: Anchor,
    pending: Option<Pending>,
}

impl Authority {
    /// Reads the authority of `state_dir`, and makes it if there is none. Several processes may do so at once: all
    /// get the same one.
    ///
    /// # Errors
    /// A folder or file that cannot be made or read, a key that others may read, a certificate that has expired or
    /// is no authority.
    pub(crate) fn load_or_create(
        state_dir: &Path,
        settings: &AuthoritySettings,
        now: OffsetDateTime,
    ) -> Result<Self, AuthorityError> {
        let folder = store::folder(state_dir);
        let mut generations = store::read(&folder)?;
        if generations.is_empty() {
            let (certificate, key) = generate(settings, now)?;
            store::write(&folder, &Generation::first(certificate, key))?;
            generations = store::read(&folder)?;
        }
        Self::of_generations(&folder, &generations, now)
    }

    /// Reads an authority from the operator's files: the certificate that signs, followed by any that lead to the
    /// root, and its key.
    ///
    /// # Errors
    /// As [`Authority::load_or_create`].
    pub(crate) fn from_files(
        certificate: &Path,
        key: &Path,
        now: OffsetDateTime,
    ) -> Result<Self, AuthorityError> {
        let pem = store::read_file(certificate)?;
        let key_pem = store::read_key(key, store::CONFIGURED_KEY_FORBIDDEN)?;
        Self::of_pem(certificate, &pem, key, &key_pem, now)
    }

    /// Makes the next authority. It is in the bundle at once and signs after `overlap`, or at once where the present
    /// one has expired. Generations that no longer sign are removed with their keys.
    ///
    /// # Errors
    /// As [`Authority::load_or_create`]; also if a rotation is under way already.
    pub(crate) fn rotate(
        state_dir: &Path,
        settings: &AuthoritySettings,
        overlap: Duration,
        now: OffsetDateTime,
    ) -> Result<Self, AuthorityError> {
        let folder = store::folder(state_dir);
        let generations = store::read(&folder)?;
        let latest = generations.last();
        if let Some(latest) = latest.filter(|latest| latest.signs_from > now) {
            return Err(AuthorityError::new(&folder, Problem::Rotating(latest.signs_from)));
        }
        let overlap = match Self::of_generations(&folder, &generations, now) {
            Ok(_) => overlap,
            Err(error) if error.has_expired() => Duration::ZERO,
            Err(error) => return Err(error),
        };
        let (certificate, key) = generate(settings, now)?;
        store::write(&folder, &Generation::after(latest, certificate, key, now + overlap))?;
        let generations = store::read(&folder)?;
        store::remove_before(&folder, active(&generations, now).map_or(0, |active| active.number))?;
        Self::of_generations(&folder, &generations, now)
    }

    /// What clients have to trust: the present root and, during a rotation, the next one. PEM.
    pub(crate) fn pem(&self) -> String {
        let pending = self.pending.as_ref().map(|pending| pending.anchor.pem());
        self.root.pem() + pending.as_deref().unwrap_or_default()
    }

    /// SHA-256 of the present root, as colon-separated hexadecimal.
    pub(crate) fn fingerprint(&self) -> String {
        self.root.fingerprint()
    }

    /// The last moment at which it can sign.
    pub(crate) fn not_after(&self) -> OffsetDateTime {
        self.signer.not_after
    }

    /// The first moment at which what it signs can be valid.
    pub(crate) fn not_before(&self) -> OffsetDateTime {
        self.signer.not_before
    }

    /// The authority that takes over, while a rotation is under way. Whoever holds this authority loads it anew at
    /// [`Pending::signs_from`].
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    /// What signs. For [`leaf`] alone.
    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// The certificates to send behind a leaf.
    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    fn of_generations(
        folder: &Path,
        generations: &[Generation],
        now: OffsetDateTime,
    ) -> Result<Self, AuthorityError> {
        let missing = || AuthorityError::new(folder, Problem::NoCertificate);
        let signing = active(generations, now).ok_or_else(missing)?;
        let path = store::path_of(folder, signing.number);
        let mut authority = Self::of_pem(&path, &signing.certificate, &path, &signing.key, now)?;
        authority.pending = generations
            .iter()
            .find(|generation| generation.signs_from > now)
            .map(|next| Pending::of(&store::path_of(folder, next.number), next))
            .transpose()?;
        Ok(authority)
    }

    fn of_pem(
        path: &Path,
        pem: &str,
        key_path: &Path,
        key_pem: &str,
        now: OffsetDateTime,
    ) -> Result<Self, AuthorityError> {
        let certificates = certificates_of(path, pem)?;
        let key = KeyPair::from_pem(key_pem)
            .map_err(|error| AuthorityError::new(key_path, Problem::Malformed(error.to_string())))?;
        let signer = check_signer(path, &certificates[0], &key, now)?;
        let issuer = Issuer::from_ca_cert_der(&certificates[0], key)
            .map_err(|error| AuthorityError::new(path, Problem::Malformed(error.to_string())))?;
        let root = anchor_of(path, &certificates[certificates.len() - 1])?;
        let mut chain = certificates;
        if is_self_signed(&root.der) {
            chain.pop();
        }
        Ok(Self { issuer, chain, signer, root, pending: None })
    }
}

impl fmt::Debug for Authority {
    /// Shows what is public.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

impl Pending {
    fn of(path: &Path, generation: &Generation) -> Result<Self, AuthorityError> {
        let certificates = certificates_of(path, &generation.certificate)?;
        Ok(Self { anchor: anchor_of(path, &certificates[0])?, signs_from: generation.signs_from })
    }
}

/// The newest generation that may sign.
fn active(generations: &[Generation], now: OffsetDateTime) -> Option<&Generation> {
    generations.iter().rev().find(|generation| generation.signs_from <= now)
}

/// A new self-signed authority: certificate and key, both PEM. ECDSA P-256, which signs leaves only.
fn generate(settings: &AuthoritySettings, now: OffsetDateTime) -> Result<(String, String), AuthorityError> {
    let failed = |error: &dyn fmt::Display| {
        AuthorityError::new(Path::new("new certificate authority"), Problem::Malformed(error.to_string()))
    };
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
    let serial = leaf::random_serial().map_err(|error| failed(&error))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(&serial);
    params.serial_number = Some(serial.to_vec().into());
    params.not_before = now - settings.backdate;
    params.not_after = now + settings.validity;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(|error| failed(&error))?;
    Ok((store::to_pem(certificate.der()), key.serialize_pem()))
}

/// A name of its own for each authority: clients that look issuers up by name never meet two keys under one.
fn distinguished_name(serial: &[u8]) -> DistinguishedName {
    let mark: String = serial.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Decant");
    name.push(DnType::CommonName, format!("Decant egress gateway {mark}"));
    name
}

fn certificates_of(path: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let malformed =
        |error: &dyn fmt::Display| AuthorityError::new(path, Problem::Malformed(error.to_string()));
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(&error))?;
    if certificates.is_empty() {
        return Err(AuthorityError::new(path, Problem::NoCertificate));
    }
    Ok(certificates)
}

fn parse<'a>(path: &Path, der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, AuthorityError> {
    let parsed = X509Certificate::from_der(der);
    let error =
        |error: x509_parser::nom::Err<_>| AuthorityError::new(path, Problem::Malformed(error.to_string()));
    parsed.map(|(_, certificate)| certificate).map_err(error)
}

fn anchor_of(path: &Path, der: &CertificateDer<'static>) -> Result<Anchor, AuthorityError> {
    let certificate = parse(path, der)?;
    let validity = certificate.validity();
    Ok(Anchor {
        der: der.clone(),
        not_before: validity.not_before.to_datetime(),
        not_after: validity.not_after.to_datetime(),
    })
}

fn is_self_signed(der: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| certificate.issuer() == certificate.subject())
}

/// Refuses what clients would refuse later, with a better reason: no authority, no right to sign, another key.
fn check_signer(
    path: &Path,
    der: &CertificateDer<'static>,
    key: &KeyPair,
    now: OffsetDateTime,
) -> Result<Anchor, AuthorityError> {
    let refuse = |problem| Err(AuthorityError::new(path, problem));
    let certificate = parse(path, der)?;
    if !certificate.is_ca() {
        return refuse(Problem::NotAuthority("it is no certificate authority (basicConstraints)"));
    }
    if let Ok(Some(usage)) = certificate.key_usage()
        && !usage.value.key_cert_sign()
    {
        return refuse(Problem::NotAuthority("it may not sign certificates (keyUsage)"));
    }
    if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return refuse(Problem::KeyMismatch);
    }
    let anchor = anchor_of(path, der)?;
    if anchor.not_after <= now {
        return refuse(Problem::Expired(anchor.not_after));
    }
    if anchor.not_before > now {
        return refuse(Problem::NotYetValid(anchor.not_before));
    }
    Ok(anchor)
}

/// Why there is no authority.
#[derive(Debug)]
pub(crate) struct AuthorityError {
    path: PathBuf,
    problem: Problem,
}

impl AuthorityError {
    pub(super) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }

    /// Whether the authority is there and has expired: the one problem that a rotation ends.
    pub(crate) fn has_expired(&self) -> bool {
        matches!(self.problem, Problem::Expired(_))
    }
}

/// What is wrong with a file or folder of the authority.
#[derive(Debug)]
pub(super) enum Problem {
    /// Reading or writing failed; the word says which.
    Io(&'static str, io::Error),
    /// The mode lets others read the key.
    KeyExposed(u32),
    /// The mode lets others into the folder of the keys.
    FolderExposed(u32),
    /// Another user owns the key.
    ForeignOwner(u32),
    NoCertificate,
    NotAuthority(&'static str),
    KeyMismatch,
    Expired(OffsetDateTime),
    NotYetValid(OffsetDateTime),
    Rotating(OffsetDateTime),
    Malformed(String),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
            Problem::Io(what, _) => write!(f, "cannot {what}"),
            Problem::KeyExposed(mode) => {
                write!(
                    f,
                    "others may read this private key (mode {mode:04o}): chmod 600 it, or make a new one"
                )
            }
            Problem::FolderExposed(mode) => {
                write!(f, "others may enter the folder of the private key (mode {mode:04o}): chmod 700 it")
            }
            Problem::ForeignOwner(uid) => {
                write!(f, "the private key belongs to user {uid}, not to this process")
            }
            Problem::NoCertificate => f.write_str("holds no certificate"),
            Problem::NotAuthority(reason) => write!(f, "cannot sign: {reason}"),
            Problem::KeyMismatch => f.write_str("the certificate is for another key"),
            Problem::Expired(when) => {
                write!(f, "the certificate expired at {when}: make a new one with `decant ca rotate`")
            }
            Problem::NotYetValid(when) => write!(f, "the certificate is not valid before {when}"),
            Problem::Rotating(until) => {
                write!(f, "a rotation is under way: the new authority signs from {until}")
            }
            Problem::Malformed(reason) => write!(f, "malformed: {reason}"),
        }
    }
}

impl std::error::Error for AuthorityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
