//! How a client program is told of the gateway: the variables that common tools read for a proxy and for roots of trust.
//!
//! One list for everybody who starts a client: the allocator for its containers, the gateway's own commands on a host.
//! Sources are the tools' own manuals: curl(1), git-config(1), pip, requests, Node.js, Cargo, Deno, gRPC, AWS CLI.

use std::collections::BTreeMap;
use std::path::Path;

/// Variables that replace a tool's roots, so they get the bundle.
const BUNDLE_VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "NIX_SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// The variable that adds to a tool's roots.
const EXTRA_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// What never goes through the proxy: the client's own machine.
const LOCAL: &str = "localhost,127.0.0.1,::1";

/// The variables for clients of the proxy at `proxy`, a URL; `direct` are networks or hosts that they reach without it.
#[must_use]
pub fn proxy_variables(proxy: &str, direct: &[String]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        variables.insert(name.to_owned(), proxy.to_owned());
        variables.insert(name.to_lowercase(), proxy.to_owned());
    }
    let direct =
        std::iter::once(LOCAL).chain(direct.iter().map(String::as_str)).collect::<Vec<_>>().join(",");
    for name in ["NO_PROXY", "no_proxy"] {
        variables.insert(name.to_owned(), direct.clone());
    }
    // Node 24 and later reads the proxy variables only when asked to.
    variables.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    variables
}

/// The variables for clients that are to trust the gateway: `bundle` is a file of the public roots and its CA, `ca` one
/// of its CA alone.
#[must_use]
pub fn trust_variables(bundle: &Path, ca: &Path) -> BTreeMap<String, String> {
    let bundle = bundle.display().to_string();
    let mut variables: BTreeMap<_, _> =
        BUNDLE_VARIABLES.iter().map(|name| ((*name).to_owned(), bundle.clone())).collect();
    variables.insert(EXTRA_VARIABLE.to_owned(), ca.display().to_string());
    variables
}
