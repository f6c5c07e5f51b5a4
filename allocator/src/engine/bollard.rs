//! [`Engine`] over the Docker API, for Docker and for podman's compatible socket.
//!
//! Every call has a time limit of ours.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use bollard::errors::Error as BollardError;
use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum as State, EndpointIpamConfig,
    EndpointSettings, EventMessage, EventMessageTypeEnum, Ipam, IpamConfig, Network as ListedNetwork,
    NetworkConnectRequest, NetworkCreateRequest, NetworkDisconnectRequest, PortMap, PortSummaryTypeEnum,
};
use bollard::query_parameters::{
    EventsOptionsBuilder, InspectNetworkOptions, ListContainersOptionsBuilder, ListNetworksOptions,
    StopContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};

use super::bindings::Bindings;
use super::{
    Attachment, Container, Engine, EngineError, EngineInfo, Event, Failure, Isolation, LABEL_ROLE, Network,
    NetworkSpec, Outcome, Refused, refusal,
};
use crate::limits;
use crate::pool::ports::Proto;

type Ports = Vec<(Proto, u16)>;

/// An engine behind a Unix socket.
pub(crate) struct DockerEngine {
    docker: Docker,
    info: EngineInfo,
    bindings: Bindings,
}

impl DockerEngine {
    /// Connects and settles on an API version.
    pub(crate) async fn connect(socket: &Path) -> Outcome<Self> {
        let path = socket.to_str().ok_or_else(|| unreachable("the socket's path is not text"))?;
        let docker = Docker::connect_with_unix(path, limits::NETWORK_TIMEOUT.as_secs(), API_DEFAULT_VERSION)
            .map_err(|error| fail(&error))?;
        let docker = timed(limits::ENGINE_TIMEOUT, docker.negotiate_version()).await?;
        let info = read_info(&docker).await?;
        let bindings = Bindings::new(docker.clone());
        Ok(Self { docker, info, bindings })
    }

    async fn remove(&self, network: &str) -> Outcome<()> {
        unless(Refused::Missing, timed(limits::ENGINE_TIMEOUT, self.docker.remove_network(network)).await)
    }

    /// Takes out of a network what the engine has left over there of containers that are gone: no list shows it, and it keeps the
    /// network for ever. True if there was any.
    async fn clear_leftovers(&self, network: &str) -> Outcome<bool> {
        let call = self.docker.inspect_network(network, None::<InspectNetworkOptions>);
        let inside = timed(limits::ENGINE_TIMEOUT, call).await?.containers.unwrap_or_default();
        // An endpoint without a container stands under its own ID.
        let left = inside.into_iter().filter(|(key, _)| key.starts_with("ep-"));
        let names: Vec<String> = left.filter_map(|(_, endpoint)| endpoint.name).collect();
        for name in &names {
            tracing::warn!(%network, endpoint = %name, "an endpoint of a container that is gone is taken out");
            self.disconnect(network, name).await?;
        }
        Ok(!names.is_empty())
    }

    async fn list_containers(&self) -> Outcome<Vec<Container>> {
        let options = ListContainersOptionsBuilder::new().all(true).build();
        let listed = timed(limits::ENGINE_TIMEOUT, self.docker.list_containers(Some(options))).await?;
        let mut containers: Vec<Container> = listed.iter().filter_map(container_of).collect();
        self.bindings.fill_in(&mut containers).await?;
        Ok(containers)
    }
}

