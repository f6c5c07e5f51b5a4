//! What most modules share: a gateway with one HTTP/1.1 and one HTTP/2 origin behind it, and the reading of problems.

use std::sync::Arc;

use decant_tests::bodies::TestBody;
use decant_tests::ca::TestCa;
use decant_tests::client::{Client, get, post, read_all};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{Answer, Origin, Record};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use serde_json::Value;

/// The host whose origin speaks HTTP/1.1 alone.
pub(crate) const ONE: &str = "one.test";

/// The host whose origin speaks HTTP/2 alone.
pub(crate) const TWO: &str = "two.test";

/// Both versions.
pub(crate) const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// Client and origin versions, in every pairing.
pub(crate) const PAIRINGS: [(Version, Version); 4] = [
    (Version::HTTP_11, Version::HTTP_11),
    (Version::HTTP_11, Version::HTTP_2),
    (Version::HTTP_2, Version::HTTP_11),
    (Version::HTTP_2, Version::HTTP_2),
];

/// A detector of the tests' own, for what must be found in either direction.
pub(crate) const CANARY: &str = "
detectors:
  - id: canary
    description: A mark that only these tests use
    tags: [test]
    direction: both
    severity: high
    pattern: 'canary-[a-z0-9]{32}'
    action: block
    examples: {match: ['canary-0123456789abcdef0123456789abcdef'], ignore: ['canary-0123']}
";

/// A value that the `canary` detector finds.
pub(crate) fn canary(seeded: &mut decant_tests::seed::Seeded) -> String {
    format!("canary-{}", seeded.text(b"0123456789abcdefghijklmnopqrstuvwxyz", 32))
}

/// A setup that knows the `canary` detector besides the built-in ones.
pub(crate) fn setup() -> Setup {
    Setup::new().file("canary.yaml", CANARY).section("detectors: {files: [canary.yaml]}")
}

/// A gateway with two origins that answer alike.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    pub(crate) client: Client,
    one: Origin,
    two: Origin,
}

impl Stage {
    /// With the embedded defaults, the canary, and a policy that allows both origins.
    pub(crate) async fn new<H>(handler: impl Fn() -> H) -> Self
    where
        H: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        Self::with(setup(), handler).await
    }

    /// With further settings.
    pub(crate) async fn with<H>(setup: Setup, handler: impl Fn() -> H) -> Self
    where
        H: Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static,
    {
        let ca = TestCa::new();
        let one = Origin::https_only(&ca, &[ONE], Version::HTTP_11, handler()).await;
        let two = Origin::https_only(&ca, &[TWO], Version::HTTP_2, handler()).await;
        let gateway = setup.host(ONE).host(TWO).trust(&ca).start().await;
        let client = gateway.client();
        Self { gateway, client, one, two }
    }

    /// The origin that speaks `version`.
    pub(crate) const fn origin(&self, version: Version) -> &Origin {
        if matches!(version, Version::HTTP_2) { &self.two } else { &self.one }
    }

    /// `HOST:PORT` of the origin that speaks `version`.
    pub(crate) fn authority(&self, version: Version) -> String {
        format!("{}:{}", host(version), self.origin(version).port())
    }

    /// The URL of `path` on the origin that speaks `version`.
    pub(crate) fn url(&self, version: Version, path: &str) -> String {
        format!("https://{}{path}", self.authority(version))
    }

    /// Sends a request to one of the origins on a connection of its own.
    pub(crate) async fn send(
        &self,
        (client, origin): (Version, Version),
        request: Request<TestBody>,
    ) -> hyper::Result<Response<Incoming>> {
        self.client.fetch(client, host(origin), self.origin(origin).port(), request).await
    }

    /// A GET of `path`.
    pub(crate) async fn get(
        &self,
        pairing: (Version, Version),
        path: &str,
    ) -> hyper::Result<Response<Incoming>> {
        self.send(pairing, get(&self.url(pairing.1, path))).await
    }

    /// A POST of `body` to `path`.
    pub(crate) async fn post(
        &self,
        pairing: (Version, Version),
        path: &str,
        body: TestBody,
    ) -> hyper::Result<Response<Incoming>> {
        self.send(pairing, post(&self.url(pairing.1, path), body)).await
    }

    /// Checks that `secret` stands nowhere in what the gateway wrote, printed or counts.
    pub(crate) async fn assert_never_written(&self, secret: &str) {
        assert_absent(&self.gateway.everything_written(), secret, "the files and output of the gateway");
        let metrics = self.gateway.metrics().await;
        assert_absent(metrics.text().as_bytes(), secret, "the metrics");
    }
}

/// The host of the origin that speaks `version`.
pub(crate) const fn host(version: Version) -> &'static str {
    if matches!(version, Version::HTTP_2) { TWO } else { ONE }
}

/// Checks that `secret` does not stand in `text`, nor most of it.
pub(crate) fn assert_absent(text: &[u8], secret: &str, place: &str) {
    let most = &secret.as_bytes()[secret.len() / 3..];
    let found = text.windows(most.len()).position(|window| window == most);
    assert!(found.is_none(), "the secret stands in {place}");
}

/// A refusal, as a client reads it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) fields: Value,
}

impl Problem {
    /// Reads the refusal in `response` and checks the fields that every refusal has.
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type").cloned();
        let proxy_status = response.headers().get("proxy-status").cloned();
        let body = read_all(response.into_body()).await.head;
        let kind = kind.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        assert!(proxy_status.is_some(), "a refusal says so in proxy-status too");
        Self::parse(status, &kind, &body)
    }

    /// The same from parts.
    pub(crate) fn parse(status: u16, content_type: &str, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        assert_eq!(content_type, "application/problem+json", "{status}: {text}");
        let fields: Value = serde_json::from_slice(body).expect("a problem document");
        for name in ["type", "title", "detail", "instance", "reason", "bottle"] {
            assert!(fields[name].is_string(), "no `{name}` in {fields}");
        }
        assert_eq!(fields["status"], status, "{fields}");
        Self { status, fields }
    }

    /// The text of a field.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {}", self.fields))
    }

    /// Checks fields by name.
    pub(crate) fn assert(&self, expected: &[(&str, &str)]) {
        for (name, value) in expected {
            assert_eq!(self.fields[*name], *value, "`{name}` of {}", self.fields);
        }
    }
}
