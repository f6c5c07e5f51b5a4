//! Whether text looks drawn at random, or typed as a stand-in.
//!
//! Shannon's bits per character cannot exceed the logarithm of the length, so the threshold scales
//! with it. Stand-ins are padded (`sk_live_xxxxxxxx`, `…1234567890`), so runs, sequences and known
//! words are taken out first and what remains is judged; nothing is dropped for containing a word.

use super::Outcome;
use super::words::{CERTAIN, is_wordy};

/// Share of the highest possible entropy that random text keeps; measured on short draws of every
/// alphabet, where one in a thousand falls below 0.75.
const SHARE: f32 = 0.72;
/// Text of which less than one in this many characters remains is a stand-in and nothing else: no secret can hide in it.
const REST: usize = 3;
/// What must remain, in characters, for anything to be said at all.
const RESIDUE_MIN: usize = 6;
/// A run (`aaaa`) or a sequence (`1234`) of at least this many characters is padding.
const RUN_MIN: usize = 4;

/// Below this length, letters drawn at random may pass for words; in bytes.
const WORDED_MIN: usize = 24;

/// Words of stand-ins, in lower case, at least four characters each, letters the first two.
const WORDS: &[&[u8]] = &[
    b"example",
    b"sample",
    b"placeholder",
    b"your",
    b"secret",
    b"password",
    b"passwd",
    b"token",
    b"change",
    b"dummy",
    b"fake",
    b"test",
    b"demo",
    b"here",
    b"redacted",
    b"insert",
    b"replace",
    b"todo",
    b"null",
    b"none",
    b"undefined",
    b"default",
    b"admin",
    b"user",
    b"pass",
    b"some",
    b"value",
    b"string",
    b"access",
    b"private",
    b"public",
    b"apikey",
    b"api_key",
    b"api-key",
    b"client",
    b"auth",
    b"login",
    b"foobar",
    b"hunter",
    b"invalid",
    b"enter",
    b"with",
    b"this",
    b"mock",
    b"stub",
    b"real",
];

/// A provider's token: unknown when it looks random, failed when much of it is padding or words, unrelated when nearly
/// all of it is padding.
pub(super) fn token(matched: &[u8]) -> Outcome {
    let rest = Rest::of(matched);
    let is_worded = || matched.len() >= WORDED_MIN && is_wordy(matched, CERTAIN);
    if rest.kept * REST < rest.total {
        Outcome::Unrelated
    } else if rest.is_random() && !is_worded() {
        Outcome::Unknown
    } else {
        Outcome::Failed
    }
}

/// Whether most of `text` remains without its padding, and the remainder looks drawn at random.
pub(super) fn random(text: &[u8]) -> bool {
    Rest::of(text).is_random()
}

/// What remains of a text without its padding.
struct Rest {
    counts: [u16; 128],
    kept: usize,
    total: usize,
}

impl Rest {
    fn of(text: &[u8]) -> Self {
        let mut counts = [0u16; 128];
        let (mut kept, mut total) = (0usize, 0usize);
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            let padding = padding(rest);
            if padding > 0 {
                total += padding;
                rest = &rest[padding..];
                continue;
            }
            if byte.is_ascii_alphanumeric() {
                counts[usize::from(byte)] = counts[usize::from(byte)].saturating_add(1);
                kept += 1;
                total += 1;
            }
            rest = after;
        }
        Self { counts, kept, total }
    }

    fn is_random(&self) -> bool {
        let Self { counts, kept, total } = self;
        *kept >= RESIDUE_MIN && kept * 2 >= *total && bits(counts, *kept) >= SHARE * most_bits(counts, *kept)
    }
}

/// By letter: the words that begin with it, and those that have it second, one bit each.
static WORDS_BY_LETTER: [[u64; 26]; 2] = {
    let mut table = [[0; 26]; 2];
    let mut word = 0;
    while word < WORDS.len() {
        let mut place = 0;
        while place < 2 {
            table[place][(WORDS[word][place] - b'a') as usize] |= 1 << word;
            place += 1;
        }
        word += 1;
    }
    table
};

