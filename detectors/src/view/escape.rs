//! Escapes: every way to write one character as several bytes, or to put one that nobody sees between two others.
//!
//! Invariant: what an escape says depends on its own bytes alone, at most [`ESCAPE_MAX`] of them.

use super::ViewStep;

/// Bytes of the longest escape.
pub(super) const ESCAPE_MAX: usize = 12;

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A character that stands for itself.
    Plain,
    /// The beginning of what may become an escape.
    More,
    /// An escape.
    Escape(Escape),
}

/// An escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Escape {
    /// Bytes that it takes.
    pub(super) length: usize,
    text: [u8; 4],
    text_length: u8,
    /// What undoes it.
    pub(super) step: ViewStep,
}

impl Escape {
    fn of_bytes(length: usize, bytes: &[u8], step: ViewStep) -> Parsed {
        let mut text = [0; 4];
        text[..bytes.len()].copy_from_slice(bytes);
        Parsed::Escape(Self { length, text, text_length: u8::try_from(bytes.len()).unwrap_or(0), step })
    }

    fn of_char(length: usize, code: u32, step: ViewStep) -> Parsed {
        // Half of a surrogate pair is no character, and no part of a secret.
        let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        Self::of_bytes(length, char.encode_utf8(&mut [0; 4]).as_bytes(), step)
    }

    /// What it stands for; nothing, for a character that nobody sees.
    pub(super) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.text_length)]
    }
}

/// Named character references that stand for ASCII, or for nothing to see.
const NAMES: [(&[u8], &[u8]); 45] = [
    (b"AMP", b"&"),
    (b"GT", b">"),
    (b"LT", b"<"),
    (b"QUOT", b"\""),
    (b"Tab", b"\t"),
    (b"NewLine", b"\n"),
    (b"UnderBar", b"_"),
    (b"ZeroWidthSpace", b""),
    (b"amp", b"&"),
    (b"apos", b"'"),
    (b"ast", b"*"),
    (b"bsol", b"\\"),
    (b"colon", b":"),
    (b"comma", b","),
    (b"commat", b"@"),
    (b"dash", b"-"),
    (b"dollar", b"$"),
    (b"equals", b"="),
    (b"excl", b"!"),
    (b"grave", b"`"),
    (b"gt", b">"),
    (b"hat", b"^"),
    (b"hyphen", b"-"),
    (b"lbrace", b"{"),
    (b"lbrack", b"["),
    (b"lcub", b"{"),
    (b"lowbar", b"_"),
    (b"lpar", b"("),
    (b"lsqb", b"["),
    (b"lt", b"<"),
    (b"nbsp", b" "),
    (b"num", b"#"),
    (b"percnt", b"%"),
    (b"period", b"."),
    (b"plus", b"+"),
    (b"quest", b"?"),
    (b"quot", b"\""),
    (b"rcub", b"}"),
    (b"rpar", b")"),
    (b"rsqb", b"]"),
    (b"semi", b";"),
    (b"shy", b""),
    (b"sol", b"/"),
    (b"verbar", b"|"),
    (b"zwj", b""),
];

/// What the bytes that begin with an introducer say. `over` if nothing follows them.
pub(super) fn parse(bytes: &[u8], over: bool) -> Parsed {
    let bytes = &bytes[..bytes.len().min(ESCAPE_MAX)];
    let more = if over || bytes.len() == ESCAPE_MAX { Parsed::Plain } else { Parsed::More };
    let parsed = match bytes {
        [b'%', rest @ ..] => percent(rest),
        [b'\\', rest @ ..] => backslash(rest),
        [b'&', b'#', rest @ ..] => numeric(rest, over),
        [b'&', rest @ ..] => named(rest),
        [b'=', rest @ ..] => quoted(rest),
        [0, ..] => Some(Escape::of_bytes(1, b"", ViewStep::Utf16)),
        [0x08 | 0x1b | 0x7f, ..] => Some(Escape::of_bytes(1, b"", ViewStep::Invisible)),
        [0xc2 | 0xe2 | 0xef | 0xf3, ..] => unicode(bytes),
        _ => Some(Parsed::Plain),
    };
    parsed.unwrap_or(more)
}

/// The number that exactly these hex digits write; `Err` if one is none, `None` if there are too few.
fn hex(digits: &[u8], count: usize) -> Option<Result<u32, ()>> {
    let mut value = 0;
    for at in 0..count {
        match char::from(*digits.get(at)?).to_digit(16) {
            Some(digit) => value = value << 4 | digit,
            None => return Some(Err(())),
        }
    }
    Some(Ok(value))
}

fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

