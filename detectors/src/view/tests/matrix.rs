//! The evasion matrix: a token in every encoding and in every pair of them, whole, byte by byte, and split at every byte.

use super::*;

/// One way to write bytes, and what it needs of them.
struct Dress {
    view: &'static str,
    /// Whether it keeps only ASCII as it is.
    is_of_text: bool,
    /// Whether what it makes is ASCII.
    makes_text: bool,
    /// Whether it is recognised only inside another encoding: its magic is too short to look for everywhere.
    is_weak: bool,
    write: fn(&[u8]) -> Vec<u8>,
}

fn each(bytes: &[u8], write: impl Fn(u8) -> String) -> Vec<u8> {
    bytes.iter().flat_map(|byte| write(*byte).into_bytes()).collect()
}

fn base64url(bytes: &[u8]) -> Vec<u8> {
    base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_").into_bytes()
}

fn wrapped(bytes: &[u8]) -> Vec<u8> {
    base64(bytes).as_bytes().chunks(24).collect::<Vec<_>>().join(&b"\r\n"[..])
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it")
}

fn zip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    let body = coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it");
    [&b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt"[..], &body].concat()
}

fn dresses() -> Vec<Dress> {
    let dress =
        |view, is_of_text, makes_text, write| Dress { view, is_of_text, makes_text, is_weak: false, write };
    vec![
        dress("percent", false, true, |bytes| each(bytes, |byte| format!("%{byte:02x}"))),
        dress("json", true, true, |bytes| each(bytes, |byte| format!("\\u{byte:04x}"))),
        dress("html", true, true, |bytes| each(bytes, |byte| format!("&#{byte};"))),
        dress("quoted-printable", false, true, |bytes| each(bytes, |byte| format!("={byte:02X}"))),
        dress("utf-16", true, false, |bytes| bytes.iter().flat_map(|byte| [*byte, 0]).collect()),
        dress("invisible", true, false, |bytes| each(bytes, |byte| format!("{}\u{200b}", char::from(byte)))),
        dress("fullwidth", true, false, |bytes| {
            each(bytes, |byte| {
                char::from_u32(u32::from(byte) + 0xfee0)
                    .filter(|_| byte > b' ')
                    .unwrap_or(char::from(byte))
                    .to_string()
            })
        }),
        dress("base64", false, true, |bytes| base64(bytes).into_bytes()),
        dress("base64", false, true, base64url),
        dress("base64", false, true, wrapped),
        dress("hex", false, true, |bytes| each(bytes, |byte| format!("{byte:02x}"))),
        dress("gzip", false, false, gzip),
        dress("zstd", false, false, |bytes| zstd::bulk::compress(bytes, 3).expect("it compresses")),
        dress("zip", false, false, zip),
        Dress { is_weak: true, ..dress("zlib", false, false, zlib) },
    ]
}

/// Scans `body` and says whether the token is seen whole, by `view` or in a way as good.
fn is_found(rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]) -> bool {
    scan(rules, body, sizes).iter().any(|(_, id, .., text)| id == "pat" && text == PAT)
}

#[test]
fn every_encoding_and_every_pair_is_seen_through_however_it_is_cut() {
    let rules = rules();
    let dresses = dresses();
    let text = format!("token: {PAT}; and a few words more");
    let mut missed = Vec::new();
    for inner in &dresses {
        let once = (inner.write)(text.as_bytes());
        if !inner.is_weak && ![&[][..], &[1]].iter().all(|sizes| is_found(&rules, &once, sizes)) {
            missed.push(inner.view.to_owned());
        }
        for split in 1..once.len() {
            if !inner.is_weak && !is_found(&rules, &once, &[split, once.len()]) {
                missed.push(format!("{} split at {split}", inner.view));
            }
        }
        for outer in dresses.iter().filter(|outer| !outer.is_weak && (inner.makes_text || !outer.is_of_text))
        {
            let weak_needs_base64 = inner.is_weak && outer.view != "base64";
            // What is decoded is looked into where it reads as ASCII.
            if ["base64", "hex"].contains(&outer.view) && ["invisible", "fullwidth"].contains(&inner.view) {
                continue;
            }
            let twice = (outer.write)(&once);
            if !weak_needs_base64 && ![&[][..], &[1]].iter().all(|sizes| is_found(&rules, &twice, sizes)) {
                missed.push(format!("{}>{}", outer.view, inner.view));
            }
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}