/// How many bytes at the start of `text` are padding: a word, a run or a sequence.
fn padding(text: &[u8]) -> usize {
    let Some(&[first, second, ..]) = text.first_chunk::<RUN_MIN>() else { return 0 };
    let by_letter = |place: usize, byte: u8| {
        let letter = byte.to_ascii_lowercase().wrapping_sub(b'a');
        WORDS_BY_LETTER[place].get(usize::from(letter)).copied().unwrap_or(0)
    };
    let (mut words, mut longest) = (by_letter(0, first) & by_letter(1, second), 0);
    while words != 0 {
        let word = WORDS[words.trailing_zeros() as usize];
        words &= words - 1;
        if word.len() > longest && starts_with_word(text, word) {
            longest = word.len();
        }
    }
    if longest > 0 { longest } else { run(text, first, second) }
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

/// How many bytes at the start of `text`, which begins with these two, are a run or a sequence.
fn run(text: &[u8], first: u8, second: u8) -> usize {
    let lower = |byte: u8| i16::from(byte.to_ascii_lowercase());
    let step = lower(second) - lower(first);
    if !(-1..=1).contains(&step) {
        return 0;
    }
    let goes_on = |pair: &&[u8]| {
        lower(pair[1]) == lower(pair[0]) + step && (step == 0 || pair[1].is_ascii_alphanumeric())
    };
    let length = text.windows(2).take_while(goes_on).count() + 1;
    if length >= RUN_MIN { length } else { 0 }
}

/// Shannon's entropy of the counted characters, in bits per character.
fn bits(counts: &[u16; 128], total: usize) -> f32 {
    let total = total as f32;
    let shares = counts.iter().filter(|&&count| count > 0).map(|&count| f32::from(count) / total);
    -shares.map(|share| share * share.log2()).sum::<f32>()
}

/// The most bits per character that text of this length and alphabet can have.
///
/// A few letters of a prefix say nothing about the body's alphabet: `PMAK-` in front of 58 hex
/// digits leaves it hex. So a class of characters counts from a share of the text on.
fn most_bits(counts: &[u16; 128], total: usize) -> f32 {
    let count = |first: u8, last: u8| -> usize {
        counts[usize::from(first)..=usize::from(last)].iter().map(|count| usize::from(*count)).sum()
    };
    let digits = count(b'0', b'9');
    let hex = digits + count(b'A', b'F') + count(b'a', b'f');
    let (lower, upper) = (count(b'a', b'z'), count(b'A', b'Z'));
    let letters = if (total - hex) * 4 > total { 26.0 } else { 6.0 };
    let cases = if lower.min(upper) * 6 > lower + upper { 2.0 } else { 1.0 };
    let letters = if (total - digits) * 8 > total { letters * cases } else { 0.0 };
    let alphabet: f32 = if digits > 0 { letters + 10.0 } else { letters };
    alphabet.log2().min((total as f32).log2())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As [`padding`], one word and one step after the other.
    fn padding_by_search(text: &[u8]) -> usize {
        let word = WORDS.iter().filter(|word| starts_with_word(text, word)).map(|word| word.len()).max();
        let lower = |at: usize| text.get(at).map(|byte| i16::from(byte.to_ascii_lowercase()));
        let along = |step: i16| {
            let next = |at: usize| lower(at) == lower(at - 1).map(|byte| byte + step);
            let plain = |at: usize| step == 0 || text.get(at).is_some_and(u8::is_ascii_alphanumeric);
            (1..text.len()).take_while(|&at| next(at) && plain(at)).count() + 1
        };
        let longest = [0, 1, -1].into_iter().map(along).max().unwrap_or(0);
        word.unwrap_or(if longest >= RUN_MIN { longest } else { 0 })
    }

    proptest! {
        #[test]
        fn padding_is_what_a_search_finds(pieces in prop::collection::vec(0..WORDS.len() + 4, 1..6), glue in "[0-9a-d_-]{0,6}") {
            let known = |at: usize| match at.checked_sub(WORDS.len()) {
                None => WORDS[at].to_ascii_uppercase(),
                Some(which) => [&b"aaaaaaa"[..], b"12345", b"zyxwv", b"/0123"][which].to_vec(),
            };
            let text: Vec<u8> = pieces.into_iter().flat_map(|at| [known(at), glue.clone().into_bytes()].concat()).collect();
            for at in 0..text.len() {
                prop_assert_eq!(padding(&text[at..]), padding_by_search(&text[at..]));
            }
        }
    }
}