/// Percent-encoding, and its `%uXXXX` form.
fn percent(rest: &[u8]) -> Option<Parsed> {
    let (digits, count) = if matches!(rest.first()?, b'u' | b'U') { (&rest[1..], 4) } else { (rest, 2) };
    Some(match (hex(digits, count)?, count) {
        (Ok(value), 2) => Escape::of_bytes(3, &[low_byte(value)], ViewStep::Percent),
        (Ok(value), _) => Escape::of_char(6, value, ViewStep::Percent),
        (Err(()), _) => Parsed::Plain,
    })
}

/// Backslash escapes of JSON, JavaScript and shells.
fn backslash(rest: &[u8]) -> Option<Parsed> {
    let step = ViewStep::Json;
    let one = |byte: &[u8]| Some(Escape::of_bytes(2, byte, step));
    match rest.first()? {
        b'u' if rest.get(1)? == &b'{' => braced(&rest[2..]),
        b'u' => Some(hex(&rest[1..], 4)?.map_or(Parsed::Plain, |code| Escape::of_char(6, code, step))),
        b'x' => Some(hex(&rest[1..], 2)?.map_or(Parsed::Plain, |byte| Escape::of_bytes(4, &[low_byte(byte)], step))),
        b'0'..=b'3' => {
            let octal = |at: usize| rest.get(at).map(|digit| char::from(*digit).to_digit(8));
            let digits = [octal(0)?, octal(1)?, octal(2)?];
            Some(match digits {
                [Some(a), Some(b), Some(c)] => Escape::of_bytes(4, &[low_byte(a << 6 | b << 3 | c)], step),
                _ => Parsed::Plain,
            })
        }
        b'n' => one(b"\n"),
        b'r' => one(b"\r"),
        b't' => one(b"\t"),
        b'b' | b'f' | b'v' => one(b" "),
        byte @ (b'/' | b'"' | b'\'' | b'\\') => one(&[*byte]),
        b'\n' => one(b""),
        _ => Some(Parsed::Plain),
    }
}

/// The rest of `\u{…}`.
fn braced(rest: &[u8]) -> Option<Parsed> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    Some(match (rest.get(digits)?, digits) {
        (b'}', 1..=6) => match hex(rest, digits)? {
            Ok(code) => Escape::of_char(digits + 4, code, ViewStep::Json),
            Err(()) => Parsed::Plain,
        },
        _ => Parsed::Plain,
    })
}

/// The rest of a numeric character reference; its semicolon may be missing.
fn numeric(rest: &[u8], over: bool) -> Option<Parsed> {
    let (radix, prefix) = if matches!(rest.first()?, b'x' | b'X') { (16, 1) } else { (10, 0) };
    let digits = rest[prefix..].iter().map_while(|byte| char::from(*byte).to_digit(radix));
    let (mut code, mut count) = (0u32, 0);
    for digit in digits {
        code = code.saturating_mul(radix).saturating_add(digit);
        count += 1;
    }
    let end = prefix + count;
    let has_end = match rest.get(end) {
        Some(byte) => *byte == b';',
        None if over => false,
        None => return None,
    };
    if count == 0 || count > 7 {
        return Some(Parsed::Plain);
    }
    Some(Escape::of_char(2 + end + usize::from(has_end), code, ViewStep::Html))
}

/// The rest of a named character reference.
fn named(rest: &[u8]) -> Option<Parsed> {
    let length = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let name = &rest[..length];
    match rest.get(length) {
        Some(b';') => Some(match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Escape::of_bytes(length + 2, text, ViewStep::Html),
            None => Parsed::Plain,
        }),
        None if NAMES.iter().any(|(known, _)| known.starts_with(name)) => None,
        _ => Some(Parsed::Plain),
    }
}

/// The rest of a quoted-printable escape or soft line break (RFC 2045).
fn quoted(rest: &[u8]) -> Option<Parsed> {
    let step = ViewStep::QuotedPrintable;
    match rest.first()? {
        b'\n' => Some(Escape::of_bytes(2, b"", step)),
        b'\r' => Some(match rest.get(1)? {
            b'\n' => Escape::of_bytes(3, b"", step),
            _ => Parsed::Plain,
        }),
        _ => Some(hex(rest, 2)?.map_or(Parsed::Plain, |byte| Escape::of_bytes(3, &[low_byte(byte)], step))),
    }
}

