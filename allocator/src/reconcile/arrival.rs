//! The gateway's arrival: a container of it that has just started is attached to the network of every lease at once.
//!
//! The plan would come to that too, but a round of it looks at everything first and ends with its slowest step, and a container that
//! is being stopped takes ten seconds. Here the event and the ledger are all that is asked. Whatever fails is left to the plan.

use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use crate::engine::{Engine, Event, ROLE_GATEWAY};
use crate::limits;
use crate::service::Service;

/// The container that an event tells to have started, if it is the gateway.
///
/// One that carries the label and another name is the gateway unless a container of the configured name is known to run.
pub(super) async fn arrived<'event>(service: &Service, event: &'event Event) -> Option<&'event str> {
    let name = service.gateway_name()?;
    if (event.kind, event.action.as_str()) != ("container", "start") {
        return None;
    }
    if event.name == name {
        return Some(&event.id);
    }
    if event.role.as_deref() != Some(ROLE_GATEWAY) {
        return None;
    }
    let world = service.worlds.glance(limits::RECONCILE_EVERY).await.ok();
    let named = world.is_some_and(|world| world.gateway(name).is_some_and(|gateway| gateway.name == name));
    (!named).then_some(&event.id)
}

/// Attaches a gateway's container wherever a lease has a network, each time at the address kept for it.
pub(super) async fn attach(service: Arc<Service>, engine: Arc<dyn Engine>, container: String) {
    let networks = service.ledger.read(|book| {
        let bottles = book.live().filter(|lease| lease.is_bottle());
        let places = bottles
            .filter_map(|lease| Some((lease.network_id()?.to_owned(), lease.subnet.as_ref()?.reserved())));
        places.collect::<Vec<(String, Ipv4Addr)>>()
    });
    // A ledger that does not answer has ended the allocator already.
    let Ok(networks) = networks.await else { return };
    tracing::info!(%container, networks = networks.len(), "the gateway has started and is attached");
    let (engine, container) = (&engine, &container);
    stream::iter(networks)
        .for_each_concurrent(limits::ENGINE_PARALLEL, |(network, address)| async move {
            if let Err(error) = engine.connect(&network, container, address).await {
                tracing::debug!(%network, %container, %error, "left to the next reconciliation");
            }
        })
        .await;
}
