//! Bodies to scan, made from a fixed seed: ordinary ones, and ones that aim at the engine.

use decant_detectors::{AnchorInfo, RuleSet};

/// Bytes of a part.
const PART: usize = 4 << 20;

const WORDS: [&str; 48] = [
    "the", "of", "and", "account", "page", "request", "answer", "token", "data", "user", "with", "key",
    "time", "customer", "order", "status", "value", "system", "error", "is", "in", "to", "for", "on", "name",
    "list", "result", "skip", "asset", "sky", "pattern", "public", "private", "https", "cloud", "access",
    "secret", "state", "report", "world", "market", "price", "detail", "image", "link", "content",
    "password", "api",
];
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Numbers that do not change from run to run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 20) % limit
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[usize::try_from(self.below(list.len() as u64)).expect("a place in the list")]
    }

    fn words(&mut self, count: usize) -> String {
        (0..count).map(|_| self.pick(&WORDS)).collect::<Vec<_>>().join(" ")
    }

    fn base64(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(BASE64[usize::try_from(self.below(64)).expect("small")])).collect()
    }
}

fn json(noise: &mut Noise) -> String {
    format!(
        "{{\"id\":{},\"{}_{}\":\"{}\",\"at\":\"2024-{:02}-{:02}T{:02}:{:02}:00Z\",\"hash\":\"{:016x}-{:04x}\",\
         \"url\":\"https://{}.example.com/{}/{}\",\"score\":{}.5,\"tags\":[\"{}\",null,true]}}\n",
        noise.below(1 << 40),
        noise.pick(&WORDS),
        noise.pick(&WORDS),
        noise.words(5),
        noise.below(12) + 1,
        noise.below(28) + 1,
        noise.below(24),
        noise.below(60),
        noise.next(),
        noise.below(1 << 16),
        noise.pick(&WORDS),
        noise.pick(&WORDS),
        noise.below(100_000),
        noise.below(97),
        noise.pick(&WORDS)
    )
}

fn html(noise: &mut Noise) -> String {
    format!(
        "<div class=\"{}-box\"><p>{}</p><a href=\"/{}?id={}\">{}</a> &amp; {}</div>\n",
        noise.pick(&WORDS),
        noise.words(30),
        noise.pick(&WORDS),
        noise.below(1 << 20),
        noise.words(2),
        noise.words(3)
    )
}

fn numbers(noise: &mut Noise) -> String {
    let number = |noise: &mut Noise| match noise.below(4) {
        0 => format!("{}", noise.below(1000)),
        1 => format!("{}.{:02}", noise.below(100_000), noise.below(100)),
        2 => format!("{}", noise.below(1 << 33)),
        _ => format!("{:016}", noise.below(10_000_000_000_000_000)),
    };
    (0..10).map(|_| number(noise)).collect::<Vec<_>>().join(",") + "\n"
}

/// Lines until the part is full.
fn lines(mut line: impl FnMut() -> String) -> Vec<u8> {
    let mut body = Vec::with_capacity(PART + 4096);
    while body.len() < PART {
        body.extend_from_slice(line().as_bytes());
    }
    body
}

/// Every literal that the pack starts from.
fn literals(rules: &RuleSet) -> Vec<String> {
    let anchors = rules.ids().map(|id| rules.info(id).anchor);
    let literals = anchors.filter_map(|anchor| match anchor {
        AnchorInfo::Literals(literals) => Some(literals),
        AnchorInfo::Classes(_) => None,
    });
    literals.flatten().collect()
}

/// Name and body of each part.
pub(crate) fn parts(rules: &RuleSet) -> Vec<(String, Vec<u8>)> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let literals = literals(rules);
    let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
    let mut parts = vec![
        ("json", lines(|| json(&mut noise))),
        ("html", lines(|| html(&mut noise))),
        ("random", (0..PART / 8).flat_map(|_| noise.next().to_le_bytes()).collect()),
        ("base64", lines(|| noise.base64(76) + "\n")),
        ("numbers", lines(|| numbers(&mut noise))),
        ("hostile-one", b"eyJ".repeat(PART / 3)),
        ("hostile-aaaa", vec![b'A'; PART]),
        ("hostile-digits", lines(|| format!("{:019} ", noise.below(1 << 62)))),
        ("hostile-prefixes", lines(|| noise.pick(&literals).repeat(20))),
        ("hostile-keywords", lines(|| noise.pick(&literals).to_owned() + " ")),
    ];
    let tails = lines(|| format!("{}{}", noise.pick(&literals), noise.base64(30)));
    parts.push(("hostile-tails", tails));
    parts.into_iter().map(|(name, body)| (name.to_owned(), body)).collect()
}