impl Engine for DockerEngine {
    fn info(&self) -> BoxFuture<'_, Outcome<EngineInfo>> {
        Box::pin(async move {
            timed(limits::ENGINE_TIMEOUT, self.docker.ping()).await?;
            Ok(self.info.clone())
        })
    }

    fn networks(&self) -> BoxFuture<'_, Outcome<Vec<Network>>> {
        Box::pin(async move {
            let listed =
                timed(limits::ENGINE_TIMEOUT, self.docker.list_networks(None::<ListNetworksOptions>)).await?;
            Ok(listed.into_iter().filter_map(network_of).collect())
        })
    }

    fn containers(&self) -> BoxFuture<'_, Outcome<Vec<Container>>> {
        Box::pin(self.list_containers())
    }

    fn create_network<'a>(&'a self, spec: &'a NetworkSpec) -> BoxFuture<'a, Outcome<String>> {
        Box::pin(async move {
            let made = timed(limits::NETWORK_TIMEOUT, self.docker.create_network(request_of(spec))).await?;
            Ok(made.id)
        })
    }

    fn remove_network<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            match self.remove(id).await {
                Err(error) if error.failure == Failure::Refused(Refused::InUse) => {
                    if self.clear_leftovers(id).await? { self.remove(id).await } else { Err(error) }
                }
                other => other,
            }
        })
    }

    fn connect<'a>(
        &'a self,
        network: &'a str,
        container: &'a str,
        address: Ipv4Addr,
    ) -> BoxFuture<'a, Outcome<()>> {
        let ipam_config =
            Some(EndpointIpamConfig { ipv4_address: Some(address.to_string()), ..Default::default() });
        let endpoint_config = Some(EndpointSettings { ipam_config, ..Default::default() });
        let request = NetworkConnectRequest { container: container.to_owned(), endpoint_config };
        Box::pin(async move {
            let call = self.docker.connect_network(network, request);
            unless(Refused::Already, timed(limits::ENGINE_TIMEOUT, call).await)
        })
    }

    fn disconnect<'a>(&'a self, network: &'a str, container: &'a str) -> BoxFuture<'a, Outcome<()>> {
        let request = NetworkDisconnectRequest { container: container.to_owned(), force: Some(true) };
        Box::pin(async move {
            let call = self.docker.disconnect_network(network, request);
            unless(Refused::Missing, timed(limits::ENGINE_TIMEOUT, call).await)
        })
    }

    fn stop<'a>(&'a self, container: &'a str) -> BoxFuture<'a, Outcome<()>> {
        let seconds = i32::try_from(limits::CONTAINER_STOP.as_secs()).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(seconds).build();
        Box::pin(async move {
            let call = self.docker.stop_container(container, Some(options));
            let stopped = timed(limits::ENGINE_TIMEOUT + limits::CONTAINER_STOP, call).await;
            unless(Refused::Missing, unless(Refused::Already, stopped))
        })
    }

    fn events(&self) -> BoxStream<'static, Outcome<Event>> {
        // Never by label: network events carry none, and a label filter would drop them all.
        let filters = HashMap::from([("type", vec!["network", "container"])]);
        let options = EventsOptionsBuilder::new().filters(&filters).build();
        let docker = self.docker.clone();
        Box::pin(docker.events(Some(options)).filter_map(|item| async move {
            match item {
                Ok(message) => event_of(message).map(Ok),
                Err(error) => Some(Err(fail(&error))),
            }
        }))
    }
}

async fn read_info(docker: &Docker) -> Outcome<EngineInfo> {
    let version = timed(limits::ENGINE_TIMEOUT, docker.version()).await?;
    let info = timed(limits::ENGINE_TIMEOUT, docker.info()).await?;
    let components = version.components.unwrap_or_default();
    let names = components.iter().map(|component| component.name.as_str());
    let platform = version.platform.map(|platform| platform.name).unwrap_or_default();
    let podman = names.chain([platform.as_str()]).any(|name| name.to_lowercase().contains("podman"));
    let security = info.security_options.unwrap_or_default();
    Ok(EngineInfo {
        product: if podman { "podman".into() } else { "docker".into() },
        version: version.version.unwrap_or_default(),
        api: version.api_version.as_deref().and_then(api_version).unwrap_or_default(),
        podman,
        rootless: security.iter().any(|option| option.contains("name=rootless")),
        operating_system: info.operating_system.unwrap_or_default(),
    })
}

fn api_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(super) async fn timed<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, BollardError>>,
) -> Outcome<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(fail(&error)),
        Err(_) => Err(EngineError {
            failure: Failure::Unknown,
            message: format!("no answer within {} s", limit.as_secs()),
        }),
    }
}

/// The failure behind a library error. Only a connection that was never made proves that nothing was done.
fn fail(error: &BollardError) -> EngineError {
    let failure = match error {
        BollardError::DockerResponseServerError { status_code, message } => {
            let message = message.clone();
            let failure = Failure::Refused(refusal::classify(*status_code, &message));
            return EngineError { failure, message };
        }
        BollardError::SocketNotFoundError(_) => Failure::Unreachable,
        BollardError::HyperLegacyError { err } if err.is_connect() => Failure::Unreachable,
        _ => Failure::Unknown,
    };
    EngineError { failure, message: crate::error::chain(error) }
}

fn unreachable(why: &str) -> EngineError {
    EngineError { failure: Failure::Unreachable, message: why.to_owned() }
}

fn unless(harmless: Refused, outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Err(error) if error.failure == Failure::Refused(harmless) => Ok(()),
        other => other,
    }
}

fn request_of(spec: &NetworkSpec) -> NetworkCreateRequest {
    let pool = IpamConfig {
        subnet: Some(spec.subnet.to_string()),
        ip_range: Some(spec.dynamic.to_string()),
        gateway: Some(spec.gateway.to_string()),
        auxiliary_addresses: None,
    };
    let option = spec.internal.map(|means| match means {
        Isolation::GatewayMode => {
            ("com.docker.network.bridge.gateway_mode_ipv4".to_owned(), "isolated".to_owned())
        }
        Isolation::InhibitIpv4 => ("com.docker.network.bridge.inhibit_ipv4".to_owned(), "true".to_owned()),
    });
    NetworkCreateRequest {
        name: spec.name.clone(),
        driver: Some("bridge".into()),
        internal: Some(spec.internal.is_some()),
        enable_ipv6: Some(false),
        ipam: Some(Ipam { driver: Some("default".into()), config: Some(vec![pool]), options: None }),
        options: Some(option.into_iter().collect()),
        labels: Some(spec.labels.clone().into_iter().collect()),
        ..Default::default()
    }
}

