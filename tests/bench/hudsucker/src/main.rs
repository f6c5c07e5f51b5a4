//! `hudsucker-proxy ADDRESS FOLDER`: an intercepting proxy that looks at nothing.
//!
//! Signs with `key.pem` and `ca.pem` of the folder, and trusts origins that `ca.pem` signs.

use std::{env, error, fs, net::SocketAddr, path::PathBuf};

use hudsucker::Proxy;
use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::hyper_util::client::legacy::connect::HttpConnector;
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::rustls::pki_types::CertificateDer;
use hudsucker::rustls::pki_types::pem::PemObject;
use hudsucker::rustls::{ClientConfig, RootCertStore};
use hyper_rustls::HttpsConnectorBuilder;

/// Leaf certificates kept.
const LEAVES: u64 = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn error::Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().ok_or("an address")?.parse()?;
    let folder = PathBuf::from(arguments.next().ok_or("a folder")?);
    let (certificate, key) = (fs::read_to_string(folder.join("ca.pem"))?, fs::read_to_string(folder.join("key.pem"))?);
    let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let tls = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions().wrap_connector(http);
    let proxy = Proxy::builder()
        .with_addr(address)
        .with_ca(RcgenAuthority::new(issuer, LEAVES, aws_lc_rs::default_provider()))
        .with_http_connector(connector)
        .build()?;
    proxy.start().await?;
    Ok(())
}
