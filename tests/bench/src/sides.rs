//! The ways from the client to the origin that are compared: directly, through other proxies, through gateways.
//!
//! Invariant: every way leads to the same origin, which is verified on all of them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use decant_tests::bodies;
use decant_tests::ca::{TestCa, roots_from_pem};
use decant_tests::client::{Client, Connection};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{Answer, Origin, Record, handler};
use decant_tests::process::Observed;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body;
use crate::peer::{Kind, Peer, Surroundings};

/// The name of the origin.
const NAME: &str = "origin.test";

/// The same for proxies that can be told no address of a name: what the machine itself resolves.
const LOCAL: &str = "localhost";

/// The answer to a small request.
const SMALL: &str =
    r#"{"id": 4711, "name": "an ordinary answer", "items": [1, 2, 3, 4, 5], "next": null, "ok": true}"#;

/// Scans nothing, in either direction.
const NO_DETECTORS: &str = "- {name: all, hosts: [origin.test], ports: [\"1-65535\"], \
                            inspect: {request: {detectors: none}, response: {detectors: none}}}";

/// Between the client and the origin.
enum Between {
    Nothing,
    /// A reverse proxy: it answers for the origin.
    Reverse(Peer),
    /// A forward proxy: it opens tunnels.
    Forward(Peer),
    Gateway(Gateway),
}

/// One way from the client to the origin.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) body: Bytes,
    /// The name by which this side finds the origin.
    host: &'static str,
    between: Between,
    client: Client,
    origin: Arc<Origin>,
}

/// The client, the origin and all that is between them.
pub(crate) struct Scene {
    ca: TestCa,
    body: Bytes,
    origin: Arc<Origin>,
}

impl Scene {
    /// An origin that speaks `version` where it is asked to.
    pub(crate) async fn new(version: Version) -> Self {
        let (ca, body) = (TestCa::new(), body::mixed());
        let alpn: &[&str] = if version == Version::HTTP_2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        let tls = ca.leaf(&[NAME, LOCAL]).server_config(alpn);
        let origin = Arc::new(Origin::https_with(tls, answer(body.clone())).await);
        Self { ca, body, origin }
    }

    /// No proxy at all.
    pub(crate) fn direct(&self) -> Side {
        let client = Client::new(self.origin.address(), roots_from_pem(self.ca.pem()));
        self.side("direct", NAME, Between::Nothing, client)
    }

    /// Another proxy.
    pub(crate) async fn peer(&self, name: &'static str, kind: Kind) -> Side {
        let around = Surroundings { ca: &self.ca, name: NAME, origin: self.origin.address() };
        let peer = Peer::start(kind, &around).await;
        let client = Client::new(peer.address(), roots_from_pem(self.ca.pem()));
        if kind == Kind::Nginx {
            return self.side(name, NAME, Between::Reverse(peer), client);
        }
        self.side(name, LOCAL, Between::Forward(peer), client)
    }

    /// The gateway with all detectors; `program` instead of the build under test, where it is given.
    pub(crate) async fn scanning(&self, name: &'static str, program: Option<&Path>) -> Side {
        self.gateway(name, self.setup(program)).await
    }

    /// The gateway with no detector.
    pub(crate) async fn passing(&self, name: &'static str, program: Option<&Path>) -> Side {
        self.gateway(name, self.setup(program).routes(NO_DETECTORS)).await
    }

    fn setup(&self, program: Option<&Path>) -> Setup {
        let setup = Setup::new().host(NAME).trust(&self.ca);
        match (program, std::env::var("SPEED_LIMITS")) {
            // An older build may not know them.
            (Some(program), _) => setup.program(program),
            (None, Ok(limits)) => setup.section(&format!("limits: {{{limits}}}")),
            (None, Err(_)) => setup,
        }
    }

    async fn gateway(&self, name: &'static str, setup: Setup) -> Side {
        let gateway = setup.start().await;
        let client = gateway.client();
        self.side(name, NAME, Between::Gateway(gateway), client)
    }

    fn side(&self, name: &'static str, host: &'static str, between: Between, client: Client) -> Side {
        Side { name, body: self.body.clone(), host, between, client, origin: Arc::clone(&self.origin) }
    }
}

impl Side {
    /// The process whose CPU time and memory count; none where there is no proxy.
    pub(crate) fn process(&self) -> Option<Observed> {
        match &self.between {
            Between::Nothing => None,
            Between::Reverse(peer) | Between::Forward(peer) => Some(peer.process()),
            Between::Gateway(gateway) => Some(gateway.worker()),
        }
    }

    /// The URL of `path` on the origin.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}", self.host, self.origin.port())
    }

    /// A connection to the origin on this way.
    pub(crate) async fn open(&self, version: Version) -> Connection {
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        let tls = match &self.between {
            Between::Nothing | Between::Reverse(_) => self.client.direct(self.host, &[alpn]).await,
            Between::Forward(_) | Between::Gateway(_) => {
                self.client.tls(&format!("{}:{}", self.host, self.origin.port()), self.host, &[alpn]).await
            }
        };
        Connection::over(Box::new(tls.expect("TLS")), version).await
    }
}

/// Answers `/bytes/N`, `/upload` and `/small`.
fn answer(body: Bytes) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    handler(move |request, _record| {
        let body = body.clone();
        async move {
            let path = request.uri().path().to_owned();
            if let Some(length) = path.strip_prefix("/bytes/").and_then(|length| length.parse().ok()) {
                return Response::new(bodies::sized(body::repeated(body, length), length));
            }
            let mut received = 0;
            let mut upload = request.into_body();
            while let Some(Ok(frame)) = upload.frame().await {
                received += frame.data_ref().map_or(0, Bytes::len);
            }
            let response =
                Response::builder().header("content-type", "application/json").header("x-received", received);
            response.body(bodies::full(SMALL)).expect("a response")
        }
    })
}
