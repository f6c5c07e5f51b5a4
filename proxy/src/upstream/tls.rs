//! TLS towards upstreams: the roots that are trusted, the handshake, and its failures in words.
//!
//! Invariants: every upstream is verified, with no way to say otherwise; what a bottle may resume is its own, so no
//! session is shared between bottles.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{UpstreamError, UpstreamErrorKind};
use crate::identity::BottleKey;
use crate::target::Target;
use crate::tls::{alpn_protocols, provider};

mod words;

pub(super) use words::alert_in;

/// Where systems keep the certificates they trust.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A source of trusted roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Mozilla's, as they were when the gateway was built.
    Bundled,
    /// The system's bundle.
    System,
    /// A PEM file.
    File(PathBuf),
}

/// How TLS to upstreams is spoken.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamTlsSettings {
    /// What is trusted, all together.
    pub(crate) roots: Vec<Roots>,
    /// Longest time for a handshake.
    pub(crate) handshake_timeout: Duration,
    /// Hosts for which a bottle keeps what it needs to resume a session.
    pub(crate) sessions_per_bottle: usize,
    /// Bottles for which sessions are kept at all.
    pub(crate) bottles: usize,
}

/// Speaks TLS to upstreams.
pub(super) struct TlsDialler {
    template: ClientConfig,
    settings: UpstreamTlsSettings,
    by_bottle: Mutex<HashMap<BottleKey, Arc<ClientConfig>>>,
}

impl TlsDialler {
    pub(super) fn new(settings: UpstreamTlsSettings) -> Result<Self, RootsError> {
        let mut template = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| RootsError::Library(error.to_string()))?
            .with_root_certificates(load(&settings.roots)?)
            .with_no_client_auth();
        template.alpn_protocols = alpn_protocols();
        template.resumption = Resumption::disabled();
        template.max_fragment_size = None;
        template.enable_early_data = false;
        Ok(Self { template, settings, by_bottle: Mutex::default() })
    }

    /// Finishes a handshake in the name of `target` on a connection of `bottle`, which then buffers at most so many
    /// bytes in each direction.
    pub(super) async fn handshake(
        &self,
        bottle: &BottleKey,
        target: &Target,
        stream: TcpStream,
        buffer_bytes: usize,
    ) -> Result<TlsStream<TcpStream>, UpstreamError> {
        let name = target.host.server_name().ok_or_else(|| {
            let words = "no certificate can carry its name".to_owned();
            UpstreamError::new(target, UpstreamErrorKind::Certificate(words))
        })?;
        let handshake = TlsConnector::from(self.config(bottle)).connect(name, stream);
        let mut stream = match timeout(self.settings.handshake_timeout, handshake).await {
            Ok(result) => result.map_err(|error| failure(target, error))?,
            Err(_) => {
                let kind = UpstreamErrorKind::TlsTimeout(self.settings.handshake_timeout);
                return Err(UpstreamError::new(target, kind));
            }
        };
        stream.get_mut().1.set_buffer_limit(Some(buffer_bytes));
        Ok(stream)
    }

    /// Drops the sessions of a bottle that has ended.
    pub(super) fn forget(&self, bottle: &BottleKey) {
        self.configs().remove(bottle);
    }

    fn config(&self, bottle: &BottleKey) -> Arc<ClientConfig> {
        let mut configs = self.configs();
        if configs.len() >= self.settings.bottles && !configs.contains_key(bottle) {
            // Sessions only save time: any bottle can go without for a while.
            let other = configs.keys().next().cloned();
            other.map(|other| configs.remove(&other));
        }
        match configs.entry(bottle.clone()) {
            Entry::Occupied(config) => Arc::clone(config.get()),
            Entry::Vacant(empty) => {
                let mut config = self.template.clone();
                config.resumption = Resumption::in_memory_sessions(self.settings.sessions_per_bottle);
                Arc::clone(empty.insert(Arc::new(config)))
            }
        }
    }

    fn configs(&self) -> std::sync::MutexGuard<'_, HashMap<BottleKey, Arc<ClientConfig>>> {
        self.by_bottle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a failed handshake says about the upstream.
fn failure(target: &Target, error: io::Error) -> UpstreamError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let kind = match inner {
        Some(rustls::Error::InvalidCertificate(error)) => {
            UpstreamErrorKind::Certificate(words::of_certificate(error, &target.host))
        }
        Some(rustls::Error::NoCertificatesPresented) => {
            UpstreamErrorKind::Certificate("it presented none".to_owned())
        }
        Some(rustls::Error::AlertReceived(alert)) => UpstreamErrorKind::TlsAlert(words::of_alert(*alert)),
        Some(other) => UpstreamErrorKind::TlsProtocol(words::of_error(other)),
        None => UpstreamErrorKind::TlsProtocol(words::of_io(&error).to_owned()),
    };
    UpstreamError::new(target, kind).because(error)
}

/// All roots together. A file without a single usable certificate is an error; single ones that do not parse are
/// left out, as in every system bundle there are some.
fn load(sources: &[Roots]) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    for source in sources {
        match source {
            Roots::Bundled => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Roots::System => load_file(&mut store, system_bundle()?)?,
            Roots::File(path) => load_file(&mut store, path)?,
        }
    }
    if store.is_empty() { Err(RootsError::None) } else { Ok(store) }
}

fn system_bundle() -> Result<&'static Path, RootsError> {
    let found = SYSTEM_BUNDLES.iter().map(Path::new).find(|path| path.exists());
    found.ok_or(RootsError::NoSystemBundle)
}

fn load_file(store: &mut RootCertStore, path: &Path) -> Result<(), RootsError> {
    let text = std::fs::read(path).map_err(|error| RootsError::File(path.to_owned(), error))?;
    let certificates = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 { Err(RootsError::NoCertificate(path.to_owned())) } else { Ok(()) }
}

/// Why there are no roots to trust. An error at start.
#[derive(Debug)]
pub(crate) enum RootsError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// A file holds no certificate that can be used.
    NoCertificate(PathBuf),
    /// The system keeps no bundle where systems do.
    NoSystemBundle,
    /// No source is configured.
    None,
    /// The library refused.
    Library(String),
}

impl fmt::Display for RootsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, _) => write!(f, "cannot read {}", path.display()),
            Self::NoCertificate(path) => write!(f, "{} holds no usable certificate", path.display()),
            Self::NoSystemBundle => write!(f, "this system has none of {}", SYSTEM_BUNDLES.join(", ")),
            Self::None => f.write_str("upstream.roots names no source of trust"),
            Self::Library(reason) => write!(f, "TLS cannot be set up: {reason}"),
        }
    }
}

impl Error for RootsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            _ => None,
        }
    }
}
