//! The gateway's memory: who it is kept for, and what the metrics say of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Gateway;
use crate::budget::{Kind, resident_of};
use crate::identity::IdentityTable;

/// Time between two looks at what the workers before this one still hold.
const LOOK: Duration = Duration::from_millis(500);

/// Leaves to the workers `before` this one what they hold, until they have ended: all of them together have one budget.
/// What they hold now is left to them when this returns; the rest is a task's, as it ends with them.
pub(crate) fn leave_room_for(gateway: &Arc<Gateway>, before: Vec<u32>) {
    let held = move || before.iter().map(|pid| resident_of(*pid)).sum::<u64>();
    let first = held();
    if first == 0 {
        return;
    }
    let mut left = gateway.admission.charge(first);
    let gateway: Weak<Gateway> = Arc::downgrade(gateway);
    tokio::spawn(async move {
        while left.bytes() > 0 {
            tokio::time::sleep(LOOK).await;
            let Some(gateway) = gateway.upgrade() else { return };
            // First the new amount, then the old is given back: nobody gets in between.
            left = gateway.admission.charge(held());
        }
    });
}

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
