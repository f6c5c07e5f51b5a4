//! Signed URLs: an origin's permission for one request, which looks like a credential and is none of the bottle's.
//!
//! Knows the schemes of S3 (`SigV4` in the query), Google Cloud Storage (V4 and V2), Azure (shared access signatures) and
//! `CloudFront` (canned and custom policies). Pure: text in, byte ranges out. Invariant: a URL counts as signed only if one
//! scheme is complete, with every mandatory parameter exactly once and in its own form; forms are as narrow as the schemes
//! allow, so that no other secret finds room in one.
//!
//! Place in the path: [`super::head`] asks about request targets and the `Location` of answers, [`super::links`] about URLs in
//! bodies; what is found inside a signature is marked, and counts as expected.

use std::borrow::Cow;
use std::ops::Range;

use super::verdict::{Counts, Direction, Hit, Judge, Ruling, Trouble};

/// What a parameter's value, percent-decoded, has to look like.
#[derive(Clone, Copy)]
enum Form {
    /// One of these words.
    Word(&'static [&'static str]),
    /// Decimal digits.
    Digits,
    /// So many lower- or upper-case hex digits.
    Hex(usize, usize),
    /// So many characters of base64, in the URL-safe or the `CloudFront` alphabet too, padding included.
    Base64(usize, usize),
    /// So many letters and digits.
    Alphanumeric(usize, usize),
    /// Names of header fields, with `;` between them.
    Fields,
    /// Digits, `-`, `:`, `.`, `T` and `Z`: a date with or without a time.
    Time,
    /// An e-mail address of a service account.
    Account,
    /// `KEY/DATE/REGION/SERVICE/END`, with this end.
    Scope(&'static str),
}

/// A parameter by name.
type Parameter = (&'static str, Form);

/// A way of signing a URL.
struct Scheme {
    /// Each exactly once.
    mandatory: &'static [Parameter],
    /// Each at most once, and part of the signature where it is there.
    optional: &'static [Parameter],
}

const AZURE_SIGNATURE: Parameter = ("sig", Form::Base64(43, 44));

const SCHEMES: &[Scheme] = &[
    // docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
    Scheme {
        mandatory: &[
            ("X-Amz-Algorithm", Form::Word(&["AWS4-HMAC-SHA256"])),
            ("X-Amz-Credential", Form::Scope("aws4_request")),
            ("X-Amz-Date", Form::Time),
            ("X-Amz-Expires", Form::Digits),
            ("X-Amz-SignedHeaders", Form::Fields),
            ("X-Amz-Signature", Form::Hex(64, 64)),
        ],
        optional: &[("X-Amz-Security-Token", Form::Base64(100, 4096))],
    },
    // cloud.google.com/storage/docs/access-control/signed-urls
    Scheme {
        mandatory: &[
            ("X-Goog-Algorithm", Form::Word(&["GOOG4-RSA-SHA256", "GOOG4-HMAC-SHA256"])),
            ("X-Goog-Credential", Form::Scope("goog4_request")),
            ("X-Goog-Date", Form::Time),
            ("X-Goog-Expires", Form::Digits),
            ("X-Goog-SignedHeaders", Form::Fields),
            ("X-Goog-Signature", Form::Hex(64, 1024)),
        ],
        optional: &[],
    },
    // cloud.google.com/storage/docs/access-control/signed-urls-v2
    Scheme {
        mandatory: &[
            ("GoogleAccessId", Form::Account),
            ("Expires", Form::Digits),
            ("Signature", Form::Base64(171, 684)),
        ],
        optional: &[],
    },
    // learn.microsoft.com/rest/api/storageservices: service, account, and stored-policy signatures
    Scheme {
        mandatory: &[
            ("sv", Form::Time),
            ("sr", Form::Alphanumeric(1, 3)),
            ("sp", Form::Alphanumeric(1, 16)),
            ("se", Form::Time),
            AZURE_SIGNATURE,
        ],
        optional: &[],
    },
    Scheme {
        mandatory: &[
            ("sv", Form::Time),
            ("ss", Form::Alphanumeric(1, 4)),
            ("srt", Form::Alphanumeric(1, 3)),
            ("sp", Form::Alphanumeric(1, 16)),
            ("se", Form::Time),
            AZURE_SIGNATURE,
        ],
        optional: &[],
    },
    Scheme {
        mandatory: &[
            ("sv", Form::Time),
            ("sr", Form::Alphanumeric(1, 3)),
            ("si", Form::Alphanumeric(1, 64)),
            AZURE_SIGNATURE,
        ],
        optional: &[],
    },
    // docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide: canned and custom policies
    Scheme {
        mandatory: &[
            ("Expires", Form::Digits),
            ("Signature", Form::Base64(171, 684)),
            ("Key-Pair-Id", Form::Alphanumeric(8, 32)),
        ],
        optional: &[],
    },
    Scheme {
        mandatory: &[
            ("Policy", Form::Base64(64, 4096)),
            ("Signature", Form::Base64(171, 684)),
            ("Key-Pair-Id", Form::Alphanumeric(8, 32)),
        ],
        optional: &[],
    },
];

/// Where the parameters stand (`name=value`) by which `url` is signed; nowhere if it is not signed, or not completely.
/// `url` is a whole URL or its path and query.
pub(super) fn signature(url: &[u8]) -> Vec<Range<usize>> {
    let Some(query) = query_of(url) else { return Vec::new() };
    let parameters = parameters(url, query);
    SCHEMES.iter().find_map(|scheme| scheme.signed(&parameters)).unwrap_or_default()
}

/// Marks what is found inside a signature before a judge hears of it.
pub(super) struct Signed<'a> {
    pub(super) judge: &'a dyn Judge,
    /// The URL.
    pub(super) url: &'a [u8],
    /// Where it begins in the scanned text.
    pub(super) base: usize,
}

