//! Encodings that hide a secret: one way to write bytes each, as the table of the README names them.
//!
//! Invariant: each is what a common library or tool writes, so that whoever receives it can read it back.

use std::io::Write as _;

use crate::secrets::{base64, base64url};

/// One way to write bytes.
#[derive(Clone, Copy)]
pub struct Encoding {
    /// Its name in the README.
    pub name: &'static str,
    /// Writes bytes in it.
    pub write: fn(&[u8]) -> Vec<u8>,
}

/// Every encoding that is undone.
pub const ALL: &[Encoding] = &[
    Encoding { name: "as it is", write: <[u8]>::to_vec },
    Encoding { name: "percent", write: percent },
    Encoding { name: "percent, twice", write: |bytes| percent(&percent(bytes)) },
    Encoding { name: "JSON `\\u`", write: |bytes| each(bytes, |byte| format!("\\u{byte:04x}")) },
    Encoding { name: "HTML", write: |bytes| each(bytes, |byte| format!("&#{byte};")) },
    Encoding { name: "quoted-printable", write: |bytes| each(bytes, |byte| format!("={byte:02X}")) },
    Encoding { name: "UTF-16", write: |bytes| bytes.iter().flat_map(|byte| [*byte, 0]).collect() },
    Encoding {
        name: "invisible characters",
        write: |bytes| each(bytes, |byte| format!("{}\u{200b}", char::from(byte))),
    },
    Encoding { name: "fullwidth", write: fullwidth },
    Encoding { name: "base64", write: |bytes| base64(bytes).into_bytes() },
    Encoding { name: "base64url", write: |bytes| base64url(bytes).into_bytes() },
    Encoding { name: "base64 in lines", write: in_lines },
    Encoding { name: "base64 of base64", write: |bytes| base64(base64(bytes).as_bytes()).into_bytes() },
    Encoding { name: "hex", write: |bytes| each(bytes, |byte| format!("{byte:02x}")) },
    Encoding { name: "gzip", write: gzip },
    Encoding { name: "zstd", write: |bytes| zstd::bulk::compress(bytes, 3).expect("memory takes it") },
    Encoding { name: "zip", write: zip },
    Encoding { name: "gzip in base64", write: |bytes| base64(&gzip(bytes)).into_bytes() },
    Encoding { name: "zlib in base64", write: |bytes| base64(&zlib(bytes)).into_bytes() },
];

fn each(bytes: &[u8], write: impl Fn(u8) -> String) -> Vec<u8> {
    bytes.iter().flat_map(|byte| write(*byte).into_bytes()).collect()
}

/// Every byte percent-encoded.
fn percent(bytes: &[u8]) -> Vec<u8> {
    each(bytes, |byte| format!("%{byte:02x}"))
}

fn fullwidth(bytes: &[u8]) -> Vec<u8> {
    let wide = |byte: u8| char::from_u32(u32::from(byte) + 0xfee0).filter(|_| byte.is_ascii_graphic());
    each(bytes, |byte| wide(byte).unwrap_or(char::from(byte)).to_string())
}

fn in_lines(bytes: &[u8]) -> Vec<u8> {
    base64(bytes).as_bytes().chunks(24).collect::<Vec<_>>().join(&b"\r\n"[..])
}

/// One gzip member.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it")
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it")
}

/// The first entry of an archive, as a writer makes it that does not know the length beforehand.
fn zip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    let body = coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it");
    [&b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt"[..], &body].concat()
}