/// Characters in UTF-8 that nobody sees, and fullwidth forms of ASCII.
fn unicode(bytes: &[u8]) -> Option<Parsed> {
    let invisible = |length| Escape::of_bytes(length, b"", ViewStep::Invisible);
    Some(match (bytes[0], *bytes.get(1)?) {
        (0xc2, 0xad) => invisible(2),
        (0xe2, 0x80) => match bytes.get(2)? {
            0x8b..=0x8f | 0xaa..=0xae => invisible(3),
            _ => Parsed::Plain,
        },
        (0xe2, 0x81) => match bytes.get(2)? {
            0xa0..=0xa4 => invisible(3),
            _ => Parsed::Plain,
        },
        (0xef, 0xbb) if *bytes.get(2)? == 0xbf => invisible(3),
        (0xef, 0xb8) if matches!(*bytes.get(2)?, 0x80..=0x8f) => invisible(3),
        (0xef, 0xbc) => match *bytes.get(2)? {
            low @ 0x81..=0xbf => Escape::of_bytes(3, &[low - 0x60], ViewStep::Fullwidth),
            _ => Parsed::Plain,
        },
        (0xef, 0xbd) => match *bytes.get(2)? {
            low @ 0x80..=0x9e => Escape::of_bytes(3, &[low - 0x20], ViewStep::Fullwidth),
            _ => Parsed::Plain,
        },
        (0xf3, 0xa0) => tag(*bytes.get(2)?, *bytes.get(3)?),
        _ => Parsed::Plain,
    })
}

/// Tag characters (U+E0000 to U+E007F) spell ASCII that nobody sees.
fn tag(third: u8, fourth: u8) -> Parsed {
    let low = fourth & 0x3f;
    let (text, length) = match third {
        0x80 if low >= 0x20 => (low, 1),
        0x81 if low < 0x3f => (low | 0x40, 1),
        0x80 | 0x81 => (0, 0),
        _ => return Parsed::Plain,
    };
    Escape::of_bytes(4, &[text][..length], ViewStep::Invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_say_what_they_stand_for() {
        let cases: [(&str, &str, ViewStep); 34] = [
            ("%67", "g", ViewStep::Percent),
            ("%5F", "_", ViewStep::Percent),
            ("%u0067", "g", ViewStep::Percent),
            (r"\u0067", "g", ViewStep::Json),
            (r"\u00e9", "é", ViewStep::Json),
            (r"\u{67}", "g", ViewStep::Json),
            (r"\x67", "g", ViewStep::Json),
            (r"\147", "g", ViewStep::Json),
            (r"\n", "\n", ViewStep::Json),
            (r"\/", "/", ViewStep::Json),
            (r"\\", "\\", ViewStep::Json),
            ("\\\n", "", ViewStep::Json),
            ("&#103;", "g", ViewStep::Html),
            ("&#x67;", "g", ViewStep::Html),
            ("&#X067;", "g", ViewStep::Html),
            ("&lowbar;", "_", ViewStep::Html),
            ("&amp;", "&", ViewStep::Html),
            ("=5F", "_", ViewStep::QuotedPrintable),
            ("=5f", "_", ViewStep::QuotedPrintable),
            ("=\n", "", ViewStep::QuotedPrintable),
            ("=\r\n", "", ViewStep::QuotedPrintable),
            ("\0", "", ViewStep::Utf16),
            ("\u{1b}", "", ViewStep::Invisible),
            ("\u{ad}", "", ViewStep::Invisible),
            ("\u{200b}", "", ViewStep::Invisible),
            ("\u{200d}", "", ViewStep::Invisible),
            ("\u{2060}", "", ViewStep::Invisible),
            ("\u{feff}", "", ViewStep::Invisible),
            ("\u{fe0f}", "", ViewStep::Invisible),
            ("\u{e0067}", "g", ViewStep::Invisible),
            ("\u{e0030}", "0", ViewStep::Invisible),
            ("\u{ff47}", "g", ViewStep::Fullwidth),
            ("\u{ff3f}", "_", ViewStep::Fullwidth),
            ("\u{ff5e}", "~", ViewStep::Fullwidth),
        ];
        for (written, text, step) in cases {
            let followed = [written.as_bytes(), b" and more"].concat();
            for (bytes, over) in [(written.as_bytes(), true), (&followed[..], true), (&followed[..], false)] {
                let Parsed::Escape(escape) = parse(bytes, over) else { panic!("{written:?}: {:?}", parse(bytes, over)) };
                assert_eq!((escape.length, escape.text(), escape.step), (written.len(), text.as_bytes(), step));
            }
            for cut in 1..written.len() {
                let parsed = parse(&written.as_bytes()[..cut], false);
                assert_eq!(parsed, Parsed::More, "{written:?} cut after {cut}");
            }
        }
    }

    #[test]
    fn other_texts_stand_for_themselves() {
        for text in ["%zz", "%u00zz", r"\u00zz", r"\xzz", r"\d+", r"\u{}x", "&c;", "&#;", "&#x;", "=z", "é", "\u{2019}", "\u{3042}", "\u{ff00}"] {
            assert_eq!(parse(text.as_bytes(), true), Parsed::Plain, "{text:?}");
        }
        assert_eq!(parse(b"&#103", true), parse(b"&#103 ", false), "the semicolon may be missing");
    }
}
