//! Durations: `250ms`, `30s`, `10m`, `2h`, `7d`, and sums of them as in `1h30m`.

use std::time::Duration;

use super::digits;
use crate::problem::quoted;

/// Unit and length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a duration.
///
/// # Errors
/// In words. A number without a unit is refused: seconds and milliseconds are too easily mistaken.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let words = || format!("{} is not a duration: write a number with ms, s, m, h or d", quoted(text));
    let mut rest = text;
    let mut total: u64 = 0;
    let mut shortest = u64::MAX;
    while !rest.is_empty() || shortest == u64::MAX {
        let (millis, unit, tail) = part(rest).ok_or_else(words)?;
        if unit >= shortest {
            return Err(words());
        }
        total = total.checked_add(millis).ok_or_else(words)?;
        (shortest, rest) = (unit, tail);
    }
    Ok(Duration::from_millis(total))
}

/// The first number with its unit: its length, the unit's length, and what follows.
fn part(text: &str) -> Option<(u64, u64, &str)> {
    let (number, tail) = text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit())?);
    let (unit, tail) =
        tail.split_at(tail.bytes().position(|byte| byte.is_ascii_digit()).unwrap_or(tail.len()));
    let millis = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    Some((digits(number)?.checked_mul(millis)?, millis, tail))
}

/// A duration as configuration writes it: the largest unit that keeps it a whole number.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    // Only nothing at all is no whole number of milliseconds.
    let whole = |(_, unit): &&(&str, u64)| millis > 0 && millis.is_multiple_of(u128::from(*unit));
    match UNITS.iter().find(whole) {
        Some((unit, length)) => format!("{}{unit}", millis / u128::from(*length)),
        None => "0s".into(),
    }
}
