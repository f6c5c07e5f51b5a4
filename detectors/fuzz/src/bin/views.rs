//! Encoded, packed and damaged bodies in random pieces: what is seen does not depend on the pieces, and behind each
//! coding it is what the coding's own library gives back at once.
#![no_main]

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use arbitrary::{Result, Unstructured};
use decant_detectors::{RuleSet, ViewLimits};
use decant_detectors_fuzz::{Seen, rules, see, sizes};
use libfuzzer_sys::fuzz_target;

const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ";

static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    rules([
        "ghp_[A-Za-z0-9]{36}",
        r"\b{start-half}AKIA[A-Z2-7]{16}\b{end-half}",
        r"-----BEGIN KEY-----[A-Za-z0-9+/\n]{16,200}-----END",
        r"\b{start-half}[0-9a-f]{32}-us[0-9]{1,2}",
        r"\b{start-half}[0-9]{16}\b{end-half}",
        "(?i)ignore previous instructions",
    ])
});

/// How many streams are open at once is for the pieces to say, so here it bounds nothing.
const LIMITS: ViewLimits =
    ViewLimits { depth: 6, streams: 64, window_bytes: 1 << 20, ratio: 100, ratio_floor_bytes: 1 << 20 };

fuzz_target!(|data: &[u8]| {
    let mut data = Unstructured::new(data);
    let _ = run(&mut data);
});

fn run(data: &mut Unstructured<'_>) -> Result<()> {
    let sizes = sizes(data);
    let coding = data.int_in_range(0..=5u8)?;
    let mut content = content(data)?;
    let mut body = encode(coding, &content);
    // A damaged stream: its library says how far it goes.
    if data.ratio(1, 3)? && !body.is_empty() {
        let at = data.choose_index(body.len())?;
        body[at] ^= data.arbitrary::<u8>()?;
        content = decode(coding, &body);
    }
    let before: Vec<u8> =
        data.choose(&[&b""[..], b": ", b"\x00\x01", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"PK\x03\x04"])?.to_vec();
    let whole = [before, body].concat();
    let seen = see(&RULES, LIMITS, &whole, &[]);
    for sizes in [&sizes[..], &[1]] {
        assert_eq!(see(&RULES, LIMITS, &whole, sizes), seen, "{sizes:?} of {}", whole.escape_ascii());
    }
    let is_in = content.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
    let is_seen = |(_, _, text): &Seen| text == TOKEN.as_bytes();
    // Behind a beginning that looks like another stream, that one may swallow it.
    if is_in && whole.len() < content.len() + 40 + body_overhead(&content) {
        assert!(seen.iter().any(is_seen), "not seen in {} by coding {coding}", whole.escape_ascii());
    }
    Ok(())
}

/// Most bytes that a coding adds to what it holds.
fn body_overhead(content: &[u8]) -> usize {
    content.len() * 6
}

/// Text with the token, whole or in part, and whatever else the data says.
fn content(data: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const PIECES: &[&str] = &[
        TOKEN,
        "ghp_abcdefgh",
        "AKIAABCDEFGHIJKLMNOP",
        " and some words. ",
        "%67hp%5F",
        "\\u0067hp_",
        "&#103;",
        "\\n",
        "Z2hwX2FiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6QUJDREVGR0hJSg==",
        "6768705f6162636465666768",
        "g\0h\0p\0_\0",
        "\u{200b}",
        "data: {\"delta\":{\"text\":\"",
        "\"},{\"text\":\"",
        "\n\n",
        "--b\r\nContent-Transfer-Encoding: base64\r\n\r\n",
        "4111111111111111",
        "=\r\n",
    ];
    let mut content = Vec::new();
    while !data.is_empty() && content.len() < 2048 {
        match data.arbitrary::<u8>()? {
            byte @ 0..=127 => content.extend(PIECES[usize::from(byte) % PIECES.len()].bytes()),
            _ => content.push(data.arbitrary()?),
        }
    }
    Ok(content)
}

fn encode(coding: u8, content: &[u8]) -> Vec<u8> {
    let fast = flate2::Compression::fast();
    match coding {
        0 => content.to_vec(),
        1 => {
            let mut coder = flate2::write::GzEncoder::new(Vec::new(), fast);
            coder.write_all(content).and_then(|()| coder.finish()).expect("memory takes it")
        }
        2 => zstd::bulk::compress(content, 1).expect("memory takes it"),
        3 => {
            let mut coder = flate2::write::DeflateEncoder::new(Vec::new(), fast);
            let body = coder.write_all(content).and_then(|()| coder.finish()).expect("memory takes it");
            [&b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt"[..], &body]
                .concat()
        }
        4 => content.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
        _ => content.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect(),
    }
}

/// What the coding's library gives back before it breaks off, if it says anything.
fn decode(coding: u8, body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut read = |from: &mut dyn Read| {
        // One byte at a time: what came before an error counts.
        let mut byte = [0];
        while matches!(from.read(&mut byte), Ok(1)) {
            content.push(byte[0]);
        }
    };
    match coding {
        1 => read(&mut flate2::read::GzDecoder::new(body)),
        2 => {
            if let Ok(mut decoder) = zstd::stream::read::Decoder::new(body) {
                read(&mut decoder);
            }
        }
        3 if body.len() > 35 && body[..35] == encode(3, b"")[..35] => {
            read(&mut flate2::read::DeflateDecoder::new(&body[35..]));
        }
        _ => {}
    }
    content
}
