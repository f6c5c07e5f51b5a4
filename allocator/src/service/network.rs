//! Making a lease's network.
//!
//! The intent is durable before the engine is asked; the network carries the lease in its labels. So whatever is lost on the way (the
//! answer, the allocator) the network is found by its label and adopted or removed. Networks are named for people and acted on by ID.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::book::decide;
use crate::engine::{
    Engine, EngineError, Failure, Isolation, LABEL_EPOCH, LABEL_INSTANCE, LABEL_LEASE, LABEL_SESSION,
    NetworkSpec, Refused,
};
use crate::error::{Error, Pool};
use crate::lease::Lease;
use crate::limits;
use crate::pool::subnets::overlap;
use crate::world::World;

use super::Service;

impl Service {
    /// Makes the network of a reserved lease, on another subnet if the engine refuses the first, and attaches the gateway.
    pub(super) async fn make_network(&self, mut lease: Lease, world: &World) -> Result<Lease, Error> {
        let engine = self.worlds.engine().await.map_err(|why| Error::Engine { why, source: None })?;
        for _ in 0..limits::SUBNET_TRIES_MAX {
            let spec = self.network_spec(&lease, world)?;
            match self.create_or_find(&*engine, &lease, &spec).await {
                Ok(id) => {
                    let lease = self.record_network(&lease, &id).await?;
                    self.check_isolated(&lease).await?;
                    self.attach_gateway(&*engine, &lease, &id, world).await?;
                    return Ok(lease);
                }
                Err(error) if error.failure == Failure::Refused(Refused::Overlap) => {
                    tracing::debug!(lease = %lease.id, subnet = %spec.subnet, %error, "the engine refused a subnet");
                    self.metrics.conflict("subnet");
                    lease = self.next_subnet(&lease).await?;
                }
                Err(error) => return Err(Error::engine("creating a network", error)),
            }
        }
        Err(Error::exhausted(Pool::Subnets))
    }

    /// The network as the engine is to make it.
    pub(crate) fn network_spec(&self, lease: &Lease, world: &World) -> Result<NetworkSpec, Error> {
        let (Some(subnet), Some(network)) = (&lease.subnet, lease.network()) else {
            return Err(Error::NotReady);
        };
        let internal = if network.internal { Some(isolation(world)?) } else { None };
        let labels = [
            (LABEL_LEASE, lease.id.to_string()),
            (LABEL_SESSION, lease.session.clone()),
            (LABEL_EPOCH, lease.epoch.to_string()),
            (LABEL_INSTANCE, self.ledger.instance().to_owned()),
        ];
        Ok(NetworkSpec {
            name: network.name.clone(),
            subnet: subnet.net,
            dynamic: subnet.dynamic(),
            gateway: subnet.bridge(),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            internal,
        })
    }

    /// Creates the network; where the outcome is unknown or the name taken, looks for it by label.
    pub(crate) async fn create_or_find(
        &self,
        engine: &dyn Engine,
        lease: &Lease,
        spec: &NetworkSpec,
    ) -> Result<String, EngineError> {
        let error = match engine.create_network(spec).await {
            Ok(id) => return Ok(id),
            Err(error) => error,
        };
        if !matches!(error.failure, Failure::Unknown | Failure::Refused(Refused::NameTaken)) {
            return Err(error);
        }
        tracing::warn!(lease = %lease.id, %error, "looking for a network whose creation is in doubt");
        self.adopt(engine, lease, spec).await?.ok_or(error)
    }

    /// The network that carries the lease's label and its subnet; others of the lease are removed.
    async fn adopt(
        &self,
        engine: &dyn Engine,
        lease: &Lease,
        spec: &NetworkSpec,
    ) -> Result<Option<String>, EngineError> {
        let mut adopted = None;
        for network in engine.networks().await? {
            let ours = network.label(LABEL_INSTANCE) == Some(self.ledger.instance());
            if !ours || network.label(LABEL_LEASE) != Some(lease.id.as_str()) {
                continue;
            }
            if adopted.is_none() && network.subnets.contains(&spec.subnet.into()) {
                adopted = Some(network.id);
            } else {
                engine.remove_network(&network.id).await?;
            }
        }
        Ok(adopted)
    }

    /// Records which network a lease has.
    pub(crate) async fn record_network(&self, lease: &Lease, network: &str) -> Result<Lease, Error> {
        let (id, network) = (lease.id.clone(), network.to_owned());
        self.ledger.record(move |book| decide::set_network(book, &id, Some(&network), false)).await
    }

    async fn next_subnet(&self, lease: &Lease) -> Result<Lease, Error> {
        if let Some(subnet) = &lease.subnet {
            self.passed_over().nets.insert(subnet.net, Instant::now());
        }
        let world = self.look().await?;
        self.engine_needed(&world)?;
        let (id, blocked) = (lease.id.clone(), self.blocked(&world, true).subnets);
        self.ledger.record(move |book| decide::swap_subnet(book, &id, &blocked)).await
    }

    /// An internal network on which this host has an address after all is no isolation: refused by its effect, whatever the engine
    /// made of the option.
    async fn check_isolated(&self, lease: &Lease) -> Result<(), Error> {
        let (Some(subnet), Some(network)) = (&lease.subnet, lease.network()) else { return Ok(()) };
        if !network.internal {
            return Ok(());
        }
        let routes = self.worlds.host().routes().await;
        let routes = routes
            .map_err(|source| Error::Host { why: "the host's addresses cannot be read".into(), source })?;
        if routes.iter().any(|route| route.address && overlap(&route.net, &subnet.net)) {
            let why = "it gave the host an address on an internal network, so its bottles would reach every service of the host";
            return Err(Error::Engine { why: why.into(), source: None });
        }
        Ok(())
    }

    /// Attaches the gateway's container at its reserved address, before anything else can run in the network. One that was made anew
    /// since the look is found by another.
    async fn attach_gateway(
        &self,
        engine: &dyn Engine,
        lease: &Lease,
        network: &str,
        world: &World,
    ) -> Result<(), Error> {
        let (Some(name), Some(subnet)) = (self.gateway_name(), &lease.subnet) else { return Ok(()) };
        let attach = async |world: &World| {
            let none = || Error::Gateway(format!("no container named {name} runs"));
            let gateway = world.gateway(name).ok_or_else(none)?;
            let attached = engine.connect(network, &gateway.id, subnet.reserved()).await;
            attached.map_err(|error| Error::engine("attaching the gateway", error))
        };
        let outcome = attach(world).await;
        if outcome.is_ok() {
            return outcome;
        }
        let fresh = self.look_anew().await?;
        let id = |world: &World| world.gateway(name).map(|gateway| gateway.id.clone());
        if id(&fresh) == id(world) { outcome } else { attach(&fresh).await }
    }
}

fn isolation(world: &World) -> Result<Isolation, Error> {
    let why = match world.view() {
        None => "it is not reachable".to_owned(),
        Some(view) => match view.info.isolation() {
            Some(isolation) => return Ok(isolation),
            None => format!(
                "{} {} cannot keep the host's addresses off an internal network, so its bottles would reach every service of the host",
                view.info.product, view.info.version
            ),
        },
    };
    Err(Error::Engine { why, source: None })
}
