//! A small HTTP client over Unix sockets: HTTP/1.0, so that every body ends with its connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The answer's JSON, if its status is the one expected.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends a request and hands out the connection.
pub(crate) fn open(socket: &Path, method: &str, path: &str, body: &[u8]) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(130)))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: allocator\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    Ok(stream)
}

/// Sends a request and reads the whole answer; an error where there is none.
pub(crate) fn try_ask(socket: &Path, method: &str, path: &str, body: &Value) -> std::io::Result<Answer> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let mut all = Vec::new();
    open(socket, method, path, &body)?.read_to_end(&mut all)?;
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status =
        head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(Answer { status, head, body: all[end + 4..].to_vec() })
}

/// The same, where there has to be an answer.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> Answer {
    try_ask(socket, method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// A stream of lines, its head read already.
pub(crate) fn lines(socket: &Path, path: &str) -> impl Iterator<Item = Value> + Send + use<> {
    let stream = open(socket, "GET", path, b"").expect("the server answers");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    reader.lines().map_while(Result::ok).map(|line| serde_json::from_str(&line).expect("a line of JSON"))
}
