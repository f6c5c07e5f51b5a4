//! Policy: which bottle may reach which target, and what is inspected on the way.
//!
//! Invariant: only this module makes an [`Authorized`]; the connector dials nothing else, so a target that policy
//! has not approved cannot be reached.

use std::ops::Deref;

/// Proof that policy approved `T`. Only this module can make one.
#[derive(Clone, Debug)]
pub(crate) struct Authorized<T>(T);

impl<T> Deref for Authorized<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
