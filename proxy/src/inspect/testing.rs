//! What the tests of this room share: rules, a judge that remembers, limits, encoders, and decoders that are not ours.

use std::io::Write as _;
use std::sync::{Arc, LazyLock, Mutex};

use decant_detectors::{BuildLimits, Rule, RuleSet, RuleSetBuilder, Selection};

use super::verdict::{Counts, Direction, Hit, Judge, Ruling, Trouble, TroubleKind};
use super::windows::Supply;
use super::{BodyPlan, Coding, InspectLimits, Windows};

/// A secret of the rule `token`.
pub(super) const TOKEN: &[u8] = b"ghp_0123456789abcdefghijABCDEFGHIJ012345";

pub(super) fn rules() -> Arc<RuleSet> {
    static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(build_rules);
    RULES.clone()
}

fn build_rules() -> Arc<RuleSet> {
    let rule = |id: &str, pattern: &str, max_length| Rule {
        id: id.into(),
        pattern: pattern.into(),
        max_length,
        ..Rule::default()
    };
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    builder.rule(rule("token", "ghp_[A-Za-z0-9]{36}", None));
    builder.rule(rule("key", "AKIA[A-Z2-7]{16}", None));
    builder.rule(rule("pem", "-----BEGIN KEY-----[a-z\n]{10,600}-----END KEY-----", None));
    builder.rule(rule("open", "xoxb-[0-9a-z]{10,}", Some(200)));
    builder.rule(rule("bounded", r"ASIA[A-Z2-7]{16}\b{end-half}", None));
    builder.rule(rule("endless", "BOX<[a-z]+>", Some(100)));
    Arc::new(builder.build().expect("the rules build"))
}

/// Remembers what it is told, and rules the same on everything.
pub(super) struct Recorder {
    pub(super) ruling: Ruling,
    pub(super) hits: Mutex<Vec<(Hit, Option<Vec<u8>>)>>,
    pub(super) troubles: Mutex<Vec<Trouble>>,
    pub(super) counts: Mutex<Counts>,
}

impl Recorder {
    pub(super) fn new(ruling: Ruling) -> Arc<Self> {
        Arc::new(Self {
            ruling,
            hits: Mutex::default(),
            troubles: Mutex::default(),
            counts: Mutex::default(),
        })
    }

    pub(super) fn trouble_kinds(&self) -> Vec<TroubleKind> {
        self.troubles.lock().unwrap().iter().map(|trouble| trouble.kind.clone()).collect()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    /// View, offset and value of each hit.
    pub(super) fn found(&self) -> Vec<(String, u64, Vec<u8>)> {
        let hits = self.hits.lock().unwrap();
        hits.iter()
            .map(|(hit, value)| {
                let value = value.clone().expect("the value is at hand");
                assert_eq!(hit.length, value.len() as u64);
                (hit.place.view.to_string(), hit.place.offset, value)
            })
            .collect()
    }
}

impl Judge for Recorder {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        self.hits.lock().unwrap().push((hit.clone(), value.map(<[u8]>::to_vec)));
        self.ruling
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        self.troubles.lock().unwrap().push(trouble.clone());
        self.ruling
    }

    fn body_bytes(&self, _: Direction, counts: Counts) {
        let mut total = self.counts.lock().unwrap();
        total.received += counts.received;
        total.scanned += counts.scanned;
        total.released += counts.released;
        total.skipped += counts.skipped;
    }
}

/// The default limits, with a floor and a room for trailers that tests reach sooner.
pub(super) fn limits() -> InspectLimits {
    InspectLimits {
        decode_ratio_floor_bytes: 1 << 20,
        trailer_bytes: 1024,
        ..InspectLimits::from(&decant_config::Limits::default())
    }
}

pub(super) fn plan(codings: &[Coding], judge: &Arc<Recorder>) -> BodyPlan {
    let rules = rules();
    BodyPlan {
        selection: Arc::new(Selection::all(&rules)),
        rules,
        direction: Direction::Request,
        codings: codings.to_vec(),
        strict: false,
        fixed: None,
        limits: limits(),
        windows: Windows::unbounded(),
        seat: None,
        judge: judge.clone(),
    }
}

/// Room for every window of a test.
pub(super) fn supply() -> Arc<Supply> {
    Supply::new(&Windows::unbounded())
}

/// How a test body is coded: the forms of a coding that senders use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Gzip,
    /// Several members.
    Members,
    Zlib,
    RawDeflate,
    Brotli,
    Zstd,
    /// Several frames, skippable ones between them.
    Frames,
    AwsChunked,
}

impl Form {
    pub(super) const ALL: [Self; 8] = [
        Self::Gzip,
        Self::Members,
        Self::Zlib,
        Self::RawDeflate,
        Self::Brotli,
        Self::Zstd,
        Self::Frames,
        Self::AwsChunked,
    ];

    pub(super) fn coding(self) -> Coding {
        match self {
            Self::Gzip | Self::Members => Coding::Gzip,
            Self::Zlib | Self::RawDeflate => Coding::Deflate,
            Self::Brotli => Coding::Brotli,
            Self::Zstd | Self::Frames => Coding::Zstd,
            Self::AwsChunked => Coding::AwsChunked,
        }
    }

