//! A set of byte values, and how often its members appear in traffic.

use std::fmt::{self, Write as _};

/// A set of byte values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// Every byte value.
    pub(crate) const ALL: Self = Self([u64::MAX; 4]);

    pub(crate) fn single(byte: u8) -> Self {
        let mut set = Self::default();
        set.insert_range(byte, byte);
        set
    }

    pub(crate) fn insert_range(&mut self, first: u8, last: u8) {
        for byte in first..=last {
            self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    }

    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0u8..4).flat_map(|word| {
            let mut bits = self.0[usize::from(word)];
            std::iter::from_fn(move || {
                let next = (bits != 0).then(|| word << 6 | bits.trailing_zeros().to_le_bytes()[0]);
                bits &= bits.wrapping_sub(1);
                next
            })
        })
    }

    /// The byte, if there is just one.
    pub(crate) fn only(&self) -> Option<u8> {
        if self.len() == 1 { self.iter().next() } else { None }
    }

    /// The lower-case letter whose two cases this set is.
    pub(crate) fn case_pair(&self) -> Option<u8> {
        let last = self.iter().last()?;
        (self.len() == 2 && last.is_ascii_lowercase() && self.contains(last.to_ascii_uppercase()))
            .then_some(last)
    }
}

/// A set of pairs of bytes.
#[derive(Debug)]
pub(crate) struct BytePairs(Box<[u64; 1024]>);

impl Default for BytePairs {
    fn default() -> Self {
        Self(Box::new([0; 1024]))
    }
}

impl BytePairs {
    pub(crate) fn insert(&mut self, first: u8, second: u8) {
        let (word, bit) = Self::place(first, second);
        self.0[word] |= bit;
    }

    /// Every byte of one set with every one of another behind it.
    pub(crate) fn insert_all(&mut self, first: &ByteSet, second: &ByteSet) {
        first.iter().for_each(|first| second.iter().for_each(|second| self.insert(first, second)));
    }

    #[inline]
    pub(crate) fn contains(&self, first: u8, second: u8) -> bool {
        let (word, bit) = Self::place(first, second);
        self.0[word] & bit != 0
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_usage(&self) -> usize {
        size_of_val(&*self.0)
    }

    #[inline]
    fn place(first: u8, second: u8) -> (usize, u64) {
        let pair = usize::from(u16::from_le_bytes([first, second]));
        (pair / 64, 1 << (pair % 64))
    }
}

impl fmt::Display for ByteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(byte) = self.only() {
            return write!(f, "{}", byte.escape_ascii());
        }
        f.write_char('[')?;
        let mut next = 0u16;
        while let Some(first) = (next..256).find(|&b| self.contains(b.to_le_bytes()[0])) {
            let end = (first..256).find(|&b| !self.contains(b.to_le_bytes()[0])).unwrap_or(256);
            let (low, high) = (first.to_le_bytes()[0], (end - 1).to_le_bytes()[0]);
            match end - first {
                1 => write!(f, "{}", low.escape_ascii())?,
                2 => write!(f, "{}{}", low.escape_ascii(), high.escape_ascii())?,
                _ => write!(f, "{}-{}", low.escape_ascii(), high.escape_ascii())?,
            }
            next = end;
        }
        f.write_char(']')
    }
}

/// How often each byte value appears in ordinary traffic: text and markup, base64, random bytes.
pub(crate) struct Frequencies([f64; 256]);

/// Ordinary text in miniature; only the proportions of its bytes matter.
const SAMPLE: &[u8] = br#"{"id":30417,"name":"weekly report","created":"2024-05-17T08:31:07Z","tags":["draft","team"],
"total":129.95,"note":"Please look at the second page before the meeting; the numbers there are not final."}
<section class="note"><h2>Getting started</h2><p>Install the package and read the guide on
<a href="https://docs.example.org/guide/start.html">the first steps</a>.</p></section>
fn main() { let list = read_lines(path)?; for (i, line) in list.iter().enumerate() { println!("{i}: {line}"); } }
"#;

impl Frequencies {
    pub(crate) fn of_traffic() -> Self {
        let mut share = [0.15 / 256.0; 256];
        for byte in (0..=u8::MAX).filter(|b| b.is_ascii_alphanumeric() || b"+/".contains(b)) {
            share[usize::from(byte)] += 0.25 / 64.0;
        }
        for &byte in SAMPLE {
            share[usize::from(byte)] += 0.60 / SAMPLE.len() as f64;
        }
        Self(share)
    }

    /// The share of bytes that are in `set`.
    pub(crate) fn share(&self, set: &ByteSet) -> f64 {
        set.iter().map(|byte| self.0[usize::from(byte)]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_print_as_classes() {
        let mut set = ByteSet::single(b'-');
        assert_eq!(set.to_string(), "-");
        set.insert_range(b'0', b'9');
        set.insert_range(b'a', b'b');
        assert_eq!(set.to_string(), "[-0-9ab]");
        set.insert_range(0xfe, 0xff);
        assert_eq!(set.to_string(), "[-0-9ab\\xfe\\xff]");
    }

    #[test]
    fn case_pairs_are_two_cases_of_one_letter() {
        let mut pair = ByteSet::single(b'K');
        assert_eq!(pair.case_pair(), None);
        pair.insert_range(b'k', b'k');
        assert_eq!(pair.case_pair(), Some(b'k'));
        pair.insert_range(b'l', b'l');
        assert_eq!(pair.case_pair(), None);
    }
}
