//! Who gives way when memory runs out although the ledger says that there is some.
//!
//! What things cost is measured, and a peer that means harm finds something that costs more. The kernel would end the
//! worker, and with it every bottle's exchanges. So the resident memory is looked at all the time, and where it comes
//! close to the budget and still grows, the bottle that holds most loses connections, the busiest and youngest first.
//! Invariant: a bottle that holds little loses none, and nobody does while memory stands still: a heap that was large
//! once keeps its pages, and uses them again.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::app::Gateway;
use crate::budget::{Headroom, resident_own};
use crate::listen::Connection;

/// Time between two looks: what fits into it has to fit into what is left of the budget.
const LOOK: Duration = Duration::from_millis(20);

/// Of the connections of a bottle, this part is closed at once.
const CLOSED_PART: usize = 16;

/// Closes connections where memory runs out, as long as the gateway lives. A task of its own, as nobody else is there at
/// all times.
pub(crate) async fn watch(gateway: Weak<Gateway>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut headroom = Headroom::default();
    loop {
        looks.tick().await;
        let Some(gateway) = gateway.upgrade() else { return };
        if headroom.is_exhausted(resident_own(), gateway.memory.budget) {
            relieve(&gateway);
        }
    }
}

fn relieve(gateway: &Gateway) {
    let Some(largest) = gateway.admission.largest() else { return };
    let mut its: Vec<Arc<Connection>> = gateway.connections.living();
    its.retain(|connection| connection.bottle.as_ref().is_some_and(|bottle| bottle.key == largest));
    // Those that were accepted last come last.
    its.reverse();
    its.sort_by_cached_key(|connection| Reverse(connection.exchanges.living().len()));
    its.truncate(its.len().div_ceil(CLOSED_PART));
    let (bottle, connections) = (&largest.name, its.len());
    tracing::warn!(%bottle, connections, "connections were closed: memory runs out, and this bottle holds most of it");
    for connection in its {
        gateway.metrics.shed.with_label_values(&["memory.budget"]).inc();
        connection.stop();
    }
}
