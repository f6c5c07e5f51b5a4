//! Bodies for both ends: fixed, generated without memory, coded on the fly, fed by hand, and broken off on purpose.
//!
//! Invariant: a body of any length costs one chunk of memory.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

use crate::seed::Seeded;

/// Bytes per chunk of a generated body.
const CHUNK_BYTES: usize = 64 * 1024;

/// Words in the table that generated text is drawn from.
const WORDS: usize = 256;

/// Bytes of one word of generated text, its space included.
const WORD_BYTES: usize = 5;

/// The body type of every request and response that the harness makes.
pub type TestBody = UnsyncBoxBody<Bytes, Broken>;

/// The sender of a body broke it off on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the sender broke the body off")
    }
}

impl std::error::Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// No body.
#[must_use]
pub fn empty() -> TestBody {
    Empty::new().map_err(Broken::from).boxed_unsync()
}

/// A body of known length.
pub fn full(bytes: impl Into<Bytes>) -> TestBody {
    Full::new(bytes.into()).map_err(Broken::from).boxed_unsync()
}

/// A body that is read from `source` chunk by chunk; its length is not announced.
pub fn streamed(source: impl Read + Send + Unpin + 'static) -> TestBody {
    Streamed { source }.boxed_unsync()
}

/// A body of known `length` that is read from `source` chunk by chunk.
pub fn sized(source: impl Read + Send + Unpin + 'static, length: u64) -> TestBody {
    Sized { inner: Streamed { source }, left: length }.boxed_unsync()
}

/// A body that is `block`, so many times over, without a copy; its length is announced.
#[must_use]
pub fn looped(block: Bytes, times: u64) -> TestBody {
    Looped { left: block.len() as u64 * times, rest: Bytes::new(), block }.boxed_unsync()
}

/// A content coding that the harness can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// None.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950, as the `deflate` coding of RFC 9110.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Every coding, identity first.
    pub const ALL: [Self; 5] = [Self::Identity, Self::Gzip, Self::Deflate, Self::Brotli, Self::Zstd];

    /// The name in `Content-Encoding`; none for identity.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Deflate => Some("deflate"),
            Self::Brotli => Some("br"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// A reader of the coded form of `source`.
    pub fn encode(self, source: impl Read + Send + Unpin + 'static) -> Box<dyn Read + Send + Unpin> {
        match self {
            Self::Identity => Box::new(source),
            Self::Gzip => Box::new(flate2::read::GzEncoder::new(source, Compression::fast())),
            Self::Deflate => Box::new(flate2::read::ZlibEncoder::new(source, Compression::fast())),
            Self::Brotli => Box::new(brotli::CompressorReader::new(source, CHUNK_BYTES, 1, 18)),
            Self::Zstd => Box::new(zstd::stream::read::Encoder::new(source, 1).expect("a zstd encoder")),
        }
    }

    /// The coded form of `bytes`.
    #[must_use]
    pub fn encode_all(self, bytes: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        self.encode(io::Cursor::new(bytes.to_vec())).read_to_end(&mut coded).expect("coding cannot fail");
        coded
    }
}

/// Harmless text of any length, with other bytes planted in it. It compresses about as well as prose does.
#[derive(Debug)]
pub struct Text {
    words: Box<[[u8; WORD_BYTES]; WORDS]>,
    seeded: Seeded,
    at: u64,
    length: u64,
    planted: Option<(u64, Vec<u8>)>,
}

impl Text {
    /// `length` bytes of text drawn from `seeded`.
    #[must_use]
    pub fn new(seeded: Seeded, length: u64) -> Self {
        Self { words: word_table(), seeded, at: 0, length, planted: None }
    }

    /// Puts `bytes` at `offset`, over the text that would stand there. They must fit.
    #[must_use]
    pub fn plant(mut self, offset: u64, bytes: &[u8]) -> Self {
        assert!(offset + bytes.len() as u64 <= self.length, "the planted bytes end within the text");
        self.planted = Some((offset, bytes.to_vec()));
        self
    }

    /// Puts `bytes` near the far end.
    #[must_use]
    pub fn plant_at_end(self, bytes: &[u8]) -> Self {
        let offset = self.length - bytes.len() as u64 - 64;
        self.plant(offset, bytes)
    }

    fn overlay(&self, out: &mut [u8]) {
        let Some((offset, bytes)) = &self.planted else { return };
        let end = self.at + out.len() as u64;
        let from = (*offset).max(self.at);
        let to = (offset + bytes.len() as u64).min(end);
        if from < to {
            let part = &bytes[index(from - offset)..index(to - offset)];
            out[index(from - self.at)..index(to - self.at)].copy_from_slice(part);
        }
    }
}