impl Judge for Signed<'_> {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let start = hit.place.offset.checked_sub(self.base as u64).and_then(|at| usize::try_from(at).ok());
        let length = usize::try_from(hit.length).unwrap_or(usize::MAX);
        let inside = |start: usize| {
            signature(self.url).iter().any(|at| at.start <= start && start.saturating_add(length) <= at.end)
        };
        let hit = Hit { signed: start.is_some_and(inside), ..hit.clone() };
        self.judge.match_found(&hit, value)
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        self.judge.trouble(trouble)
    }

    fn body_bytes(&self, _: Direction, _: Counts) {}
}

/// A parameter of a query, and where it stands.
struct Found<'a> {
    at: Range<usize>,
    name: &'a [u8],
    value: Cow<'a, [u8]>,
}

impl Scheme {
    fn signed(&self, parameters: &[Found<'_>]) -> Option<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        for (name, form) in self.mandatory {
            let found = the_one(parameters, name)??;
            ranges.push(form.holds(&found.value).then(|| found.at.clone())?);
        }
        for (name, form) in self.optional {
            if let Some(found) = the_one(parameters, name)? {
                ranges.push(form.holds(&found.value).then(|| found.at.clone())?);
            }
        }
        Some(ranges)
    }
}

/// The parameter of this name, in whatever case; `None` outside if it is there more than once.
fn the_one<'a, 'f>(parameters: &'f [Found<'a>], name: &str) -> Option<Option<&'f Found<'a>>> {
    let mut found = parameters.iter().filter(|one| one.name.eq_ignore_ascii_case(name.as_bytes()));
    let first = found.next();
    if found.next().is_some() { None } else { Some(first) }
}

/// Where the query stands: behind the first `?`, up to a fragment.
fn query_of(url: &[u8]) -> Option<Range<usize>> {
    let start = url.iter().position(|byte| *byte == b'?')? + 1;
    let end = url[start..].iter().position(|byte| *byte == b'#').map_or(url.len(), |at| start + at);
    Some(start..end)
}

