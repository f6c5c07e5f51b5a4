//! Signing one leaf: the certificate that a client of a tunnel sees.
//!
//! A leaf names the one host that was asked for and nothing else (clients reuse connections for every name that a
//! certificate covers), is valid for days, and satisfies strict verifiers: subject and authority key identifiers,
//! critical key usage, server authentication alone.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use time::OffsetDateTime;

use super::{Authority, provider};
use crate::target::Host;

/// Longest common name (RFC 5280, upper bound `ub-common-name`); longer hosts stand in the SAN alone.
const COMMON_NAME_MAX_CHARS: usize = 64;
/// Random octets of a serial number: below the 20 of RFC 5280 §4.1.2.2, above the 64 bits that browsers ask for.
const SERIAL_OCTETS: usize = 16;

/// Signs leaves for one authority. All leaves of a worker share one key pair: making a key costs as much as signing,
/// and the gateway holds them all anyway.
pub(super) struct Mint {
    authority: Authority,
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
}

/// A signed leaf with its key, ready for a handshake.
pub(super) struct Leaf {
    pub(super) certified: Arc<CertifiedKey>,
    pub(super) not_after: OffsetDateTime,
}

impl Mint {
    pub(super) fn new(authority: Authority) -> Result<Self, LeafError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(LeafError::sign)?;
        let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(LeafError::sign)?;
        let signing_key = provider().key_provider.load_private_key(der).map_err(LeafError::sign)?;
        Ok(Self { authority, key, signing_key })
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Signs a leaf for `host` that is valid from `backdate` before `now` until `validity` after it, within what the
    /// authority's own validity allows.
    pub(super) fn sign(
        &self,
        host: &Host,
        backdate: Duration,
        validity: Duration,
        now: OffsetDateTime,
    ) -> Result<Leaf, LeafError> {
        if now >= self.authority.not_after() {
            return Err(LeafError::AuthorityExpired(self.authority.not_after()));
        }
        let mut params = params_for(host)?;
        params.not_before = (now - backdate).max(self.authority.not_before());
        params.not_after = (now + validity).min(self.authority.not_after());
        params.serial_number = Some(random_serial()?.to_vec().into());
        let certificate = params.signed_by(&self.key, self.authority.issuer()).map_err(LeafError::sign)?;
        let mut chain = Vec::with_capacity(1 + self.authority.chain().len());
        chain.push(CertificateDer::from(certificate));
        chain.extend_from_slice(self.authority.chain());
        let certified = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.signing_key)));
        Ok(Leaf { certified, not_after: params.not_after })
    }
}

fn params_for(host: &Host) -> Result<CertificateParams, LeafError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let text = match host {
        Host::Name(name) => {
            let name = name.to_string().try_into().map_err(LeafError::sign)?;
            params.subject_alt_names = vec![SanType::DnsName(name)];
            host.to_string()
        }
        Host::Ip(address) => {
            params.subject_alt_names = vec![SanType::IpAddress(*address)];
            IpAddr::to_string(address)
        }
    };
    if text.len() <= COMMON_NAME_MAX_CHARS {
        params.distinguished_name.push(DnType::CommonName, text);
    }
    // Written out, where rcgen would leave the subject key identifier out as well.
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// A serial number of its own for every certificate: random, positive, of a fixed length. rcgen's default is a hash
/// of the public key, which all leaves share.
pub(super) fn random_serial() -> Result<[u8; SERIAL_OCTETS], LeafError> {
    let mut serial = [0; SERIAL_OCTETS];
    provider().secure_random.fill(&mut serial).map_err(|_| LeafError::NoRandomness)?;
    // The top bit is the sign; the one below keeps the length fixed (and the number from being 0).
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

/// Why no certificate could be made for a host.
#[derive(Clone, Debug)]
pub(crate) enum LeafError {
    /// The authority has run out while the gateway ran.
    AuthorityExpired(OffsetDateTime),
    /// The system gave no random bytes.
    NoRandomness,
    /// The library refused, in its words.
    Sign(Arc<str>),
}

impl LeafError {
    #[allow(clippy::needless_pass_by_value, reason = "for use as a function in `map_err`")]
    fn sign(error: impl fmt::Display) -> Self {
        Self::Sign(error.to_string().into())
    }
}

impl fmt::Display for LeafError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthorityExpired(when) => write!(f, "the certificate authority expired at {when}"),
            Self::NoRandomness => f.write_str("the system gave no random bytes"),
            Self::Sign(reason) => write!(f, "cannot sign a certificate: {reason}"),
        }
    }
}

impl std::error::Error for LeafError {}
