//! Ordinary traffic in miniature, and how often a probe would stop at it.
//!
//! Counting on a text sees what single byte frequencies miss: that `se` is often followed by `r`. The
//! sample is fixed, so that a set is built alike on every machine.

use super::pairs::{PAIRS, PairSet, hash};

/// Places of the sample that are counted.
const PLACES: u32 = 2048;
const WORDS: usize = PLACES as usize / 64;
/// Weight of bytes without any order beside the sample.
const DISORDER: f32 = 0.3;

/// One bit for each place.
type Places = [u64; WORDS];

/// By pair: the places where it stands.
pub(super) struct Sample(Box<[Places; 128]>);

impl Sample {
    pub(super) fn new() -> Self {
        let bytes = bytes();
        let mut rows = Box::new([[0; WORDS]; 128]);
        for place in 0..PLACES as usize {
            let pair = usize::from(hash(bytes[place], bytes[place + 1]) & 127);
            rows[pair][place / 64] |= 1 << (place % 64);
        }
        Self(rows)
    }

    fn places(&self, set: PairSet) -> Places {
        if set.is_full() {
            return [u64::MAX; WORDS];
        }
        let mut all = [0; WORDS];
        for pair in set.iter() {
            all.iter_mut().zip(&self.0[pair]).for_each(|(all, row)| *all |= row);
        }
        all
    }
}

/// What a bucket's probes have in common, and where in the sample it would stop.
#[derive(Clone)]
pub(super) struct Stops {
    pairs: [PairSet; PAIRS],
    /// By position: the places whose pair is allowed there.
    places: [Places; PAIRS],
}

impl Stops {
    pub(super) fn new(sample: &Sample, pairs: [PairSet; PAIRS]) -> Self {
        Self { pairs, places: pairs.map(|set| sample.places(set)) }
    }

    pub(super) fn joined(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for position in 0..PAIRS {
            let (mine, others) = (&mut all.places[position], &other.places[position]);
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine |= other);
            all.pairs[position] = all.pairs[position].union(other.pairs[position]);
        }
        all
    }

    /// How often it stops, in stops a place. What the sample is too short to show is estimated as if
    /// pairs came independently, so that probes do not gather in one bucket for nothing.
    pub(super) fn often(&self) -> f32 {
        let mut stops = 0;
        for word in 0..WORDS - 1 {
            let mut all = u64::MAX;
            for (position, places) in self.places.iter().enumerate() {
                // The pair at a later position begins so many places further on.
                let next =
                    places[word + 1].checked_shl(64 - u32::try_from(position).unwrap_or(0)).unwrap_or(0);
                all &= places[word] >> position | next;
            }
            stops += all.count_ones();
        }
        let share = |places: &Places| {
            let ones: u32 = places.iter().map(|word| word.count_ones()).sum();
            float(ones) / float(PLACES)
        };
        let independent: f32 = self.places.iter().map(share).product();
        let disorder: f32 = self.pairs.iter().map(|pairs| pairs.share()).product();
        float(stops) / float(PLACES) + independent + DISORDER * disorder
    }
}

/// A small count as a number to reckon with.
pub(super) fn float(count: u32) -> f32 {
    f32::from(u16::try_from(count).unwrap_or(u16::MAX))
}

/// The text, then base64 and hexadecimal digits until there is enough.
fn bytes() -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = TEXT.as_bytes().to_vec();
    let mut state = 0x2545_f491u32;
    while bytes.len() < PLACES as usize + 1 {
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
