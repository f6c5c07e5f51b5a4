//! Sizes: `65536`, `64KiB`, `48MiB`, `1GiB`.

use super::digits;
use crate::problem::quoted;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

const UNITS: [(&str, u64); 4] = [("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];

/// Reads a size in bytes.
///
/// # Errors
/// In words. Decimal and one-letter units are refused rather than guessed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim_start_matches(' ') {
        "" => Some(1),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    let size = digits(number).zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    size.ok_or_else(|| {
        format!("{} is not a size: write bytes, or a number with KiB, MiB or GiB", quoted(text))
    })
}

/// A size as configuration writes it: the largest unit that keeps it a whole number.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let whole = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    match UNITS[..3].iter().find(whole) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => bytes.to_string(),
    }
}