    pub(super) fn encode(self, body: &[u8]) -> Vec<u8> {
        match self {
            Self::Gzip => gzip(body),
            Self::Members => body.chunks(700).flat_map(gzip).collect(),
            Self::Zlib => zlib(body),
            Self::RawDeflate => raw_deflate(body),
            Self::Brotli => brotli(body),
            Self::Zstd => zstd(body),
            Self::Frames => {
                let skippable = [&b"\x50\x2a\x4d\x18\x04\0\0\0meta"[..], &[]];
                let frames = body.chunks(700).map(|part| zstd::bulk::compress(part, 3).expect("zstd"));
                frames.zip(skippable.iter().cycle()).flat_map(|(f, s)| [f, s.to_vec()].concat()).collect()
            }
            Self::AwsChunked => aws_chunked(body, 300),
        }
    }

    /// A push decoder by somebody else; `None` where we know of none.
    pub(super) fn oracle(self) -> Option<Oracle> {
        Some(match self {
            Self::Gzip => Oracle::Gzip(flate2::write::GzDecoder::new(Vec::new())),
            Self::Zlib => Oracle::Zlib(flate2::write::ZlibDecoder::new(Vec::new())),
            Self::RawDeflate => Oracle::Deflate(flate2::write::DeflateDecoder::new(Vec::new())),
            Self::Brotli => Oracle::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096))),
            Self::Zstd | Self::Frames => {
                Oracle::Zstd(zstd::stream::write::Decoder::new(Vec::new()).expect("zstd"))
            }
            Self::Members | Self::AwsChunked => return None,
        })
    }
}

/// A receiver that decodes all it can from what it has got.
pub(super) enum Oracle {
    Gzip(flate2::write::GzDecoder<Vec<u8>>),
    Zlib(flate2::write::ZlibDecoder<Vec<u8>>),
    Deflate(flate2::write::DeflateDecoder<Vec<u8>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Decoder<'static, Vec<u8>>),
}

impl Oracle {
    /// Takes the next wire bytes; returns all that is decoded by now.
    pub(super) fn push(&mut self, wire: &[u8]) -> &[u8] {
        match self {
            Self::Gzip(decoder) => {
                decoder.write_all(wire).and_then(|()| decoder.flush()).expect("gzip");
                decoder.get_ref()
            }
            Self::Zlib(decoder) => {
                decoder.write_all(wire).and_then(|()| decoder.flush()).expect("zlib");
                decoder.get_ref()
            }
            Self::Deflate(decoder) => {
                decoder.write_all(wire).and_then(|()| decoder.flush()).expect("deflate");
                decoder.get_ref()
            }
            Self::Brotli(decoder) => {
                decoder.write_all(wire).and_then(|()| decoder.flush()).expect("brotli");
                decoder.get_ref()
            }
            Self::Zstd(decoder) => {
                decoder.write_all(wire).and_then(|()| decoder.flush()).expect("zstd");
                decoder.get_ref()
            }
        }
    }
}

pub(super) fn gzip(body: &[u8]) -> Vec<u8> {
    gzip_flushed(&[body]).concat()
}

/// Each part flushed to a byte boundary, as a server of events does; the last piece ends the stream.
pub(super) fn gzip_flushed(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut pieces = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        encoder.write_all(part).expect("gzip");
        if at + 1 < parts.len() {
            encoder.flush().expect("gzip");
            pieces.push(std::mem::take(encoder.get_mut()));
        }
    }
    pieces.push(encoder.finish().expect("gzip"));
    pieces
}

pub(super) fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).expect("zlib");
    encoder.finish().expect("zlib")
}

pub(super) fn raw_deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).expect("deflate");
    encoder.finish().expect("deflate")
}

pub(super) fn brotli(body: &[u8]) -> Vec<u8> {
    brotli_flushed(&[body]).concat()
}

/// Each part flushed; the last piece ends the stream.
pub(super) fn brotli_flushed(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    let mut ends = Vec::new();
    for part in parts {
        encoder.write_all(part).and_then(|()| encoder.flush()).expect("brotli");
        ends.push(encoder.get_ref().len());
    }
    pieces(&encoder.into_inner(), &ends)
}

pub(super) fn zstd(body: &[u8]) -> Vec<u8> {
    zstd_flushed(&[body]).concat()
}

/// Each part flushed; the last piece ends the stream.
pub(super) fn zstd_flushed(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("zstd");
    let mut ends = Vec::new();
    for part in parts {
        encoder.write_all(part).and_then(|()| encoder.flush()).expect("zstd");
        ends.push(encoder.get_ref().len());
    }
    pieces(&encoder.finish().expect("zstd"), &ends)
}

/// The pieces of `wire` between these ends; the last piece goes to the end of all.
fn pieces(wire: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let last = ends.len() - 1;
    starts
        .zip(ends.iter().enumerate())
        .map(|(start, (at, end))| wire[start..if at == last { wire.len() } else { *end }].to_vec())
        .collect()
}

/// Chunks of `size` bytes with signatures, as an S3 client sends them.
pub(super) fn aws_chunked(body: &[u8], size: usize) -> Vec<u8> {
    let signature = "0".repeat(64);
    let mut wire = Vec::new();
    for chunk in body.chunks(size).chain([&[][..]]) {
        write!(wire, "{:x};chunk-signature={signature}\r\n", chunk.len()).expect("a vector takes it");
        if !chunk.is_empty() {
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
    }
    write!(wire, "x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:{signature}\r\n\r\n")
        .expect("a vector takes it");
    wire
}

/// Cuts `body` into chunks of these sizes, over and over.
pub(super) fn cut<'a>(body: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = body;
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at(rest.len().min(*size));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}
