//! Paths: the form in which two spellings of one resource are the same.
//!
//! A server may decode, fold and collapse a path before it looks at it. Path rules are therefore asked twice, about
//! the raw path and about this form, and must agree.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Decodes every percent escape, takes `\` for `/`, drops empty segments and resolves `.` and `..` (RFC 3986 §6.2.2).
pub(crate) fn normalise(path: &str) -> String {
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
        ];
        for (path, expected) in cases {
            assert_eq!(normalise(path), expected, "{path}");
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
