//! Discord's bot tokens: the first part is the base64 of the account's decimal number.

use super::{Outcome, base};

/// Digits of an account number (a 64-bit snowflake).
const ID: std::ops::RangeInclusive<usize> = 17..=20;

/// Whether the part before the first dot decodes to an account number.
pub(super) fn token(matched: &[u8]) -> Outcome {
    let Some((id, _)) = base::split_once(matched, b'.') else {
        return Outcome::Unrelated;
    };
    let digits = base::base64_bytes(id).filter(u8::is_ascii_digit).count();
    if digits == base::base64_bytes(id).count() && ID.contains(&digits) {
        Outcome::Valid
    } else {
        Outcome::Unrelated
    }
}
