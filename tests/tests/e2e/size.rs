//! Size never matters: secrets at the far end of huge bodies, bombs, and a gateway whose memory stays where it was.

use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use decant_tests::bodies::{self, Coding, Text};
use decant_tests::client::read_all;
use decant_tests::gateway::Gateway;
use decant_tests::origin::{End, counting, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use decant_tests::tools::long_form;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use http::{Request, Response};

use crate::support::{Problem, Stage, VERSIONS, assert_absent, canary};

/// What the gateway may ever have resident, in bytes.
const PEAK_BYTES: u64 = 48 * 1024 * 1024;

const MIB: u64 = 1024 * 1024;

/// Length of a huge body: the full size where it was asked for, else many times the bar on memory, else (for a
/// gateway that was built without optimisation, and for the coding that is slowest to make) still well over it.
fn huge(coding: Coding) -> u64 {
    match (long_form(), std::env::var_os("DECANT_BIN").is_some()) {
        (true, _) => 4096 * MIB,
        (false, true) if coding != Coding::Brotli => 256 * MIB,
        (false, _) => 64 * MIB,
    }
}

fn assert_peak(gateway: &Gateway, what: &str) {
    let peak = gateway.worker().peak_resident();
    println!("{what}: the gateway's peak was {:.1} MiB", peak as f64 / MIB as f64);
    assert!(peak < PEAK_BYTES, "{what}: the gateway's peak was {peak} bytes");
}

/// A body of a huge number of decoded bytes with `secret` near its end, in `coding`.
fn far_secret(secret: &str, coding: Coding, seed: u64) -> Box<dyn Read + Send + Unpin> {
    coding.encode(Text::new(Seeded::from_seed(seed), huge(coding)).plant_at_end(secret.as_bytes()))
}

async fn download(coding: Coding) {
    let secret = canary(&mut Seeded::named("far end of a download"));
    let served = secret.clone();
    let stage = Stage::new(|| {
        let served = served.clone();
        handler(move |_request, _record| {
            let response =
                Response::builder().header("content-encoding", coding.name().unwrap_or("identity"));
            let body = bodies::streamed(far_secret(&served, coding, 21));
            async move { response.body(body).expect("a response") }
        })
    })
    .await;
    for version in VERSIONS {
        let response = stage.get((version, version), "/").await.expect("the head passes");
        assert_eq!(response.status(), 200);
        let received = read_all(response.into_body()).await;
        assert_eq!(received.end, End::Cut, "{coding:?} {version:?}: the client sees no clean end");
        assert_absent(&received.head, &secret, "the first of what the client received");
        if coding == Coding::Identity {
            let missing = huge(coding) - received.bytes;
            assert!((64..MIB).contains(&missing), "{version:?}: {missing} bytes were kept back");
        }
        assert_peak(&stage.gateway, &format!("{coding:?} download over {version:?}"));
    }
    let finding =
        stage.gateway.wait_for_finding("the canary", |finding| finding["detector"] == "canary").await;
    assert_eq!(finding["offset"], huge(coding) - secret.len() as u64 - 64, "{finding}");
    stage.assert_never_written(&secret).await;
}

async fn upload(coding: Coding) {
    let secret = github_pat(&mut Seeded::named("far end of an upload"));
    let stage = Stage::new(counting).await;
    for version in VERSIONS {
        let body = bodies::streamed(far_secret(&secret, coding, 22));
        let request = Request::post(stage.url(version, "/"))
            .header("content-encoding", coding.name().unwrap_or("identity"));
        if let Ok(response) = stage.send((version, version), request.body(body).expect("a request")).await {
            Problem::read(response).await.assert(&[("detector", "github-pat"), ("surface", "body")]);
        }
        let uploads = stage.origin(version).uploads(1).await;
        assert_eq!(uploads[0].end, End::Cut, "{coding:?} {version:?}: the origin sees no clean end");
        if coding == Coding::Identity {
            let released = huge(coding) - secret.len() as u64 - 64;
            assert!(uploads[0].bytes <= released, "{version:?}: {} bytes", uploads[0].bytes);
            assert!(uploads[0].bytes + MIB > released, "{version:?}: {} bytes", uploads[0].bytes);
        }
        assert_peak(&stage.gateway, &format!("{coding:?} upload over {version:?}"));
    }
    let finding =
        stage.gateway.wait_for_finding("the token", |finding| finding["detector"] == "github-pat").await;
    assert_eq!(finding["offset"], huge(coding) - secret.len() as u64 - 64, "{finding}");
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_download_is_found() {
    download(Coding::Identity).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_gzip_download_is_found() {
    download(Coding::Gzip).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_brotli_download_is_found() {
    download(Coding::Brotli).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_zstd_download_is_found() {
    download(Coding::Zstd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_upload_is_found() {
    upload(Coding::Identity).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_gzip_upload_is_found() {
    upload(Coding::Gzip).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_brotli_upload_is_found() {
    upload(Coding::Brotli).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_the_far_end_of_a_huge_zstd_upload_is_found() {
    upload(Coding::Zstd).await;
}

/// A reader of `head` and then `block`, over and over.
struct Repeated {
    head: Vec<u8>,
    block: Arc<Vec<u8>>,
    times: usize,
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            let count = self.head.as_slice().read(out)?;
            self.head.drain(..count);
            return Ok(count);
        }
        if self.times == 0 {
            return Ok(0);
        }
        let count = (&self.block[self.at..]).read(out)?;
        self.at += count;
        if self.at == self.block.len() {
            (self.at, self.times) = (0, self.times - 1);
        }
        Ok(count)
    }
}

/// Ten gibibytes of zeros in about ten mebibytes of one gzip member (without its end, which nobody reaches).
fn bomb_gzip() -> Repeated {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    io::copy(&mut io::repeat(0).take(64 * MIB), &mut encoder).expect("memory");
    encoder.flush().expect("memory");
    let head = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    Repeated { head, block: Arc::new(encoder.get_ref().clone()), times: 160, at: 0 }
}

/// The same as many zstd frames.
fn bomb_zstd() -> Repeated {
    let frame = zstd::stream::encode_all(io::repeat(0).take(64 * MIB), 3).expect("memory");
    Repeated { head: Vec::new(), block: Arc::new(frame), times: 160, at: 0 }
}

/// The same in brotli, made once.
fn bomb_brotli() -> Repeated {
    static WIRE: OnceLock<Arc<Vec<u8>>> = OnceLock::new();
    let length = if long_form() { 10 * 1024 * MIB } else { 256 * MIB };
    let block = WIRE.get_or_init(|| {
        let mut wire = Vec::new();
        let mut source = brotli::CompressorReader::new(io::repeat(0).take(length), 64 * 1024, 1, 22);
        source.read_to_end(&mut wire).expect("memory");
        Arc::new(wire)
    });
    Repeated { head: Vec::new(), block: Arc::clone(block), times: 1, at: 0 }
}

fn bomb(coding: Coding) -> Repeated {
    match coding {
        Coding::Gzip => bomb_gzip(),
        Coding::Zstd => bomb_zstd(),
        _ => bomb_brotli(),
    }
}

async fn bombs(coding: Coding) {
    let name = coding.name().expect("a coding");
    let stage = Stage::new(|| {
        handler(move |request, record| async move {
            if request.method() == http::Method::POST {
                record.take_upload(request.into_body()).await;
            }
            let body = bodies::streamed(bomb(coding));
            Response::builder().header("content-encoding", name).body(body).expect("a response")
        })
    })
    .await;
    for version in VERSIONS {
        let pairing = (version, version);
        let url = stage.url(version, "/");
        let request =
            Request::post(url).header("content-encoding", name).body(bodies::streamed(bomb(coding)));
        let sending = stage.send(pairing, request.expect("a request"));
        let refused =
            tokio::time::timeout(Duration::from_secs(60), sending).await.expect("a bomb is refused in time");
        if let Ok(response) = refused {
            let problem = Problem::read(response).await;
            problem.assert(&[("reason", "undecodable"), ("direction", "request")]);
            assert_eq!(problem.status, 415);
        }
        assert_peak(&stage.gateway, &format!("{coding:?} bomb up over {version:?}"));
        if let Ok(response) = stage.get(pairing, "/").await {
            let status = response.status();
            let received = read_all(response.into_body()).await;
            assert!(status != 200 || received.end == End::Cut, "{status}: the bomb arrived whole");
        }
        assert_peak(&stage.gateway, &format!("{coding:?} bomb down over {version:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gzip_bomb_is_refused_and_memory_stays_flat() {
    bombs(Coding::Gzip).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zstd_bomb_is_refused_and_memory_stays_flat() {
    bombs(Coding::Zstd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brotli_bomb_is_refused_and_memory_stays_flat() {
    bombs(Coding::Brotli).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_holds_neither_memory_nor_the_origin() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            Response::new(bodies::sized(Text::new(Seeded::from_seed(23), 1024 * MIB), 1024 * MIB))
        })
    })
    .await;
    let mut stopped = Vec::new();
    for version in VERSIONS {
        for _reader in 0..4 {
            stopped.push(stage.get((version, version), "/").await.expect("a head"));
        }
    }
    tokio::time::sleep(Duration::from_secs(if long_form() { 30 } else { 3 })).await;
    assert_peak(&stage.gateway, "eight readers that stopped");
}
