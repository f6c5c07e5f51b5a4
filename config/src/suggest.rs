//! "Did you mean": the nearest of the words that are allowed.

use crate::problem::quoted;

/// The word of `words` that `text` most likely stands for, if one is near enough.
pub(crate) fn nearest<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    let reach = text.chars().count().div_ceil(3).clamp(1, 3);
    words
        .into_iter()
        .map(|word| (distance(&text, &word.to_ascii_lowercase()), word))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// ` (did you mean `x`?)`, or nothing when no word is near.
pub(crate) fn did_you_mean<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, words).map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// `a`, `b` or `c`.
pub(crate) fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The message for a word that is none of `words`.
pub(crate) fn not_one_of(text: &str, words: &[&str]) -> String {
    let hint = did_you_mean(text, words.iter().copied());
    format!("{} is not {}{hint}", quoted(text), alternatives(words))
}

/// Edit distance with insertion, deletion, replacement and the swap of neighbours (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(WORD_CHARS_MAX).collect();
    let right: Vec<char> = right.chars().take(WORD_CHARS_MAX).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for i in 0..left.len() {
        let mut row = vec![i + 1];
        for j in 0..right.len() {
            let replaced = previous[j] + usize::from(left[i] != right[j]);
            let mut best = replaced.min(previous[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left[i] == right[j - 1] && left[i - 1] == right[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut previous, row);
    }
    previous[right.len()]
}

/// Longer words are compared by their beginning: the cost grows with the product of both lengths.
const WORD_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named() {
        let words = ["enforce", "observe", "hosts", "ports", "on_match", "max_length"];
        let cases = [
            ("enforced", Some("enforce")),
            ("obsreve", Some("observe")),
            ("host", Some("hosts")),
            ("Hosts", Some("hosts")),
            ("prots", Some("ports")),
            ("on-match", Some("on_match")),
            ("maxlength", Some("max_length")),
            ("banana", None),
            ("x", None),
            ("", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(nearest(text, words), wanted, "{text:?}");
        }
    }

    #[test]
    fn distances() {
        let cases = [
            ("", "", 0),
            ("a", "", 1),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("ca", "abc", 3),
        ];
        for (left, right, wanted) in cases {
            assert_eq!(distance(left, right), wanted, "{left} {right}");
            assert_eq!(distance(right, left), wanted, "{right} {left}");
        }
    }
}