impl Read for Text {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let wanted = out.len().min(left);
        // Whole groups of words, except at the end, so that the text depends on the seed alone.
        let group = 8 * WORD_BYTES;
        let taken = if wanted == left { wanted } else { (wanted / group).max(1) * group };
        let taken = taken.min(wanted);
        for part in out[..taken].chunks_mut(group) {
            let mut spelled = [b' '; 8 * WORD_BYTES];
            for (word, byte) in spelled.chunks_mut(WORD_BYTES).zip(self.seeded.next_u64().to_le_bytes()) {
                word.copy_from_slice(&self.words[usize::from(byte)]);
            }
            part.copy_from_slice(&spelled[..part.len()]);
        }
        self.overlay(&mut out[..taken]);
        self.at += taken as u64;
        Ok(taken)
    }
}

/// The sending half of a body that is fed by hand.
#[derive(Clone, Debug)]
pub struct Feed(mpsc::Sender<Result<Frame<Bytes>, Broken>>);

/// A body fed by hand through its [`Feed`]; it ends cleanly when the last feed is dropped.
#[must_use]
pub fn fed() -> (Feed, TestBody) {
    let (sender, receiver) = mpsc::channel(1);
    (Feed(sender), Fed(receiver).boxed_unsync())
}

impl Feed {
    /// Sends one frame of data. False when nobody reads any more.
    pub async fn data(&self, bytes: impl Into<Bytes> + Send) -> bool {
        self.0.send(Ok(Frame::data(bytes.into()))).await.is_ok()
    }

    /// Sends the trailers. False when nobody reads any more.
    pub async fn trailers(&self, trailers: HeaderMap) -> bool {
        self.0.send(Ok(Frame::trailers(trailers))).await.is_ok()
    }

    /// Breaks the body off: HTTP/1 closes without a clean end, HTTP/2 resets the stream.
    pub async fn break_off(self) {
        let _nobody_reads = self.0.send(Err(Broken)).await;
    }
}

struct Fed(mpsc::Receiver<Result<Frame<Bytes>, Broken>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0.poll_recv(context)
    }
}

struct Streamed<R> {
    source: R,
}

impl<R: Read + Unpin> Body for Streamed<R> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = self.source.read(&mut chunk).map_err(|_| Broken);
        Poll::Ready(match count {
            Ok(0) => None,
            Ok(count) => {
                chunk.truncate(count);
                Some(Ok(Frame::data(chunk.into())))
            }
            Err(broken) => Some(Err(broken)),
        })
    }
}

struct Looped {
    block: Bytes,
    rest: Bytes,
    left: u64,
}

impl Body for Looped {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.rest.is_empty() {
            self.rest = self.block.clone();
        }
        let count = self.rest.len().min(CHUNK_BYTES);
        self.left -= count as u64;
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(count)))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.left)
    }
}

struct Sized<R> {
    inner: Streamed<R>,
    left: u64,
}

impl<R: Read + Unpin> Body for Sized<R> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.left -= frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.left)
    }
}

fn word_table() -> Box<[[u8; WORD_BYTES]; WORDS]> {
    let (consonants, vowels) = (b"bdfgklmnprstvwxz", b"aeio");
    let mut words = Box::new([*b"____ "; WORDS]);
    for (number, word) in words.iter_mut().enumerate() {
        word[0] = consonants[number % 16];
        word[1] = vowels[(number / 16) % 4];
        word[2] = consonants[(number / 3) % 16];
        word[3] = vowels[(number / 64) % 4];
    }
    words
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset within a chunk")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_by(mut source: Text, chunk: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; chunk]);
        loop {
            let count = source.read(&mut buffer).expect("text never fails");
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    #[test]
    fn planted_bytes_stand_where_they_were_put_whatever_the_chunk() {
        for chunk in [40, 64, 1000, CHUNK_BYTES] {
            let text = Text::new(Seeded::from_seed(3), 10_000).plant(997, b"here it is");
            let all = read_by(text, chunk);
            assert_eq!(all.len(), 10_000);
            assert_eq!(&all[997..1007], b"here it is", "chunk {chunk}");
        }
    }

    #[test]
    fn the_text_depends_on_its_seed_alone() {
        let whole = read_by(Text::new(Seeded::from_seed(9), 5_000), 5_000);
        assert_eq!(read_by(Text::new(Seeded::from_seed(9), 5_000), 333), whole);
        assert_ne!(read_by(Text::new(Seeded::from_seed(8), 5_000), 5_000), whole);
    }
}
