//! Expected and unexpected: a credential passes to its own home, counted, and blocks everywhere else.

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::get;
use decant_tests::origin::{Origin, counting};
use decant_tests::secrets::{base64, github_pat};
use decant_tests::seed::Seeded;
use http::Request;

use crate::support::{Problem, VERSIONS, setup};

const HOME: &str = "api.github.com";
const ELSEWHERE: &str = "elsewhere.test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_passes_to_its_provider_and_blocks_elsewhere() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[HOME, ELSEWHERE], counting()).await;
    let gateway = setup().host(HOME).host(ELSEWHERE).trust(&ca).start().await;
    let secret = github_pat(&mut Seeded::named("home"));
    let basic = format!("Basic {}", base64(format!("x-access-token:{secret}").as_bytes()));
    for version in VERSIONS {
        for value in [format!("token {secret}"), format!("Bearer {secret}"), basic.clone()] {
            for (host, status) in [(HOME, 200), (ELSEWHERE, 403)] {
                let url = format!("https://{host}:{}/user", origin.port());
                let request = Request::get(url).header("authorization", &value).body(bodies::empty());
                let request = request.expect("a request");
                let response = gateway.client().fetch(version, host, origin.port(), request).await;
                let response = response.expect("an answer");
                assert_eq!(response.status(), status, "{host} {version:?}");
            }
        }
    }
    let labels = [("action", "expected"), ("detector", "github-pat")];
    let expected = gateway.metrics().await.sum("decant_findings_total", &labels);
    assert!((expected - 6.0).abs() < 0.1, "{expected} expected findings in six requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_the_wrong_place_blocks_even_at_home() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[HOME], counting()).await;
    let gateway = setup().host(HOME).trust(&ca).start().await;
    let secret = github_pat(&mut Seeded::named("wrong place"));
    for version in VERSIONS {
        let url = format!("https://{HOME}:{}/search?q={secret}", origin.port());
        let response =
            gateway.client().fetch(version, HOME, origin.port(), get(&url)).await.expect("a refusal");
        Problem::read(response).await.assert(&[("detector", "github-pat"), ("surface", "url")]);
    }
    assert!(origin.record().requests().is_empty());
}
