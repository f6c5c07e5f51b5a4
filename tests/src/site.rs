//! A small web site from a folder, with ranges; and git repositories behind `git http-backend`.
//!
//! Invariant: serves nothing outside its folder.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::bodies::{TestBody, empty, full, sized};
use crate::origin::{Answer, Record, handler};

/// Longest request body handed to a CGI program, in bytes.
const CGI_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A handler that serves the files of `folder`; a path that ends in `/` means its `index.html`.
pub fn files(folder: &Path) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    let folder = folder.to_owned();
    handler(move |request, record| {
        let folder = folder.clone();
        async move {
            let (parts, body) = request.into_parts();
            record.take_upload(body).await;
            let range = parts.headers.get(RANGE).and_then(|value| value.to_str().ok());
            let path = local_path(&folder, parts.uri.path());
            let kind = if parts.uri.path().ends_with('/') { "text/html" } else { "application/octet-stream" };
            let file = path.and_then(|path| File::open(path).ok());
            file.map_or_else(not_found, |file| serve(file, kind, range, &parts.method))
        }
    })
}

/// A handler that serves the git repositories in `folder` over the smart protocol.
pub fn git(folder: &Path) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    let folder = folder.to_owned();
    handler(move |request, _record| {
        let folder = folder.clone();
        async move { http_backend(&folder, request).await }
    })
}

fn local_path(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = path.trim_start_matches('/');
    let inside = path.split('/').all(|part| part != "..");
    let file =
        if path.is_empty() || path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    inside.then(|| folder.join(file)).filter(|file| file.is_file())
}

fn not_found() -> Response<TestBody> {
    Response::builder().status(StatusCode::NOT_FOUND).body(full("no such file\n")).expect("a response")
}

fn serve(mut file: File, kind: &str, range: Option<&str>, method: &http::Method) -> Response<TestBody> {
    let length = file.metadata().expect("an open file").len();
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<u64>().ok());
    let mut response = Response::builder().header(ACCEPT_RANGES, "bytes").header(CONTENT_TYPE, kind);
    let start = from.filter(|start| *start < length).unwrap_or(0);
    if from.is_some() {
        response = response.status(StatusCode::PARTIAL_CONTENT);
        response = response.header(CONTENT_RANGE, format!("bytes {start}-{}/{length}", length - 1));
    }
    file.seek(SeekFrom::Start(start)).expect("a place in the file");
    if method == http::Method::HEAD {
        return response.header(CONTENT_LENGTH, length - start).body(empty()).expect("a response");
    }
    response.body(sized(file, length - start)).expect("a response")
}

async fn http_backend(folder: &Path, request: Request<Incoming>) -> Response<TestBody> {
    let (parts, body) = request.into_parts();
    let body = http_body_util::Limited::new(body, CGI_BODY_BYTES);
    let mut frames = std::pin::pin!(body);
    let mut input = Vec::new();
    while let Some(Ok(frame)) = frames.frame().await {
        input.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
    }
    let field =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", field("content-type"))
        .env("HTTP_CONTENT_ENCODING", field("content-encoding"))
        .env("GIT_PROTOCOL", field("git-protocol"))
        .env("CONTENT_LENGTH", input.len().to_string())
        .env("REMOTE_USER", "tester")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    tokio::spawn(async move { stdin.write_all(&input).await });
    cgi_response(&child.wait_with_output().await.expect("git ends").stdout)
}

/// Reads what a CGI program printed (RFC 3875 §6).
fn cgi_response(output: &[u8]) -> Response<TestBody> {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let mut response = Response::builder();
    for (name, value) in head.split("\r\n").filter_map(|line| line.split_once(": ")) {
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap_or(value)),
            _ => response.header(name, value),
        };
    }
    response.body(full(output[(end + 4).min(output.len())..].to_vec())).expect("a CGI response")
}

/// Writes `length` bytes of random (incompressible) data to `path`.
pub fn random_file(path: &Path, length: usize, mut seeded: crate::seed::Seeded) {
    let mut bytes = vec![0; length];
    seeded.fill(&mut bytes);
    std::fs::write(path, bytes).expect("a writable folder");
}
