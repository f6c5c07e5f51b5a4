//! Identity: which bottle a connection belongs to, pinned when it is accepted.

use std::sync::Arc;

/// Names a bottle in every cache, pool and log: its name and the epoch of the lease it came with (0 for a
/// configured bottle), so that nothing of an earlier bottle of the same name is ever reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BottleKey {
    /// The bottle's name, as in configuration, logs and metrics.
    pub(crate) name: Arc<str>,
    /// The epoch of the lease; 0 where the bottle has none.
    pub(crate) epoch: u64,
}
