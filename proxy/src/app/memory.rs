//! The gateway's memory: who it is kept for, and what the metrics say of it.

use super::Gateway;
use crate::budget::Kind;
use crate::identity::IdentityTable;

impl Gateway {
    /// Keeps memory for each bottle of the table, so that none can be starved by the others.
    pub(super) fn keep_for(&self, table: &IdentityTable) {
        let bottles = table.entries().iter().map(|entry| entry.bottle.key.clone());
        let without = self.admission.know_only(&bottles.chain([self.probe.bottle.key.clone()]).collect());
        if without > 0 {
            tracing::warn!(
                bottles = without,
                "there is no memory to keep for every bottle: raise memory.budget"
            );
        }
    }

    /// Brings the metrics of memory up to date.
    pub(crate) fn measure_memory(&self) {
        let reserved = self.admission.reserved();
        let kinds = Kind::ALL.iter().map(|kind| (kind.name(), reserved.of(*kind)));
        self.metrics.set_memory(self.memory.budget, kinds.chain([("shared", self.memory.shared)]));
    }
}
