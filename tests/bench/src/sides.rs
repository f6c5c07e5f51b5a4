//! The sides of the comparison: nginx, a gateway with all detectors, a gateway with none, each with its origin.

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
use tokio::net::TcpStream;

use crate::body;
use crate::nginx::Nginx;

/// The name of the origin.
const NAME: &str = "origin.test";

/// The answer to a small request.
const SMALL: &str =
    r#"{"id": 4711, "name": "an ordinary answer", "items": [1, 2, 3, 4, 5], "next": null, "ok": true}"#;

/// Scans nothing, in either direction.
const NO_DETECTORS: &str = "- {name: all, hosts: [origin.test], ports: [\"1-65535\"], \
                            inspect: {request: {detectors: none}, response: {detectors: none}}}";

/// One proxy under measurement.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) body: Bytes,
    proxy: Proxy,
    client: Client,
    origin: Arc<Origin>,
}

enum Proxy {
    Nginx(Nginx),
    Gateway(Gateway),
}

impl Side {
    /// All sides, in front of one origin that speaks `version` where it is asked to.
    pub(crate) async fn all(version: Version) -> Vec<Self> {
        let (ca, body) = (TestCa::new(), body::mixed());
        let alpn: &[&str] = if version == Version::HTTP_2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        let tls = ca.leaf(&[NAME]).server_config(alpn);
        let origin = Arc::new(Origin::https_with(tls, answer(body.clone())).await);
        let nginx = Nginx::start(&ca, NAME, origin.address()).await;
        let client = Client::new(nginx.address(), roots_from_pem(ca.pem()));
        let mut sides = vec![Self::new("nginx", &body, Proxy::Nginx(nginx), client, &origin)];
        for (name, routes) in [("all detectors", None), ("no detectors", Some(NO_DETECTORS))] {
            let setup = Setup::new().host(NAME).trust(&ca);
            let gateway = routes.into_iter().fold(setup, Setup::routes).start().await;
            let client = gateway.client();
            sides.push(Self::new(name, &body, Proxy::Gateway(gateway), client, &origin));
        }
        sides
    }

    fn new(name: &'static str, body: &Bytes, proxy: Proxy, client: Client, origin: &Arc<Origin>) -> Self {
        Self { name, body: body.clone(), proxy, client, origin: Arc::clone(origin) }
    }

    /// The process whose CPU time counts.
    pub(crate) fn process(&self) -> Observed {
        match &self.proxy {
            Proxy::Nginx(nginx) => Observed::new(nginx.pid()),
            Proxy::Gateway(gateway) => gateway.worker(),
        }
    }

    /// The URL of `path` on the origin.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.origin.port())
    }

    /// A connection through the proxy.
    pub(crate) async fn open(&self, version: Version) -> Connection {
        let Proxy::Nginx(nginx) = &self.proxy else {
            return self.client.open(version, NAME, self.origin.port()).await;
        };
        let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
        let socket = TcpStream::connect(nginx.address()).await.expect("nginx listens");
        socket.set_nodelay(true).expect("a TCP socket");
        let stream = self.client.handshake(socket, NAME, &[alpn]).await.expect("TLS with nginx");
        Connection::over(Box::new(stream), version).await
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
