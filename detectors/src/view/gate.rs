//! The gate in front of decoded bytes: lets through what reads as text.
//!
//! Random bytes decode to random bytes, which seldom hold a dozen of text in a row; images and archives in base64 cost
//! little that way.
//!
//! Invariant: text that is let through begins where it began, whatever was handed in at once.

/// Bytes in a row, from the space on and below 128, that read as text.
pub(super) const PLAIN_MIN: usize = 12;
/// Bytes in a row, such ones and zeros by turns, that read as text in UTF-16.
pub(super) const WIDE_MIN: usize = 24;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// The last bytes, as many as may be the beginning of text.
    last: [u8; WIDE_MIN],
    length: usize,
    plain: usize,
    wide: usize,
}

impl Gate {
    /// Forgets the beginning of what may have been text.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes bytes until they read as text; returns how many it took, and where they do the beginning of the text.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, Option<&[u8]>) {
        let mut at = 0;
        loop {
            if self.length == 0 {
                // Only text can begin what reads as text.
                at += bytes[at..].iter().take_while(|byte| !is_text(**byte)).count();
            }
            let Some(&byte) = bytes.get(at) else { return (bytes.len(), None) };
            at += 1;
            let before = self.length.checked_sub(1).map(|at| self.last[at]);
            let is_text = is_text(byte);
            self.plain = if is_text { self.plain + 1 } else { 0 };
            self.wide = match (is_text, byte, before) {
                (true, _, Some(0)) => self.wide + 1,
                (true, ..) => 1,
                (_, 0, Some(before)) if before != 0 => self.wide + 1,
                _ => 0,
            };
            if self.plain + self.wide == 0 {
                self.length = 0;
                continue;
            }
            if self.length == WIDE_MIN {
                self.last.copy_within(1.., 0);
                self.length -= 1;
            }
            self.last[self.length] = byte;
            self.length += 1;
            let opened = if self.plain >= PLAIN_MIN { PLAIN_MIN } else { WIDE_MIN };
            if self.plain >= PLAIN_MIN || self.wide >= WIDE_MIN {
                return (at, Some(&self.last[self.length - opened..self.length]));
            }
        }
    }
}

const fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte < 128
}

/// How many of `bytes`, which follow `before`, go on with a text that is open.
pub(super) fn text_length(before: u8, bytes: &[u8]) -> usize {
    let mut before = before;
    for (at, &byte) in bytes.iter().enumerate() {
        let is_soft = byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r');
        let goes_on = is_soft || (byte == 0 && before != 0);
        if !goes_on {
            return at;
        }
        before = byte;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where text begins in `bytes`, handed in so many at once.
    fn opens(bytes: &[u8], size: usize) -> Option<(usize, Vec<u8>)> {
        let mut gate = Gate::default();
        let mut taken = 0;
        for piece in bytes.chunks(size) {
            let (took, text) = gate.take(piece);
            taken += took;
            if let Some(text) = text {
                return Some((taken - text.len(), text.to_vec()));
            }
        }
        None
    }

    #[test]
    fn text_opens_it_where_it_began() {
        let wide: Vec<u8> = b"\xffghp_ABCDEFGHIJ".iter().flat_map(|byte| [*byte, 0]).collect();
        let cases: [(&[u8], Option<usize>); 6] = [
            (b"\x01\x02short\x03text", None),
            (b"\x01\x02some longer text", Some(2)),
            (b"exactly12...", Some(0)),
            (b"eleven11111\x00\x00eleven11111", None),
            (&wide, Some(2)),
            (&[b'a', 0, b'b', 0, 1, b'a', 0, b'b', 0, b'c', 0], None),
        ];
        for (bytes, start) in cases {
            for size in 1..=bytes.len() {
                let opened = opens(bytes, size);
                assert_eq!(opened.as_ref().map(|(start, _)| *start), start, "{bytes:?} by {size}");
                assert!(opened.is_none_or(|(start, text)| bytes[start..].starts_with(&text)));
            }
        }
    }

    #[test]
    fn a_text_goes_on_over_lines_and_single_zeros() {
        for (bytes, length) in
            [(&b"a\tb\r\nc"[..], 6), (b"a\0b\0\0", 4), (b"abc\x01", 3), (b"\xc3\xa9abc", 5)]
        {
            assert_eq!(text_length(b'x', bytes), length, "{bytes:?}");
        }
        assert_eq!(text_length(0, b"\0"), 0);
    }
}
