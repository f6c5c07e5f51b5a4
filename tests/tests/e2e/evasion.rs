//! Evasion through the gateway: every encoding on every surface, over both versions, whole and in pieces.
//!
//! One check runs all of it: a request that carries a token in some disguise is refused, or cut before its end. The same
//! request with a text of no meaning in the same disguise passes, so that it is the token that is seen. What the matrix
//! gives is the table of the README; `DECANT_BLESS=1` writes it there.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use decant_tests::bodies::{self, TestBody};
use decant_tests::encodings::{self, Encoding};
use decant_tests::origin::{End, counting};
use decant_tests::secrets::{base64, github_pat};
use decant_tests::seed::Seeded;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, Version};

use crate::support::{Problem, Stage, VERSIONS};

/// Something of a request that its sender chooses.
#[derive(Clone, Copy)]
struct Surface {
    name: &'static str,
    /// The request that carries `text` there; `None` where such a text cannot stand.
    request: fn(url: &str, text: &[u8]) -> Option<Request<TestBody>>,
}

const SURFACES: &[Surface] = &[
    Surface { name: "path", request: |url, text| get(&format!("{url}a/{}/b", in_url(text))) },
    Surface { name: "query", request: |url, text| get(&format!("{url}a?q={}&r=1", in_url(text))) },
    Surface { name: "header", request: |url, text| with_field(url, "x-note", b"see ", text, b" there") },
    Surface { name: "header name", request: with_name },
    Surface { name: "cookie", request: |url, text| with_field(url, "cookie", b"a=b; t=", text, b"; c=d") },
    Surface { name: "Bearer", request: |url, text| with_field(url, "authorization", b"Bearer ", text, b"") },
    Surface {
        name: "Basic",
        request: |url, text| {
            let credentials = base64(&[b"user:", text].concat());
            with_field(url, "authorization", b"Basic ", credentials.as_bytes(), b"")
        },
    },
    Surface {
        name: "another scheme",
        request: |url, text| with_field(url, "authorization", b"Own key=\"", text, b"\""),
    },
    Surface { name: "trailer", request: with_trailer },
    Surface { name: "part's name", request: |url, text| with_part(url, b"name=\"", text, b"\"", b"x") },
    Surface {
        name: "file name",
        request: |url, text| with_part(url, b"name=\"a\"; filename=\"", text, b"\"", b"x"),
    },
    Surface { name: "part", request: |url, text| with_part(url, b"name=\"a\"", b"", b"", text) },
    Surface { name: "body", request: |url, text| post(url, [b"text: ", text, b" and more\n"].concat()) },
];

fn get(url: &str) -> Option<Request<TestBody>> {
    Request::get(url).body(bodies::empty()).ok()
}

fn post(url: &str, body: Vec<u8>) -> Option<Request<TestBody>> {
    Request::post(url).body(bodies::full(body)).ok()
}

/// What may not stand in a URL is percent-encoded, as a client would.
fn in_url(text: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%+=;:@!$'()*,".contains(&byte);
    text.iter()
        .map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn with_field(url: &str, name: &str, before: &[u8], text: &[u8], after: &[u8]) -> Option<Request<TestBody>> {
    let value = HeaderValue::from_bytes(&[before, text, after].concat()).ok()?;
    Request::get(url).header(name, value).body(bodies::empty()).ok()
}

/// The case of letters is lost in a name; a token is known without it, what is encoded by case cannot be read any more.
fn with_name(url: &str, text: &[u8]) -> Option<Request<TestBody>> {
    let needs_case = !text.starts_with(b"ghp_") && text.iter().any(u8::is_ascii_uppercase);
    let name = HeaderName::from_bytes(&[b"x-", text].concat()).ok().filter(|_| !needs_case)?;
    Request::get(url).header(name, "1").body(bodies::empty()).ok()
}

fn with_trailer(url: &str, text: &[u8]) -> Option<Request<TestBody>> {
    let value = HeaderValue::from_bytes(text).ok()?;
    let (feed, body) = bodies::fed();
    tokio::spawn(async move {
        feed.data("something").await;
        feed.trailers(HeaderMap::from_iter([(HeaderName::from_static("x-sum"), value)])).await
    });
    Request::post(url).header("trailer", "x-sum").header("te", "trailers").body(body).ok()
}

fn with_part(url: &str, before: &[u8], text: &[u8], after: &[u8], body: &[u8]) -> Option<Request<TestBody>> {
    if text.iter().any(|byte| b"\r\n\"".contains(byte)) {
        return None;
    }
    let head = [b"--limit\r\nContent-Disposition: form-data; ", before, text, after, b"\r\n\r\n"].concat();
    let body = [&head[..], body, b"\r\n--limit--\r\n"].concat();
    let request = Request::post(url).header("content-type", "multipart/form-data; boundary=limit");
    request.body(bodies::full(body)).ok()
}

/// The request that carries `text` in its body in these pieces.
fn in_pieces<'a>(url: &str, pieces: impl Iterator<Item = &'a [u8]>) -> Request<TestBody> {
    let pieces: Vec<Vec<u8>> = pieces.map(<[u8]>::to_vec).collect();
    let (feed, body) = bodies::fed();
    tokio::spawn(async move {
        for piece in pieces {
            if !feed.data(piece).await {
                return;
            }
        }
    });
    Request::post(url).body(body).expect("a request")
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was refused by the token's detector, or cut before its end.
    Seen,
    Passed,
}

