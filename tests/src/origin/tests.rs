//! The origins, spoken to directly: what a test says of a gateway rests on this.

use std::io::Cursor;

use http::Version;
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;

use super::*;
use crate::bodies::{self, Coding};
use crate::ca::roots_from_pem;
use crate::client::{Client, Connection, get, post, read_all};
use crate::frames;
use crate::rawclient::Wire;

async fn direct(ca: &TestCa, address: SocketAddr, version: Version) -> Connection {
    let alpn = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
    let client = Client::new(address, roots_from_pem(ca.pem()));
    let socket = TcpStream::connect(address).await.expect("the origin listens");
    let stream = client.handshake(socket, "origin.test", &[alpn]).await.expect("TLS with the origin");
    Connection::over(Box::new(stream), version).await
}

#[tokio::test]
async fn uploads_are_counted_and_downloads_arrive_over_both_versions() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &["origin.test"], counting()).await;
    let body = Coding::Gzip.encode_all(&b"words ".repeat(50_000));
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = direct(&ca, origin.address(), version).await;
        let upload = bodies::streamed(Cursor::new(body.clone()));
        let response = connection.send(post("https://origin.test/up", upload)).await.expect("an answer");
        let text = read_all(response.into_body()).await.text();
        assert_eq!(text, format!("{} {}", body.len(), hex(&Sha256::digest(&body))), "{version:?}");
    }
    let ends: Vec<End> = origin.uploads(2).await.iter().map(|upload| upload.end).collect();
    assert_eq!(ends, [End::Clean, End::Clean]);
}

#[tokio::test]
async fn a_body_that_is_broken_off_is_cut_for_its_reader_on_either_side() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &["origin.test"], |request, record| {
        let answer = handler(|request: Request<Incoming>, record: Arc<Record>| async move {
            if request.method() == Method::POST {
                record.take_upload(request.into_body()).await;
            }
            let (feed, body) = bodies::fed();
            tokio::spawn(async move {
                feed.data("part").await;
                feed.break_off().await;
            });
            Response::new(body)
        });
        answer(request, record)
    })
    .await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = direct(&ca, origin.address(), version).await;
        let response = connection.send(get("https://origin.test/")).await.expect("a head");
        assert_eq!(read_all(response.into_body()).await.end, End::Cut, "{version:?}");
        let (feed, body) = bodies::fed();
        let breaking = async {
            feed.data("part").await;
            feed.break_off().await;
        };
        let mut connection = direct(&ca, origin.address(), version).await;
        let (answer, ()) = tokio::join!(connection.send(post("https://origin.test/", body)), breaking);
        drop(answer);
    }
    for upload in origin.uploads(2).await {
        assert_eq!(upload.end, End::Cut);
    }
}

#[tokio::test]
async fn a_scripted_origin_speaks_raw_frames_and_raw_text() {
    let ca = TestCa::new();
    let tls = ca.leaf(&["origin.test"]).server_config(&["h2"]);
    let (address, _serving) = scripted(Some(tls), |mut stream| async move {
        let id = frames::serve_opening(&mut *stream).await.expect("a request");
        let mut wire = frames::encode(frames::HEADERS, frames::END_HEADERS, id, frames::STATUS_200);
        wire.extend(frames::encode(frames::DATA, frames::END_STREAM, id, b"by hand"));
        stream.write_all(&wire).await.expect("the client reads");
        while frames::read(&mut *stream).await.is_some() {}
    })
    .await;
    let mut connection = direct(&ca, address, Version::HTTP_2).await;
    let response = connection.send(get("https://origin.test/")).await.expect("an answer");
    assert_eq!(read_all(response.into_body()).await.text(), "by hand");

    let (address, _serving) = scripted(None, |mut stream| async move {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        while frames::read(&mut *stream).await.is_some() {}
    })
    .await;
    let mut wire = Wire::new(Box::new(TcpStream::connect(address).await.expect("it listens")));
    assert_eq!(wire.answer(false).await.expect("an answer").text(), "ok");
}