/// The parameters of a query. JSON writes `&` as `\u0026` where it stands in HTML, which writes it as `&amp;`.
fn parameters(url: &[u8], query: Range<usize>) -> Vec<Found<'_>> {
    const SEPARATORS: [&[u8]; 3] = [b"&amp;", b"\\u0026", b"&"];
    let (mut found, mut start, mut at) = (Vec::new(), query.start, query.start);
    while at < query.end {
        let rest = &url[at..query.end];
        match SEPARATORS.iter().find(|separator| rest.starts_with(separator)) {
            Some(separator) => {
                found.push(Found::new(url, start..at));
                at += separator.len();
                start = at;
            }
            None => at += 1,
        }
    }
    found.push(Found::new(url, start..query.end));
    found
}

impl<'a> Found<'a> {
    fn new(url: &'a [u8], at: Range<usize>) -> Self {
        let text = &url[at.clone()];
        let split = text.iter().position(|byte| *byte == b'=');
        let (name, value) = split.map_or((text, &[][..]), |split| (&text[..split], &text[split + 1..]));
        Self { at, name, value: percent_encoding::percent_decode(value).into() }
    }
}

impl Form {
    fn holds(self, value: &[u8]) -> bool {
        let all = |least: usize, most: usize, fits: fn(&u8) -> bool| {
            (least..=most).contains(&value.len()) && value.iter().all(fits)
        };
        match self {
            Self::Word(words) => words.iter().any(|word| word.as_bytes() == value),
            Self::Digits => all(1, 12, u8::is_ascii_digit),
            Self::Hex(least, most) => all(least, most, u8::is_ascii_hexdigit),
            Self::Base64(least, most) => {
                all(least, most, |byte| byte.is_ascii_alphanumeric() || b"+/-_~=".contains(byte))
            }
            Self::Alphanumeric(least, most) => all(least, most, u8::is_ascii_alphanumeric),
            Self::Fields => all(1, 512, |byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-;_".contains(byte)
            }),
            Self::Time => all(8, 32, |byte| byte.is_ascii_digit() || b"-:.TZ".contains(byte)),
            Self::Account => is_account(value),
            Self::Scope(end) => is_scope(value, end),
        }
    }
}

fn is_account(value: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.@".contains(byte);
    value.iter().all(fits) && value.ends_with(b".gserviceaccount.com")
}

