//! What looks like a credential and is none.
//!
//! Invariant: nobody who knew the provider's form would take one of these for its credential: a sum does not hold, most
//! of it is missing, it is part of a longer word, a stand-in, or a number of another kind.

use super::Format;
use super::dress::{self, Text};
use super::template::{self, Fill};
use crate::secrets;
use crate::seed::Seeded;

/// Why it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One character of the checksum is another.
    Checksum,
    /// Only the first few drawn characters are there.
    Length,
    /// Its beginning stands inside a longer word.
    Word,
    /// Stand-ins are in the place of what is drawn.
    Placeholder,
    /// A UUID.
    Uuid,
    /// A hash of a file or commit.
    Hash,
    /// Minified JavaScript that speaks of it.
    Script,
    /// A lock file.
    Lock,
    /// An image in base64 that its beginning stands in.
    Image,
}

/// Drawn characters that a shortened credential keeps.
const KEPT: usize = 12;

/// Longest beginning that is likely inside random text.
const CHANCE_MAX: usize = 4;

impl Kind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "wrong checksum",
            Self::Length => "wrong length",
            Self::Word => "in a longer word",
            Self::Placeholder => "placeholder",
            Self::Uuid => "UUID",
            Self::Hash => "hash",
            Self::Script => "minified JavaScript",
            Self::Lock => "lock file",
            Self::Image => "base64 image",
        }
    }

    /// The kinds that a form has, the likelier ones more than once.
    pub(super) fn of(format: &Format) -> Vec<Self> {
        let mut kinds = vec![
            Self::Placeholder,
            Self::Word,
            Self::Uuid,
            Self::Hash,
            Self::Script,
            Self::Lock,
            Self::Image,
            Self::Placeholder,
            Self::Word,
        ];
        if !format.is_of_any_length {
            kinds.push(Self::Length);
        }
        if format.has_checksum() {
            kinds.extend([Self::Checksum; 3]);
        }
        kinds
    }
}

/// The text of turn `at`.
pub(super) fn text(seeded: &mut Seeded, at: usize, format: &Format, kind: Kind) -> Text {
    let prefix = template::prefix(format.forms[0]).split("\\n").next().unwrap_or_default();
    let prefix = prefix.trim_start_matches("https://");
    match kind {
        Kind::Checksum => {
            let token = format.draw(seeded, Fill::Random);
            dress::text(seeded, at, format, &with_other_sum(token.text, token.sum_at))
        }
        Kind::Length => {
            let mut token = format.draw(seeded, Fill::Random);
            let end = token.drawn_from.map_or(token.text.len(), |from| from + KEPT);
            token.text.truncate(end);
            dress::text(seeded, at, format, &token.text)
        }
        Kind::Placeholder => {
            let which = seeded.below(8);
            let token = format.draw(seeded, Fill::Placeholder(which));
            dress::text(seeded, at, format, &token.text)
        }
        Kind::Word => {
            let word = word(seeded, prefix);
            dress::named(seeded, at, "label", &word)
        }
        Kind::Uuid => {
            let value = template::draw("<uuid4>", seeded, Fill::Random).text;
            dress::named(seeded, at, "request_id", &value)
        }
        Kind::Hash => {
            let form = ["<hex:40>", "<hex:64>", "<hex:32>", "sha256:<hex:64>"][seeded.below(4)];
            let name = ["commit", "etag", "checksum", "digest"][seeded.below(4)];
            let value = template::draw(form, seeded, Fill::Random).text;
            dress::named(seeded, at, name, &value)
        }
        Kind::Script => script(seeded, prefix),
        Kind::Lock => lock(seeded, at),
        Kind::Image => image(seeded, prefix),
    }
}

fn with_other_sum(mut text: String, at: Option<usize>) -> String {
    let at = at.unwrap_or(text.len() - 1);
    let other = match text.as_bytes()[at] {
        b'9' => "8",
        b'0'..=b'8' => "9",
        b'a' => "e",
        b'A' => "E",
        b'b'..=b'z' => "a",
        _ => "A",
    };
    text.replace_range(at..=at, other);
    text
}

/// A longer word: noise on both sides of a short beginning, an identifier behind a long one.
fn word(seeded: &mut Seeded, prefix: &str) -> String {
    const NAMES: [&str; 6] = [
        "authentication_provider_settings",
        "client-side-rendering-helper-function",
        "documentation_page_for_operators",
        "internalServiceConfigurationManager",
        "webhook-event-subscription-handler",
        "test_fixture_with_a_long_readable_name",
    ];
    let name = NAMES[seeded.below(NAMES.len())];
    if prefix.len() > CHANCE_MAX {
        return format!("{prefix}{name}");
    }
    let noise =
        |seeded: &mut Seeded, length| template::draw(&format!("<b62:{length}>"), seeded, Fill::Random).text;
    format!("{}{prefix}{}", noise(seeded, 40), noise(seeded, 90))
}

fn script(seeded: &mut Seeded, prefix: &str) -> Text {
    let mut code = String::from("!function(){\"use strict\";");
    for _ in 0..30 {
        let letter = |seeded: &mut Seeded| char::from(b'a' + u8::try_from(seeded.below(26)).unwrap_or(0));
        let (one, two, three) = (letter(seeded), letter(seeded), letter(seeded));
        let number = seeded.below(4096);
        code.push_str(&format!(
            "function {one}{two}({two},{three}){{return {two}&&{three}.key?{three}.token({two},{number}):void 0}}\
             var {three}{one}={{secret:{one},apiKey:{two}.accessToken||{three},password:function({one}){{return this[{one}]}}}};"
        ));
    }
    let prefix = prefix.replace('"', "");
    Text::new("app.min.js", &code, &format!("if(t.startsWith(\"{prefix}\"))return n(t,e)"), "}();\n")
}

fn lock(seeded: &mut Seeded, at: usize) -> Text {
    let sha512 = |seeded: &mut Seeded| {
        let mut sum = [0; 64];
        seeded.fill(&mut sum);
        secrets::base64(&sum)
    };
    let hex = |seeded: &mut Seeded| template::draw("<hex:64>", seeded, Fill::Random).text;
    let (name, entry): (_, fn(&str, &str) -> String) = match at % 3 {
        0 => ("package-lock.json", |sum, _| {
            format!(
                "    \"node_modules/left\": {{\n      \"version\": \"1.2.3\",\n      \"resolved\": \
                 \"https://registry.npmjs.org/left/-/left-1.2.3.tgz\",\n      \"integrity\": \"sha512-{sum}\"\n    }},\n"
            )
        }),
        1 => ("Cargo.lock", |_, hex| {
            format!("[[package]]\nname = \"left\"\nversion = \"1.2.3\"\nchecksum = \"{hex}\"\n\n")
        }),
        _ => ("go.sum", |sum, _| format!("github.com/acme/left v1.2.3 h1:{}=\n", &sum[..43])),
    };
    let entries: String = (0..8).map(|_| entry(&sha512(seeded), &hex(seeded))).collect();
    Text::new(name, "", &entries, "")
}

fn image(seeded: &mut Seeded, prefix: &str) -> Text {
    let fits = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    let planted = if fits && prefix.len() <= CHANCE_MAX + 1 { prefix } else { "" };
    let noise = |seeded: &mut Seeded| template::draw("<b64:900>", seeded, Fill::Random).text;
    let data = format!("iVBORw0KGgoAAAANSUhEUgAA{}{planted}{}", noise(seeded), noise(seeded));
    Text::new("logo.html", "<img alt=\"\" src=\"data:image/png;base64,", &data, "\">\n")
}
