//! Content codings: what a `Content-Encoding` says lies between the wire and the content (RFC 9110 §8.4).
//!
//! Invariant: every coding in a parsed list has a decoder, and the list is no longer than the limit. What is not known
//! is a [`TroubleKind`], never skipped.
//!
//! Place in the path: the plan of a body is made from this list; [`super::decode`] has the decoders.

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::verdict::{Blocked, Direction, Judge, Ruling, Step, Trouble, TroubleKind};

/// Bytes of an unknown coding's name that go into a message.
const NAME_SHOWN_MAX: usize = 40;

/// A content coding the gateway decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// RFC 1952, any number of members; also under its old name `x-gzip`.
    Gzip,
    /// RFC 1950 or, from senders who misread the name, bare RFC 1951.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878, with the window limit of RFC 9659.
    Zstd,
    /// The chunk framing inside signed S3 uploads.
    AwsChunked,
}

impl Coding {
    /// The coding a name stands for, in any case.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        const NAMES: [(&str, Coding); 6] = [
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("br", Coding::Brotli),
            ("zstd", Coding::Zstd),
            ("aws-chunked", Coding::AwsChunked),
        ];
        NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, coding)| *coding)
    }

    /// How a finding inside this coding names it.
    pub(crate) const fn step(self) -> Step {
        match self {
            Self::Gzip => Step::Gzip,
            Self::Deflate => Step::Deflate,
            Self::Brotli => Step::Brotli,
            Self::Zstd => Step::Zstd,
            Self::AwsChunked => Step::AwsChunked,
        }
    }
}

/// The codings of a message, in the order in which they have to be undone: outermost first. Empty for a body that is
/// not coded. At most `layers_max` codings are accepted.
pub(crate) fn parse_codings(headers: &HeaderMap, layers_max: usize) -> Result<Vec<Coding>, TroubleKind> {
    let mut codings = Vec::new();
    for field in headers.get_all(CONTENT_ENCODING) {
        let text = field.to_str().map_err(|_| unknown(&String::from_utf8_lossy(field.as_bytes())))?;
        for name in text.split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            codings.push(Coding::from_name(name).ok_or_else(|| unknown(name))?);
            if codings.len() > layers_max {
                return Err(TroubleKind::CodingLayers);
            }
        }
    }
    codings.reverse();
    aws_chunked_outermost(&mut codings)?;
    Ok(codings)
}

/// The codings of a body, known from its head, as [`parse_codings`] returns them. Where they cannot all be undone and the
/// judge lets the body pass, its bytes are scanned as they come.
pub(crate) fn codings_of_body(
    headers: &HeaderMap,
    direction: Direction,
    layers_max: usize,
    judge: &dyn Judge,
) -> Result<Vec<Coding>, Blocked> {
    parse_codings(headers, layers_max).or_else(|kind| {
        let trouble = Trouble::of_body(direction, kind);
        match judge.trouble(&trouble) {
            Ruling::Pass => Ok(Vec::new()),
            Ruling::Redact | Ruling::Block => Err(Blocked::Trouble(trouble)),
        }
    })
}

/// S3 names its chunk framing first although it lies around all other codings, so it is undone first wherever it stands.
fn aws_chunked_outermost(codings: &mut [Coding]) -> Result<(), TroubleKind> {
    if codings.iter().filter(|coding| **coding == Coding::AwsChunked).count() > 1 {
        return Err(TroubleKind::Broken("aws-chunked is named twice"));
    }
    if let Some(at) = codings.iter().position(|coding| *coding == Coding::AwsChunked) {
        codings[..=at].rotate_right(1);
    }
    Ok(())
}

fn unknown(name: &str) -> TroubleKind {
    let shown: String = name.chars().filter(char::is_ascii_graphic).take(NAME_SHOWN_MAX).collect();
    TroubleKind::UnknownCoding(shown.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::Coding::{AwsChunked, Brotli, Deflate, Gzip, Zstd};
    use super::*;

    fn parse(fields: &[&[u8]]) -> Result<Vec<Coding>, TroubleKind> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(CONTENT_ENCODING, HeaderValue::from_bytes(field).expect("a field value"));
        }
        parse_codings(&headers, 3)
    }

    #[test]
    fn codings_are_undone_from_the_last_to_the_first() {
        let cases: &[(&[&[u8]], &[Coding])] = &[
            (&[], &[]),
            (&[b""], &[]),
            (&[b"identity"], &[]),
            (&[b"GZip"], &[Gzip]),
            (&[b"x-gzip"], &[Gzip]),
            (&[b"gzip, br"], &[Brotli, Gzip]),
            (&[b"gzip,,\tidentity , ZSTD"], &[Zstd, Gzip]),
            (&[b"deflate", b"br"], &[Brotli, Deflate]),
            (&[b"gzip, gzip, gzip"], &[Gzip, Gzip, Gzip]),
            (&[b"aws-chunked"], &[AwsChunked]),
            (&[b"aws-chunked,gzip"], &[AwsChunked, Gzip]),
            (&[b"gzip,aws-chunked"], &[AwsChunked, Gzip]),
            (&[b"aws-chunked,gzip,br"], &[AwsChunked, Brotli, Gzip]),
        ];
        for (fields, expected) in cases {
            assert_eq!(parse(fields).as_deref(), Ok(*expected), "{fields:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_trouble() {
        let unknown = |name: &str| TroubleKind::UnknownCoding(name.into());
        let cases: &[(&[&[u8]], TroubleKind)] = &[
            (&[b"utf-8"], unknown("utf-8")),
            (&[b"none"], unknown("none")),
            (&[b"gzip, compress"], unknown("compress")),
            (&[b"dcb"], unknown("dcb")),
            (&[b"gzip;q=1"], unknown("gzip;q=1")),
            (&[b"\xffgzip"], unknown("gzip")),
            (&[b"gzip,gzip,gzip,gzip"], TroubleKind::CodingLayers),
            (&[b"gzip,gzip", b"br,br"], TroubleKind::CodingLayers),
            (&[b"aws-chunked,aws-chunked"], TroubleKind::Broken("aws-chunked is named twice")),
        ];
        for (fields, expected) in cases {
            assert_eq!(parse(fields).as_ref(), Err(expected), "{fields:?}");
        }
    }
}
