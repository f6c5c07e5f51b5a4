//! HTTP/1.1 by hand: a client that writes exactly the bytes it is given and reads what comes, however broken.
//!
//! Invariant: no byte of a request is added, dropped or corrected; a response that was cut is told from one that
//! ended properly.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::origin::{End, Stream};

/// Longest time one read may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest response head, in bytes.
const HEAD_BYTES: usize = 1024 * 1024;

/// One connection spoken by hand.
pub struct Wire {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// The header fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
}

/// A response that was read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its head.
    pub head: Head,
    /// Its body, chunked coding removed.
    pub body: Vec<u8>,
    /// How it ended.
    pub end: End,
}

impl Head {
    /// The first value of the field `name` (in lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let mut parts = lines.next()?.splitn(3, ' ');
        parts.next().filter(|version| version.starts_with("HTTP/1."))?;
        let status = parts.next()?.parse().ok()?;
        let reason = parts.next().unwrap_or_default().to_owned();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        Some(Self { status, reason, headers: headers.collect() })
    }
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Wire {
    /// Speaks on `stream`.
    #[must_use]
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// The stream itself, for what follows HTTP on it.
    ///
    /// # Panics
    /// When bytes were read ahead that nobody has asked for.
    #[must_use]
    pub fn into_stream(self) -> Box<dyn Stream> {
        assert!(self.buffer.is_empty(), "bytes behind the last response: {:?}", self.buffer);
        self.stream
    }

    /// Writes these bytes. False when the peer has closed.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let sent = self.stream.write_all(bytes.as_ref()).await.is_ok();
        sent && self.stream.flush().await.is_ok()
    }

    /// Closes the writing side.
    pub async fn finish_writing(&mut self) {
        let _closed_already = self.stream.shutdown().await;
    }

    /// Reads the head of the next response; none when the peer closed without one.
    pub async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Head::parse(&String::from_utf8_lossy(&head[..end]));
            }
            assert!(self.buffer.len() < HEAD_BYTES, "a response head without an end");
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Sends a request and reads its whole answer; none when the peer closed without one.
    pub async fn exchange(&mut self, request: impl AsRef<[u8]>) -> Option<Answer> {
        let bodyless = request.as_ref().starts_with(b"HEAD ");
        self.send(request).await;
        self.answer(bodyless).await
    }

    /// Reads one whole response. `bodyless`: it answers a HEAD.
    pub async fn answer(&mut self, bodyless: bool) -> Option<Answer> {
        let head = self.head().await?;
        let none = bodyless || head.status == 204 || head.status == 304 || head.status < 200;
        let (body, end) = if none { (Vec::new(), End::Clean) } else { self.body(&head).await };
        Some(Answer { head, body, end })
    }

    /// Reads the body that `head` announces.
    pub async fn body(&mut self, head: &Head) -> (Vec<u8>, End) {
        if head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunked().await;
        }
        match head.header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => self.exactly(length).await,
            None => self.until_close().await,
        }
    }

    /// True when the peer has closed and nothing more comes.
    pub async fn closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill().await
    }

    async fn exactly(&mut self, length: usize) -> (Vec<u8>, End) {
        while self.buffer.len() < length {
            if !self.fill().await {
                return (std::mem::take(&mut self.buffer), End::Cut);
            }
        }
        (self.buffer.drain(..length).collect(), End::Clean)
    }

    async fn until_close(&mut self) -> (Vec<u8>, End) {
        while self.fill().await {}
        (std::mem::take(&mut self.buffer), End::Clean)
    }

    async fn chunked(&mut self) -> (Vec<u8>, End) {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await else { return (body, End::Cut) };
            let size = line.split(';').next().unwrap_or_default().trim();
            let Ok(size) = usize::from_str_radix(size, 16) else { return (body, End::Cut) };
            if size == 0 {
                return (body, self.trailer_section().await);
            }
            let (chunk, end) = self.exactly(size + 2).await;
            body.extend_from_slice(&chunk[..chunk.len().min(size)]);
            if end == End::Cut {
                return (body, end);
            }
        }
    }

    async fn trailer_section(&mut self) -> End {
        loop {
            match self.line().await {
                None => return End::Cut,
                Some(line) if line.is_empty() => return End::Clean,
                Some(_) => {}
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn fill(&mut self) -> bool {
        let mut chunk = vec![0; 16 * 1024];
        let read = timeout(PATIENCE, self.stream.read(&mut chunk)).await;
        // A reset is an end like any other here: what matters is whether the message was whole.
        let count = read.expect("the peer neither answers nor closes").unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..count]);
        count > 0
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cut_body_is_told_from_a_whole_one() {
        let cases: [(&[u8], &[u8], End); 6] = [
            (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc", End::Clean),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", b"abc", End::Cut),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                b"abc",
                End::Clean,
            ),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", b"abc", End::Cut),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nab", b"ab", End::Cut),
            (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc", End::Clean),
        ];
        for (wire, body, end) in cases {
            let (mut near, far) = tokio::io::duplex(1024);
            near.write_all(wire).await.expect("room");
            drop(near);
            let answer = Wire::new(Box::new(far)).answer(false).await.expect("a response");
            assert_eq!(
                (answer.body.as_slice(), answer.end),
                (body, end),
                "{}",
                String::from_utf8_lossy(wire)
            );
        }
    }
}
