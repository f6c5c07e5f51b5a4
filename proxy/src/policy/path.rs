//! Paths: the form in which two spellings of one resource are the same.
//!
//! A server may decode, fold and collapse a path before it looks at it. Path rules are therefore asked twice, about
//! the raw path and about this form, and must agree.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Decodes every percent escape, takes `\` for `/`, drops empty segments and resolves `.` and `..` (RFC 3986 §6.2.2).
pub(crate) fn normalise(path: &str) -> Cow<'_, str> {
    if is_plain(path) { Cow::Borrowed(path) } else { Cow::Owned(folded(path)) }
}

/// Whether the path is surely in its normal form, as most are.
fn is_plain(path: &str) -> bool {
    let is_plain = |(at, byte): (usize, u8)| match byte {
        b'%' | b'\\' => false,
        b'/' => !matches!(path.as_bytes().get(at + 1), Some(b'/' | b'.')),
        _ => true,
    };
    path.starts_with('/') && path.bytes().enumerate().all(is_plain)
}

fn folded(path: &str) -> String {
    let decoded: Cow<'_, str> = percent_decode_str(path).decode_utf8_lossy();
    let slashes = decoded.replace('\\', "/");
    let mut kept: Vec<&str> = Vec::new();
    for segment in slashes.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    let directory = matches!(slashes.rsplit('/').next(), Some("" | "." | ".."));
    let tail = if directory && !kept.is_empty() { "/" } else { "" };
    format!("/{}{tail}", kept.join("/"))
}

/// Whether `path` lies at or below `prefix`, by whole segments (as HTTPRoute's `PathPrefix`).
pub(crate) fn has_prefix(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_fold_into_one() {
        let cases = [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a%2Fb", "/a/b"),
            ("//a", "/a"),
            ("/a\\..\\b", "/b"),
            ("/a/..", "/"),
            ("/%7Euser", "/~user"),
            ("/.hidden/b.c", "/.hidden/b.c"),
            ("a/b", "/a/b"),
            ("", "/"),
        ];
        for (path, expected) in cases {
            assert_eq!(normalise(path), expected, "{path}");
            assert_eq!(folded(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_plain_is_in_its_normal_form() {
        let mut paths = vec![String::new()];
        for length in 0..5 {
            let longer = paths.iter().filter(|path| path.len() == length);
            let longer: Vec<String> =
                longer.flat_map(|path| "/.%\\a2f".chars().map(move |next| format!("{path}{next}"))).collect();
            paths.extend(longer);
        }
        for path in paths.iter().filter(|path| is_plain(path)) {
            assert_eq!(folded(path), *path);
        }
    }

    #[test]
    fn normalising_twice_changes_nothing_without_escapes() {
        for path in ["/", "/a/b/", "/x//y/../z", "/.", "/a/.."] {
            let once = normalise(path);
            assert_eq!(normalise(&once), once, "{path}");
        }
    }

    #[test]
    fn a_prefix_covers_whole_segments() {
        let cases = [
            ("/repos", "/repos", true),
            ("/repos/x", "/repos", true),
            ("/reposx", "/repos", false),
            ("/x", "/", true),
        ];
        for (path, prefix, expected) in cases {
            assert_eq!(has_prefix(path, prefix), expected, "{path} {prefix}");
        }
    }
}
