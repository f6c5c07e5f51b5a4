//! A certificate authority for the origins of a test, and the flawed certificates that a gateway must refuse.
//!
//! Invariant: every authority is new; nothing it signs is trusted by anything that was not told to trust it.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// It ended years ago.
    Expired,
    /// It begins years from now.
    NotYetValid,
    /// It is signed by its own key.
    SelfSigned,
    /// It names another host.
    OtherName,
}

/// A certificate authority made for one test.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate chain with its key.
pub struct Leaf {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The chain as PEM.
    pub chain_pem: String,
    /// The private key as PEM.
    pub key_pem: String,
}

impl TestCa {
    /// Makes an authority with a key of its own.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Decant test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("the authority signs itself");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// The authority's certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The authority's key as PEM, for a proxy that is to sign with it.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A good certificate for `names` (host names or addresses).
    #[must_use]
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.flawed_leaf(names, Flaw::None)
    }

    /// A certificate for `names` with the given flaw.
    #[must_use]
    pub fn flawed_leaf(&self, names: &[&str], flaw: Flaw) -> Leaf {
        let key = KeyPair::generate().expect("a key can be made");
        let names = if flaw == Flaw::OtherName { &["somebody-else.test"] } else { names };
        let params = leaf_params(names, flaw);
        let certificate = match flaw {
            Flaw::SelfSigned => params.self_signed(&key),
            _ => params.signed_by(&key, &self.issuer),
        };
        let certificate = certificate.expect("the leaf is signed");
        Leaf {
            chain: vec![certificate.der().clone()],
            chain_pem: certificate.pem(),
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl Leaf {
    /// A TLS server configuration that offers the given protocols, in that order.
    #[must_use]
    pub fn server_config(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has both TLS versions")
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .expect("the key belongs to the certificate");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A store that trusts the certificates in `pem` and nothing else.
#[must_use]
pub fn roots_from_pem(pem: &str) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        store.add(certificate.expect("a certificate in PEM")).expect("a usable root");
    }
    Arc::new(store)
}

fn leaf_params(names: &[&str], flaw: Flaw) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("host names or addresses");
    params.distinguished_name = named("origin");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    match flaw {
        Flaw::Expired => params.not_after = rcgen::date_time_ymd(2001, 1, 1),
        Flaw::NotYetValid => params.not_before = rcgen::date_time_ymd(3001, 1, 1),
        Flaw::None | Flaw::SelfSigned | Flaw::OtherName => {}
    }
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