fn is_scope(value: &[u8], end: &str) -> bool {
    let parts: Vec<&[u8]> = value.split(|byte| *byte == b'/').collect();
    let &[key, date, region, service, last] = parts.as_slice() else { return false };
    let word = |part: &[u8]| {
        (1..=32).contains(&part.len())
            && part.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    let key_id = (16..=128).contains(&key.len())
        && key.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    (key_id || is_account(key))
        && date.len() == 8
        && date.iter().all(u8::is_ascii_digit)
        && word(region)
        && word(service)
        && last == end.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(text: &str, length: usize) -> String {
        text.chars().cycle().take(length).collect()
    }

    /// A complete URL of each scheme, by its parameters.
    fn complete() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
        let own = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
        };
        let with = |pairs: &[(&'static str, &str)], more: &[(&'static str, String)]| {
            [own(pairs), more.to_vec()].concat()
        };
        let signature = repeated("aB3-~_", 344);
        vec![
            (
                "SigV4",
                with(
                    &[
                        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
                        (
                            "X-Amz-Credential",
                            "ASIAQWERTYUIOPASDFGH%2F20261201%2Feu-west-1%2Fs3%2Faws4_request",
                        ),
                        ("X-Amz-Date", "20261201T000000Z"),
                        ("X-Amz-Expires", "3600"),
                        ("X-Amz-SignedHeaders", "host;range"),
                    ],
                    &[("X-Amz-Signature", repeated("0123456789abcdef", 64))],
                ),
            ),
            (
                "GCS V4",
                with(
                    &[
                        ("X-Goog-Algorithm", "GOOG4-RSA-SHA256"),
                        (
                            "X-Goog-Credential",
                            "a-b@c.iam.gserviceaccount.com/20261201/auto/storage/goog4_request",
                        ),
                        ("X-Goog-Date", "20261201T000000Z"),
                        ("X-Goog-Expires", "900"),
                        ("X-Goog-SignedHeaders", "host"),
                    ],
                    &[("X-Goog-Signature", repeated("0123456789abcdef", 512))],
                ),
            ),
            (
                "GCS V2",
                with(
                    &[("GoogleAccessId", "a@b.iam.gserviceaccount.com"), ("Expires", "1790000000")],
                    &[("Signature", repeated("aB3%2B", 344 * 6 / 4))],
                ),
            ),
            (
                "SAS of a service",
                with(
                    &[("sv", "2024-11-04"), ("sr", "b"), ("sp", "racwd"), ("se", "2026-12-01T00%3A00%3A00Z")],
                    &[("sig", format!("{}%3D", repeated("aB3%2F", 43 * 6 / 4 - 1)))],
                ),
            ),
            (
                "SAS of an account",
                with(
                    &[
                        ("sv", "2024-11-04"),
                        ("ss", "bfqt"),
                        ("srt", "sco"),
                        ("sp", "rl"),
                        ("se", "2026-12-01"),
                    ],
                    &[("sig", repeated("aB3", 44))],
                ),
            ),
            (
                "SAS by a policy",
                with(
                    &[("sv", "2024-11-04"), ("sr", "c"), ("si", "readers")],
                    &[("sig", repeated("aB3", 44))],
                ),
            ),
            (
                "CloudFront, canned",
                with(
                    &[("Expires", "1790000000"), ("Key-Pair-Id", "K2JCJMDEHXQW5F")],
                    &[("Signature", signature.clone())],
                ),
            ),
            (
                "CloudFront, custom",
                with(
                    &[("Key-Pair-Id", "APKAQWERTYUIOPASDFGH")],
                    &[("Policy", repeated("eyJ", 200)), ("Signature", signature)],
                ),
            ),
        ]
    }

    fn url(parameters: &[(&str, String)]) -> String {
        let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("https://bucket.test/a/b?x=1&{}#end", query.join("&"))
    }

    #[test]
    fn a_url_is_signed_by_a_complete_scheme_alone() {
        for (scheme, parameters) in complete() {
            let whole = url(&parameters);
            let ranges = signature(whole.as_bytes());
            let mut shown: Vec<&str> = ranges.into_iter().map(|range| &whole[range]).collect();
            let mut expected: Vec<String> =
                parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            shown.sort_unstable();
            expected.sort_unstable();
            assert_eq!(shown, expected, "{scheme}: its parameters and no others");
            for index in 0..parameters.len() {
                let mut changed = parameters.clone();
                let (name, value) = changed.remove(index);
                assert!(signature(url(&changed).as_bytes()).is_empty(), "{scheme} without {name}");
                for twice in [name.to_owned(), name.to_ascii_lowercase()] {
                    let again = format!("{}&{twice}={value}", url(&parameters).trim_end_matches("#end"));
                    assert!(signature(again.as_bytes()).is_empty(), "{scheme} with {twice} twice");
                }
                for wrong in ["", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "a%26b"] {
                    let mut changed = parameters.clone();
                    wrong.clone_into(&mut changed[index].1);
                    assert!(signature(url(&changed).as_bytes()).is_empty(), "{scheme} with {name}={wrong}");
                }
            }
        }
    }

    #[test]
    fn a_session_token_is_part_of_the_signature() {
        let (_, mut parameters) = complete().swap_remove(0);
        parameters.push(("X-Amz-Security-Token", repeated("IQoJb3JpZ2luX2Vj", 800)));
        assert_eq!(signature(url(&parameters).as_bytes()).len(), 7);
        parameters.push(("x-amz-security-token", repeated("IQoJb3JpZ2luX2Vj", 800)));
        assert!(signature(url(&parameters).as_bytes()).is_empty());
    }

    #[test]
    fn html_and_json_write_the_separator_in_their_own_ways() {
        for (_, parameters) in complete() {
            for separator in ["&amp;", "\\u0026"] {
                let url = url(&parameters).replace('&', separator);
                assert_eq!(signature(url.as_bytes()).len(), parameters.len(), "{url}");
            }
        }
    }

    #[test]
    fn other_urls_have_no_signature() {
        for url in ["/", "/?", "/?a=b&c", "/a%3FX-Amz-Signature=1", "https://a.test/#?sig=1"] {
            assert!(signature(url.as_bytes()).is_empty(), "{url}");
        }
    }
}