async fn fate(stage: &Stage, version: Version, request: Request<TestBody>) -> Fate {
    let before = stage.origin(version).record().uploads().len();
    match stage.send((version, version), request).await {
        Ok(response) if response.status() == 200 => Fate::Passed,
        Ok(response) => {
            let problem = Problem::read(response).await;
            problem.assert(&[("reason", "detector"), ("detector", "github-pat")]);
            assert!(
                stage.origin(version).record().uploads()[before..]
                    .iter()
                    .all(|upload| upload.end == End::Cut),
                "what was refused has not arrived whole"
            );
            Fate::Seen
        }
        Err(_) => Fate::Seen,
    }
}

/// A text in which the token stands, long enough for every coding to compress it; and one like it without.
fn texts() -> [Vec<u8>; 2] {
    let token = github_pat(&mut Seeded::named("evasion"));
    let harmless = "a word or two".to_owned();
    [token, harmless].map(|text| format!("token: {text}; and a few words more, and a few words").into_bytes())
}

/// A token alone where nothing else can stand beside it.
fn bare(text: &[u8], surface: &Surface) -> Vec<u8> {
    let is_bare = ["header name", "Bearer", "trailer"].contains(&surface.name);
    let text = String::from_utf8_lossy(text).into_owned();
    let inner = text.trim_start_matches("token: ").split(';').next().unwrap_or_default();
    if is_bare { inner.replace(' ', "-").into_bytes() } else { text.into_bytes() }
}

/// What the README says of a cell.
async fn cell(stage: &Stage, encoding: &Encoding, surface: &Surface) -> &'static str {
    let [token, harmless] = texts().map(|text| (encoding.write)(&bare(&text, surface)));
    let mut shown = "·";
    for version in VERSIONS {
        let url = stage.url(version, "/");
        let (Some(telling), Some(other)) =
            ((surface.request)(&url, &token), (surface.request)(&url, &harmless))
        else {
            return "·";
        };
        let place = format!("{} in {} over {version:?}", encoding.name, surface.name);
        assert_eq!(fate(stage, version, other).await, Fate::Passed, "{place}: a text of no meaning");
        let is_seen = fate(stage, version, telling).await == Fate::Seen;
        assert!(shown == "·" || (shown == "seen") == is_seen, "{place}: not as over the other version");
        shown = if is_seen { "seen" } else { "**no**" };
    }
    shown
}

/// The table: a row for each encoding, a column for each surface.
async fn table(stage: &Stage) -> String {
    let names: Vec<_> = SURFACES.iter().map(|surface| surface.name).collect();
    let mut table = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for encoding in encodings::ALL {
        let _ = write!(table, "| {} |", encoding.name);
        for surface in SURFACES {
            let _ = write!(table, " {} |", cell(stage, encoding, surface).await);
        }
        table.push('\n');
    }
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_the_readme_says_what_is_seen() {
    const MARKS: [&str; 2] = ["<!-- what the evasion matrix sees -->\n", "<!-- end -->\n"];
    let stage = Stage::new(counting).await;
    let table = table(&stage).await;
    println!("{table}");
    // What goes by is said so in the README, and is this alone: in a path a slash hides where a zlib stream begins.
    assert_eq!(table.matches("**no**").count(), 1, "a secret went by:\n{table}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(&path).expect("a README");
    let [start, end] = MARKS.map(|mark| readme.find(mark).expect("the table has its place"));
    let start = start + MARKS[0].len();
    if std::env::var_os("DECANT_BLESS").is_some() {
        fs::write(&path, format!("{}{table}{}", &readme[..start], &readme[end..]))
            .expect("it can be written");
    } else {
        assert_eq!(&readme[start..end], table, "DECANT_BLESS=1 writes the table anew");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_hide_nothing() {
    let stage = Stage::new(counting).await;
    let [token, _] = texts();
    // The long form splits at every byte; the short one at every fifth, and no encoding at the same ones.
    let step = if std::env::var_os("DECANT_TEST_LONG").is_some() { 1 } else { 5 };
    let split = ["as it is", "percent", "base64", "gzip in base64"];
    for version in VERSIONS {
        let url = stage.url(version, "/");
        for (turn, encoding) in encodings::ALL.iter().enumerate() {
            let body = (encoding.write)(&token);
            let seen = fate(&stage, version, in_pieces(&url, body.chunks(1))).await;
            assert_eq!(seen, Fate::Seen, "{} byte by byte over {version:?}", encoding.name);
            let splits = (1 + turn % step..body.len()).step_by(step);
            for at in splits.filter(|_| split.contains(&encoding.name)) {
                let pieces = [&body[..at], &body[at..]].into_iter();
                let seen = fate(&stage, version, in_pieces(&url, pieces)).await;
                assert_eq!(seen, Fate::Seen, "{} split at {at} over {version:?}", encoding.name);
            }
        }
    }
}
