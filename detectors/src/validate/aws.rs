//! AWS access key ids: four letters, then 16 of base32 that hold the account's number.

use super::base;
use super::{Outcome, entropy};

/// The 16 characters must be base32 (0, 1, 8 and 9 never occur) and not a sample's.
///
/// The account stands in the id without a checksum, so nothing here can raise the confidence.
pub(super) fn key_id(matched: &[u8]) -> Outcome {
    let Some((_, body)) = matched.split_at_checked(4) else {
        return Outcome::Failed;
    };
    if body.ends_with(b"EXAMPLE") || !body.iter().copied().all(base::is_base32) {
        return Outcome::Failed;
    }
    entropy::token(body)
}
