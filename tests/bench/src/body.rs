//! The body of the measurement: JSON, random bytes, base64 and HTML in equal parts.

use std::io::{self, Read};

use bytes::Bytes;
use decant_tests::secrets::base64;
use decant_tests::seed::Seeded;

/// Bytes of one kind in a row.
const STRETCH_BYTES: usize = 256 * 1024;

/// Stretches of each kind before the body repeats.
const STRETCHES: usize = 8;

/// Eight mebibytes of mixed content, the same in every run.
pub(crate) fn mixed() -> Bytes {
    let mut seeded = Seeded::from_seed(7);
    let mut body = Vec::new();
    for _stretch in 0..STRETCHES {
        for kind in [json, random, encoded, html] {
            let start = body.len();
            while body.len() < start + STRETCH_BYTES {
                kind(&mut seeded, &mut body);
            }
            body.truncate(start + STRETCH_BYTES);
        }
    }
    body.into()
}

/// Reads `body` over and over, `length` bytes in all.
pub(crate) fn repeated(body: Bytes, length: u64) -> impl Read + Send + Unpin + 'static {
    Repeated { body, at: 0 }.take(length)
}

struct Repeated {
    body: Bytes,
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = (&self.body[self.at..]).read(out)?;
        self.at = (self.at + count) % self.body.len();
        Ok(count)
    }
}

fn word(seeded: &mut Seeded) -> String {
    let length = 3 + seeded.below(7);
    seeded.text(b"etaoinshrdlucmfwypvbgkqjxz", length)
}

fn json(seeded: &mut Seeded, out: &mut Vec<u8>) {
    let (name, text, number) = (word(seeded), [word(seeded), word(seeded)].join(" "), seeded.below(100_000));
    out.extend(
        format!("{{\"id\": {number}, \"{name}\": \"{text}\", \"ok\": true, \"tags\": []}},\n").bytes(),
    );
}

fn random(seeded: &mut Seeded, out: &mut Vec<u8>) {
    out.extend_from_slice(&seeded.next_u64().to_le_bytes());
}

fn encoded(seeded: &mut Seeded, out: &mut Vec<u8>) {
    let mut line = [0; 57];
    seeded.fill(&mut line);
    out.extend(base64(&line).bytes());
    out.push(b'\n');
}

fn html(seeded: &mut Seeded, out: &mut Vec<u8>) {
    let words: Vec<String> = (0..8).map(|_| word(seeded)).collect();
    let (class, text) = (word(seeded), words.join(" "));
    out.extend(format!("<div class=\"{class}\"><a href=\"/{}\">{text}</a></div>\n", words[0]).bytes());
}
