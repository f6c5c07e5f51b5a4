//! HTTP/2 streams and gRPC: trailers, answers without data, tiny windows, floods.

use decant_tests::bodies::{self, Text};
use decant_tests::client::{get, read_all};
use decant_tests::frames;
use decant_tests::origin::{End, handler};
use decant_tests::seed::Seeded;
use http::{HeaderMap, Response, Version};
use tokio::io::AsyncWriteExt;

use crate::support::{Stage, TWO, VERSIONS};

const BOTH_H2: (Version, Version) = (Version::HTTP_2, Version::HTTP_2);

fn grpc_trailers(status: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static(status));
    trailers.insert("grpc-status-details-bin", http::HeaderValue::from_static("CAUSBG5vcGU"));
    trailers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_cross_unchanged_with_and_without_data() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            let (feed, body) = bodies::fed();
            let path = request.uri().path().to_owned();
            tokio::spawn(async move {
                match path.as_str() {
                    "/data" => drop(feed.data("a message").await),
                    "/empty-data" => drop(feed.data("").await),
                    _ => {}
                }
                feed.trailers(grpc_trailers("5")).await;
            });
            Response::builder().header("content-type", "application/grpc").body(body).expect("a response")
        })
    })
    .await;
    for (path, text) in [("/data", "a message"), ("/empty-data", ""), ("/none", "")] {
        let response = stage.get(BOTH_H2, path).await.expect("an answer");
        let received = read_all(response.into_body()).await;
        assert_eq!((received.text().as_str(), received.end), (text, End::Clean), "{path}");
        assert_eq!(received.trailers, Some(grpc_trailers("5")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_nothing_but_a_head_passes() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            let response =
                Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
            response.body(bodies::empty()).expect("a response")
        })
    })
    .await;
    let response = stage.get(BOTH_H2, "/").await.expect("an answer");
    assert_eq!(response.headers()["grpc-status"], "12");
    let received = read_all(response.into_body()).await;
    assert_eq!((received.bytes, received.end), (0, End::Clean));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_a_request_reach_the_origin() {
    let stage = Stage::new(decant_tests::origin::counting).await;
    let (feed, body) = bodies::fed();
    let sending = async {
        feed.data("a message").await;
        feed.trailers(grpc_trailers("0")).await;
        drop(feed);
    };
    let (response, ()) = tokio::join!(stage.post(BOTH_H2, "/", body), sending);
    assert_eq!(response.expect("an answer").status(), 200);
    let upload = stage.origin(Version::HTTP_2).uploads(1).await.remove(0);
    assert_eq!((upload.bytes, upload.end, upload.trailers), (9, End::Clean, Some(grpc_trailers("0"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_tiny_window_gets_everything() {
    let length = 64 * 1024;
    let stage = Stage::new(|| {
        handler(move |_request, _record| async move {
            Response::new(bodies::sized(Text::new(Seeded::from_seed(51), length), length))
        })
    })
    .await;
    let port = stage.origin(Version::HTTP_2).port();
    let stream = stage.client.tls(&format!("{TWO}:{port}"), TWO, &["h2"]).await.expect("TLS");
    let mut builder = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    let opening =
        builder.initial_stream_window_size(13).handshake(hyper_util::rt::TokioIo::new(stream)).await;
    let (mut sender, connection) = opening.expect("an opening");
    tokio::spawn(connection);
    let response = sender.send_request(get(&stage.url(Version::HTTP_2, "/"))).await.expect("an answer");
    let received = read_all(response.into_body()).await;
    assert_eq!((received.bytes, received.end), (length, End::Clean));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_resets_ends_the_connection_and_nothing_else() {
    let stage = Stage::new(decant_tests::origin::counting).await;
    let port = stage.origin(Version::HTTP_2).port();
    let mut stream = stage.client.tls(&format!("{TWO}:{port}"), TWO, &["h2"]).await.expect("TLS");
    let mut wire = frames::PREFACE.to_vec();
    wire.extend(frames::encode(frames::SETTINGS, 0, 0, &[]));
    // `:method: GET`, `:scheme: https`, `:path: /` and an authority, in HPACK.
    let authority = stage.authority(Version::HTTP_2);
    let mut head = vec![0x82, 0x87, 0x84, 0x41, u8::try_from(authority.len()).expect("a short name")];
    head.extend_from_slice(authority.as_bytes());
    for number in 0..5_000_u32 {
        let id = 2 * number + 1;
        wire.extend(frames::encode(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, id, &head));
        wire.extend(frames::encode(frames::RST_STREAM, 0, id, &8_u32.to_be_bytes()));
    }
    let flooded = stream.write_all(&wire).await;
    let mut ended = flooded.is_err();
    while let Some(frame) = frames::read(&mut stream).await {
        ended |= frame.kind == frames::GOAWAY;
    }
    assert!(ended, "the flood was endured to its end");
    for version in VERSIONS {
        let response = stage.get((version, version), "/").await.expect("others are served");
        assert_eq!(response.status(), 200);
    }
}