/// A listed network. Missing or malformed parts are left out: an unreadable subnet of one network must not hide the others.
fn network_of(listed: ListedNetwork) -> Option<Network> {
    let pools = listed.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    Some(Network {
        id: listed.id?,
        name: listed.name.unwrap_or_default(),
        driver: listed.driver.unwrap_or_default(),
        labels: listed.labels.unwrap_or_default().into_iter().collect(),
        subnets: pools.iter().filter_map(|pool| pool.subnet.as_deref()?.trim().parse().ok()).collect(),
        gateways: pools.into_iter().filter_map(|pool| pool.gateway).collect(),
    })
}

fn container_of(listed: &ContainerSummary) -> Option<Container> {
    let published = listed.ports.iter().flatten().filter_map(|port| {
        let proto = match port.typ? {
            PortSummaryTypeEnum::TCP => Proto::Tcp,
            PortSummaryTypeEnum::UDP => Proto::Udp,
            PortSummaryTypeEnum::EMPTY | PortSummaryTypeEnum::SCTP => return None,
        };
        Some((proto, port.public_port?))
    });
    let networks = listed.network_settings.iter().filter_map(|settings| settings.networks.as_ref()).flatten();
    let attachments = networks.map(|(_, endpoint)| Attachment {
        network_id: endpoint.network_id.clone().unwrap_or_default(),
        address: endpoint.ip_address.as_deref().and_then(|text| text.parse().ok()),
    });
    let name = listed.names.iter().flatten().next().map(|name| name.trim_start_matches('/').to_owned());
    Some(Container {
        id: listed.id.clone()?,
        name: name.unwrap_or_default(),
        labels: listed.labels.clone().unwrap_or_default().into_iter().collect::<BTreeMap<_, _>>(),
        running: matches!(listed.state, Some(State::RUNNING | State::PAUSED | State::STOPPING)),
        restarting: listed.state == Some(State::RESTARTING),
        created: listed.created.unwrap_or_default(),
        published: published.collect(),
        will_publish: Vec::new(),
        attachments: attachments.collect(),
    })
}

pub(super) fn bindings_of(inspected: &ContainerInspectResponse) -> Ports {
    let map = inspected.host_config.as_ref().and_then(|config| config.port_bindings.as_ref());
    map.map(ports_of).unwrap_or_default()
}

/// The host ports of a container's bindings: single numbers and ranges; an empty one is the engine's to choose.
fn ports_of(map: &PortMap) -> Ports {
    let mut ports = Vec::new();
    for (inner, bindings) in map {
        let proto = if inner.ends_with("/udp") { Proto::Udp } else { Proto::Tcp };
        for text in bindings.iter().flatten().filter_map(|binding| binding.host_port.as_deref()) {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            if let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
                ports.extend((first..=last).filter(|number| *number != 0).map(|number| (proto, number)));
            }
        }
    }
    ports
}

fn event_of(message: EventMessage) -> Option<Event> {
    let kind = match message.typ? {
        EventMessageTypeEnum::NETWORK => "network",
        EventMessageTypeEnum::CONTAINER => "container",
        _ => return None,
    };
    let actor = message.actor.unwrap_or_default();
    // A container's labels stand among its attributes.
    let mut attributes = actor.attributes.unwrap_or_default();
    Some(Event {
        kind,
        action: message.action.unwrap_or_default(),
        id: actor.id.unwrap_or_default(),
        name: attributes.remove("name").unwrap_or_default(),
        role: attributes.remove(LABEL_ROLE),
    })
}

#[cfg(test)]
mod tests {
    use bollard::models::PortBinding;

    use super::*;

    #[test]
    fn bindings_are_numbers_ranges_or_nothing() {
        let binding = |port: &str| PortBinding { host_ip: None, host_port: Some(port.into()) };
        let map: PortMap = HashMap::from([
            ("80/tcp".into(), Some(vec![binding("20001"), binding("")])),
            ("53/udp".into(), Some(vec![binding("20010-20012")])),
            ("81/tcp".into(), None),
            ("82/tcp".into(), Some(vec![binding("0"), binding("nonsense"), binding("70000")])),
        ]);
        let mut ports = ports_of(&map);
        ports.sort_unstable();
        assert_eq!(
            ports,
            [(Proto::Tcp, 20001), (Proto::Udp, 20010), (Proto::Udp, 20011), (Proto::Udp, 20012)]
        );
    }

    #[test]
    fn a_network_without_addresses_is_still_a_network() {
        let pool = |subnet: &str| IpamConfig { subnet: Some(subnet.into()), ..Default::default() };
        let config = vec![pool("10.252.9.5/24"), pool("junk"), pool("fd00::/64"), IpamConfig::default()];
        let ipam = Some(Ipam { config: Some(config), ..Default::default() });
        let network = network_of(ListedNetwork { id: Some("1f".into()), ipam, ..Default::default() })
            .expect("it has an ID");
        assert_eq!(network.subnets.len(), 2);
        let bare =
            network_of(ListedNetwork { id: Some("2e".into()), ..Default::default() }).expect("it has an ID");
        assert_eq!(bare.subnets, []);
    }
}
