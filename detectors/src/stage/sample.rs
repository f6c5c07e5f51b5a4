//! Ordinary traffic in miniature, and how often a probe would stop at it.
//!
//! Counting on a text sees what single byte frequencies miss: that `se` is often followed by `r`. The
//! sample is fixed, so that a set is built alike on every machine.

use super::windows::PROBE;
use crate::byteset::ByteSet;

/// Places of the sample that are counted.
const PLACES: usize = 2048;
const WORDS: usize = PLACES / 64;
/// Weight of bytes without any order beside the sample.
const DISORDER: f32 = 0.3;

/// One bit for each place.
pub(super) type Places = [u64; WORDS];

/// A set of bytes as a nibble shuffle sees it: every low nibble with every high one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nibbles {
    pub(super) low: u16,
    pub(super) high: u16,
}

impl Nibbles {
    pub(super) fn of(set: &ByteSet) -> Self {
        set.iter().fold(Self::default(), |all, byte| Self {
            low: all.low | 1 << (byte & 15),
            high: all.high | 1 << (byte >> 4),
        })
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { low: self.low | other.low, high: self.high | other.high }
    }

    /// The share of all byte values.
    fn share(self) -> f32 {
        f32::from(u8::try_from(self.low.count_ones() * self.high.count_ones()).unwrap_or(u8::MAX)) / 256.0
    }
}

/// By position in a probe and nibble (low ones, then high ones): the places with that nibble there.
pub(super) struct Sample(Box<[[Places; 32]; PROBE]>);

impl Sample {
    pub(super) fn new() -> Self {
        let bytes = bytes();
        let mut rows = Box::new([[[0; WORDS]; 32]; PROBE]);
        for (position, rows) in rows.iter_mut().enumerate() {
            for place in 0..PLACES {
                let byte = usize::from(bytes[place + position]);
                rows[byte & 15][place / 64] |= 1 << (place % 64);
                rows[16 + (byte >> 4)][place / 64] |= 1 << (place % 64);
            }
        }
        Self(rows)
    }
}

/// What a bucket's probes have in common, and where in the sample it would stop.
#[derive(Clone)]
pub(super) struct Stops {
    nibbles: [Nibbles; PROBE],
    /// By position: the places with one of the low nibbles, and with one of the high ones.
    places: [[Places; 2]; PROBE],
}

impl Stops {
    pub(super) fn none() -> Self {
        Self { nibbles: [Nibbles::default(); PROBE], places: [[[0; WORDS]; 2]; PROBE] }
    }

    pub(super) fn add(&mut self, sample: &Sample, probe: &[Nibbles; PROBE]) {
        for (position, nibbles) in probe.iter().enumerate() {
            let rows = &sample.0[position];
            let [low, high] = &mut self.places[position];
            join(low, &rows[..16], nibbles.low);
            join(high, &rows[16..], nibbles.high);
            self.nibbles[position] = self.nibbles[position].union(*nibbles);
        }
    }

    /// How often it stops, in stops a place.
    pub(super) fn often(&self) -> f32 {
        let mut stops = 0u32;
        for word in 0..WORDS {
            let all = self.places.iter().fold(u64::MAX, |all, [low, high]| all & low[word] & high[word]);
            stops += all.count_ones();
        }
        let disorder: f32 = self.nibbles.iter().map(|nibbles| nibbles.share()).product();
        f32::from(u16::try_from(stops).unwrap_or(u16::MAX)) / 2048.0 + DISORDER * disorder
    }
}

fn join(places: &mut Places, rows: &[Places], mut nibbles: u16) {
    while nibbles != 0 {
        let row = &rows[nibbles.trailing_zeros() as usize];
        places.iter_mut().zip(row).for_each(|(places, row)| *places |= row);
        nibbles &= nibbles - 1;
    }
}

const _: () = assert!(PLACES == 2048, "see `often`");

/// The text, then base64 and hexadecimal digits until there is enough.
fn bytes() -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = TEXT.as_bytes().to_vec();
    let mut state = 0x2545_f491u32;
    while bytes.len() < PLACES + PROBE {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let digit = DIGITS[(state >> 8) as usize % 64];
        let hexadecimal = b"0123456789abcdef"[(state >> 8) as usize % 16];
        bytes.push(if bytes.len() % 256 < 160 { digit } else { hexadecimal });
    }
    bytes
}

const TEXT: &str = r#"{"id":90211,"user":{"name":"Jo Miller","email":null,"role":"admin"},"createdAt":"2025-02-11T09:14:52Z",
"items":[{"sku":"A-3391","count":2,"price":19.90},{"sku":"B-0417","count":1,"price":4.25}],"status":"pending",
"message":"The service has received the request and will process it as soon as possible.","request_id":
"5f0c2d9e-77b1-4c1a-9a0e-2b8f64d1c3aa","next":"https://api.example.net/v2/orders?page=3&limit=50","ok":true}
POST /v1/chat/completions HTTP/1.1
Content-Type: application/json; charset=utf-8
Accept-Encoding: gzip, deflate, br
User-Agent: python-requests/2.31.0
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Release notes</title>
<link rel="stylesheet" href="/static/css/main.css"></head><body><div class="container"><h1>What is new</h1>
<p>This version improves the performance of the search and fixes several problems that were reported by
customers. Please update your configuration before you restart the application.</p>
<ul><li><a href="/docs/install">Installation</a></li><li>Known issues and their workarounds</li></ul></div>
def main(args): for line in sys.stdin: print(line.strip().split(",")[0]) # return the first field of each row
pub fn parse(input: &str) -> Result<Vec<Token>, Error> { let mut tokens = Vec::new(); while let Some(c) = next() {
2025-02-11 09:14:53,120 INFO [worker-3] request finished in 183 ms with status 200, 5120 bytes sent
key,value,total,2024,17.5,1003,88,451200,0.003,12,9,77,1024,65535
"#;
