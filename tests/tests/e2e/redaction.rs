//! Redaction: a secret in a message is overwritten where it stands, and the session goes on.

use decant_tests::bodies::{self, TestBody};
use decant_tests::client::read_all;
use decant_tests::origin::{End, counting, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::{HeaderMap, Request, Response, Version};
use serde_json::{Value, json};

use crate::support::{ONE, PAIRINGS, Problem, Stage, TWO, assert_absent, canary, setup};

/// A stage whose one route redacts in both directions.
async fn redacting<H>(handler: impl Fn() -> H) -> Stage
where
    H: Fn(
            Request<hyper::body::Incoming>,
            std::sync::Arc<decant_tests::origin::Record>,
        ) -> decant_tests::origin::Answer
        + Send
        + Sync
        + 'static,
{
    let routes = format!(
        "- {{name: all, hosts: [{ONE}, {TWO}], ports: [\"1-65535\"], \
         inspect: {{request: {{on_match: redact}}, response: {{on_match: redact}}}}}}"
    );
    Stage::with(setup().routes(&routes), handler).await
}

fn stars(secret: &str) -> String {
    "*".repeat(secret.len())
}

/// A chat that replays its history, as the APIs of language models have it.
struct Chat(Vec<Value>);

impl Chat {
    fn say(&mut self, role: &str, text: &str) {
        self.0.push(json!({"role": role, "content": text}));
    }

    fn body(&self) -> String {
        json!({"model": "m", "stream": false, "messages": self.0}).to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_with_a_secret_in_its_history_goes_on() {
    let stage = redacting(counting).await;
    let secret = github_pat(&mut Seeded::named("a chat"));
    for (pairing, words) in PAIRINGS.into_iter().zip([10, 40_000, 10, 40_000]) {
        let mut chat = Chat(Vec::new());
        chat.say("system", &"careful words ".repeat(words));
        for turn in 1..=6 {
            let said =
                if turn == 3 { format!("my token is {secret}, use it") } else { format!("turn {turn}") };
            chat.say("user", &said);
            let before = stage.origin(pairing.1).record().uploads().len();
            let answer = stage.post(pairing, "/v1/chat", bodies::full(chat.body())).await.expect("an answer");
            assert_eq!(answer.status(), 200, "{pairing:?}, turn {turn}");
            let upload = stage.origin(pairing.1).uploads(before + 1).await[before].clone();
            assert_eq!(upload.end, End::Clean);
            let expected = chat.body().replace(&secret, &stars(&secret));
            assert_eq!(String::from_utf8(upload.head).expect("text"), expected, "{pairing:?}, turn {turn}");
            chat.say("assistant", "noted");
        }
        assert_absent(&stage.origin(pairing.1).record().raw(), &secret, "what the origin received");
    }
    let finding =
        stage.gateway.wait_for_finding("a redaction", |finding| finding["action"] == "redact").await;
    assert_eq!((&finding["enforced"], &finding["surface"]), (&true.into(), &"body".into()), "{finding}");
    let redacted = stage.gateway.metrics().await.sum("decant_findings_total", &[("action", "redact")]);
    assert!((redacted - 16.0).abs() < 0.1, "four turns in each of four chats: {redacted}");
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_redacted_at_any_split_and_keeps_its_trailers() {
    let secret = canary(&mut Seeded::named("an answer"));
    for size in [1, 7, 1000] {
        let text = format!("data: {secret}\n\nthen {secret}{secret} more\n");
        let (served, value) = (text.clone(), secret.clone());
        let stage = redacting(|| {
            let (served, value) = (served.clone(), value.clone());
            handler(move |_request, _record| {
                let (served, value) = (served.clone(), value.clone());
                async move {
                    let (feed, body) = bodies::fed();
                    tokio::spawn(async move {
                        for piece in served.as_bytes().chunks(size) {
                            feed.data(String::from_utf8_lossy(piece).into_owned()).await;
                        }
                        let trailers = [("x-sum".parse().expect("a name"), "kept".parse().expect("a value"))];
                        feed.trailers(HeaderMap::from_iter(trailers)).await;
                    });
                    let answer = Response::builder().header("x-note", format!("see {value}"));
                    answer.header("trailer", "x-sum").body(body).expect("an answer")
                }
            })
        })
        .await;
        for pairing in PAIRINGS {
            let answer = stage.get(pairing, "/").await.expect("an answer");
            assert_eq!(answer.headers()["x-note"], format!("see {}", stars(&secret)), "{pairing:?}");
            let received = read_all(answer.into_body()).await;
            assert_eq!(received.text(), text.replace(&secret, &stars(&secret)), "{pairing:?}, {size}");
            assert_eq!(received.end, End::Clean, "{pairing:?}, {size}");
            if pairing == (Version::HTTP_2, Version::HTTP_2) {
                assert_eq!(received.trailers.expect("trailers")["x-sum"], "kept");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_fields_are_redacted_and_everything_else_blocks() {
    let stage = redacting(counting).await;
    let secret = github_pat(&mut Seeded::named("fields"));
    for pairing in PAIRINGS {
        let url = stage.url(pairing.1, "/");
        let get = || Request::get(&url).header("x-note", format!("a {secret} b"));
        let passed =
            stage.send(pairing, get().body(bodies::empty()).expect("a request")).await.expect("an answer");
        assert_eq!(passed.status(), 200);
        let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
        assert_eq!(seen.headers["x-note"], format!("a {} b", stars(&secret)));

        let coded = bodies::Coding::Gzip.encode_all(secret.as_bytes());
        let post = |name: &str, value: &str, body: TestBody| {
            Request::post(&url).header(name, value).body(body).expect("a request")
        };
        let refused: Vec<Request<TestBody>> = vec![
            Request::get(format!("{url}?q={secret}")).body(bodies::empty()).expect("a request"),
            get().header("content-md5", "x").body(bodies::empty()).expect("a request"),
            post("x-amz-content-sha256", "x", bodies::full(secret.clone())),
            post("content-encoding", "gzip", bodies::full(coded)),
        ];
        for request in refused {
            let problem = Problem::read(stage.send(pairing, request).await.expect("a refusal")).await;
            assert_eq!(problem.status, 403);
            assert!(problem.text("detail").contains("not redacted"), "{problem:?}");
        }
        assert_absent(&stage.origin(pairing.1).record().raw(), &secret, "what the origin received");
    }
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detector_and_an_exception_can_ask_for_it() {
    let overrides = "overrides: [{id: github-pat, action: redact}]\n";
    let exception = "exceptions:\n  - {name: canaries, detector: canary, action: redact, until: 2999-01-31, reason: a test}";
    let setup = decant_tests::gateway::Setup::new()
        .file("canary.yaml", crate::support::CANARY)
        .file("tuned.yaml", overrides)
        .section("detectors: {files: [canary.yaml, tuned.yaml]}")
        .section(exception);
    let stage = Stage::with(setup, counting).await;
    let mut seeded = Seeded::named("who asks");
    let (secret, canary) = (github_pat(&mut seeded), canary(&mut seeded));
    let pairing = (Version::HTTP_2, Version::HTTP_11);
    let body = format!("{secret} {canary}");
    let answer = stage.post(pairing, "/", bodies::full(body)).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let upload = stage.origin(pairing.1).uploads(1).await[0].clone();
    assert_eq!(String::from_utf8_lossy(&upload.head), format!("{} {}", stars(&secret), stars(&canary)));
    let finding = stage.gateway.wait_for_finding("a canary", |finding| finding["detector"] == "canary").await;
    assert_eq!(
        (&finding["action"], &finding["exception"]),
        (&"redact".into(), &"canaries".into()),
        "{finding}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observing_overwrites_nothing() {
    let routes = format!(
        "- {{name: all, hosts: [{ONE}, {TWO}], ports: [\"1-65535\"], inspect: {{request: {{on_match: redact}}}}}}"
    );
    let stage = Stage::with(setup().routes(&routes).section("mode: observe"), counting).await;
    let secret = github_pat(&mut Seeded::named("observed"));
    let pairing = (Version::HTTP_11, Version::HTTP_11);
    let answer = stage.post(pairing, "/", bodies::full(secret.clone())).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let upload = stage.origin(pairing.1).uploads(1).await[0].clone();
    assert_eq!(String::from_utf8_lossy(&upload.head), secret);
    let finding =
        stage.gateway.wait_for_finding("a redaction", |finding| finding["action"] == "redact").await;
    assert_eq!(finding["enforced"], false, "{finding}");
}
