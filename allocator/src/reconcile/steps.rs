//! Carrying a plan out: each step converges, none decides.

use futures_util::StreamExt;
use futures_util::stream;

use crate::book::decide;
use crate::engine::{Engine, Failure, Refused};
use crate::error::{Error, chain};
use crate::lease::LeaseId;
use crate::limits;
use crate::plan::{Group, Step};
use crate::service::Service;
use crate::world::World;

/// Does every group, a few at a time. Returns each with the error that ended it, if one did.
pub(super) async fn carry_out(
    service: &Service,
    world: &World,
    groups: Vec<Group>,
) -> Vec<(Group, Result<(), String>)> {
    let outcomes = stream::iter(groups).map(async |group| {
        let outcome = carry_out_group(service, world, &group).await;
        (group, outcome.map_err(|error| chain(&error)))
    });
    outcomes.buffer_unordered(limits::ENGINE_PARALLEL).collect().await
}

async fn carry_out_group(service: &Service, world: &World, group: &Group) -> Result<(), Error> {
    for step in group {
        carry_out_step(service, world, step).await?;
        tracing::debug!(?step, "done");
    }
    Ok(())
}

async fn carry_out_step(service: &Service, world: &World, step: &Step) -> Result<(), Error> {
    let (ledger, now) = (&service.ledger, service.clock.now());
    match step.clone() {
        Step::End(id, cause) => {
            tracing::info!(lease = %id, cause = cause.as_str(), "a lease ends");
            ledger.record(move |book| decide::end_as_planned(book, &id, cause, now)).await?;
            service.settle_guards().await
        }
        Step::OwnerSeen(id) => ledger.record(move |book| decide::owner_seen(book, &id)).await.map(drop),
        Step::Finish(id) => {
            let lease = ledger.record(move |book| decide::finish(book, &id)).await?;
            service.hub.drop_lease(&lease.id, lease.epoch);
            tracing::debug!(lease = %lease.id, "a lease has given back everything");
            Ok(())
        }
        Step::Restore(id) => restore(service, world, id).await,
        Step::Attach { network, container, address } => {
            let engine = engine(service).await?;
            engine
                .connect(&network, &container, address)
                .await
                .map_err(|error| Error::engine("attaching the gateway", error))
        }
        Step::Detach { network, container } => {
            let engine = engine(service).await?;
            engine
                .disconnect(&network, &container)
                .await
                .map_err(|error| Error::engine("detaching a container", error))
        }
        Step::Stop { container } => {
            let engine = engine(service).await?;
            engine.stop(&container).await.map_err(|error| Error::engine("stopping a container", error))
        }
        Step::RemoveNetwork(id) => {
            let engine = engine(service).await?;
            engine.remove_network(&id).await.map_err(|error| Error::engine("removing a network", error))
        }
    }
}

async fn engine(service: &Service) -> Result<std::sync::Arc<dyn Engine>, Error> {
    service.worlds.engine().await.map_err(|why| Error::Engine { why, source: None })
}

/// Makes a vanished network again. Its subnet may be somebody else's by now: then the lease says so until it ends.
async fn restore(service: &Service, world: &World, id: LeaseId) -> Result<(), Error> {
    let lookup = id.clone();
    let Some(lease) = service.ledger.read(move |book| book.lease(&lookup).cloned()).await? else {
        return Ok(());
    };
    let spec = service.network_spec(&lease, world)?;
    let engine = engine(service).await?;
    match service.create_or_find(&*engine, &lease, &spec).await {
        Ok(network) => {
            tracing::warn!(lease = %lease.id, "the lease's network had vanished; it was made again");
            service.record_network(&lease, &network).await.map(drop)
        }
        Err(error) if error.failure == Failure::Refused(Refused::Overlap) => {
            if lease.network().is_some_and(|network| network.lost) {
                return Err(Error::engine("restoring a network", error));
            }
            tracing::warn!(lease = %lease.id, %error, "the lease's network has vanished and its subnet is taken");
            service.metrics.conflict("lease");
            service.ledger.record(move |book| decide::set_network(book, &id, None, true)).await.map(drop)
        }
        Err(error) => Err(Error::engine("restoring a network", error)),
    }
}
