//! The words in which engines refuse.
//!
//! The status is a hint only: the same refusal has come as 400, 403, 404, 409 and 500 over the years and tools. The text decides; a
//! text that is not known is not taken for a conflict.

/// What a refusal means to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The subnet overlaps one that the engine knows: try the next.
    Overlap,
    /// A network of that name exists.
    NameTaken,
    /// The network still has endpoints.
    InUse,
    /// No such network or container.
    Missing,
    /// The address in the network is held by another container.
    AddressTaken,
    /// Already so: attached, or stopped.
    Already,
    /// Anything else.
    Other,
}

const OVERLAP: [&str; 8] = [
    "pool overlaps with other one on this address space",
    "networks have overlapping ipv4",
    "is already used on the host or by another config",
    "is being used by a network interface",
    "is already being used by a cni configuration",
    "already used by network interface",
    "overlaps with existing network",
    "subnet already in use",
];

/// Reads a refusal.
pub(crate) fn classify(status: u16, message: &str) -> Refused {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&OVERLAP) || (text.contains("subnet") && text.contains("already used")) {
        Refused::Overlap
    } else if says(&[
        "has active endpoints",
        "network is being used",
        "network has associated containers",
        "is in use by container",
    ]) {
        Refused::InUse
    } else if says(&["address already in use", "address is already in use", "requested ip address"]) {
        Refused::AddressTaken
    } else if says(&[
        "already exists in network",
        "already attached to network",
        "is already connected to",
        "endpoint with name",
    ]) {
        Refused::Already
    } else if text.contains("already exists") {
        Refused::NameTaken
    } else if status == 404
        || says(&["no such network", "no such container", "network not found", "is not connected to"])
    {
        Refused::Missing
    } else if status == 304 {
        Refused::Already
    } else {
        Refused::Other
    }
}

/// What a launcher's report about a port says of the port's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortTrouble {
    /// The engine's own table has it.
    Engine,
    /// A socket of the host has it.
    Host,
    /// The system does not allow it.
    Forbidden,
    /// Not said in known words.
    Unsaid,
}

impl PortTrouble {
    pub(crate) const ALL: [Self; 4] = [Self::Engine, Self::Host, Self::Forbidden, Self::Unsaid];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Host => "host",
            Self::Forbidden => "forbidden",
            Self::Unsaid => "unsaid",
        }
    }
}

/// Reads the message of a container that could not start on its port.
pub(crate) fn classify_port(message: &str) -> PortTrouble {
    let text = message.to_lowercase();
    if text.contains("port is already allocated") || text.contains("proxy already running") {
        PortTrouble::Engine
    } else if text.contains("forbidden by its access permissions") || text.contains("permission denied") {
        PortTrouble::Forbidden
    } else if [
        "address already in use",
        "failed to bind host port",
        "rootlessport",
        "ports are not available",
        "only one usage",
    ]
    .iter()
    .any(|words| text.contains(words))
    {
        PortTrouble::Host
    } else {
        PortTrouble::Unsaid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_text_is_read() {
        use Refused::*;
        let cases = [
            (403, "Pool overlaps with other one on this address space", Overlap),
            (403, "invalid pool request: Pool overlaps with other one on this address space", Overlap),
            (
                403,
                "cannot create network 1f (br-1f): conflicts with network 2e (br-2e): networks have overlapping IPv4",
                Overlap,
            ),
            (409, "conflicts with network 2e (br-2e): networks have overlapping IPv4", Overlap),
            (500, "subnet 10.89.0.0/24 is already used on the host or by another config", Overlap),
            (500, "subnet 10.89.0.0/24 is being used by a network interface", Overlap),
            (500, "network 10.88.0.0/16 is already being used by a cni configuration", Overlap),
            (
                404,
                "could not find an available, non-overlapping IPv4 address pool among the defaults",
                Missing,
            ),
            (400, "all predefined address pools have been fully subnetted", Other),
            (409, "network with name decant-1 already exists", NameTaken),
            (500, "network name decant-1 already used: network already exists", NameTaken),
            (403, "error while removing network: network decant-1 id 1f has active endpoints", InUse),
            (403, "network n has active endpoints (name:\"c\" id:\"1f\")", InUse),
            (404, "network 1f not found", Missing),
            (404, "No such container: 1f", Missing),
            (403, "Address already in use", AddressTaken),
            (403, "endpoint with name gw already exists in network decant-1", Already),
            (500, "driver failed", Other),
            (503, "", Other),
        ];
        for (status, message, expected) in cases {
            assert_eq!(classify(status, message), expected, "{status} {message}");
        }
    }

    #[test]
    fn every_known_port_text_is_read() {
        let cases = [
            ("Bind for 0.0.0.0:20010 failed: port is already allocated", PortTrouble::Engine),
            (
                "driver failed programming external connectivity: listen tcp4 0.0.0.0:20010: bind: address already in use",
                PortTrouble::Host,
            ),
            ("failed to bind host port 0.0.0.0:20010/tcp: address already in use", PortTrouble::Host),
            ("rootlessport listen tcp 0.0.0.0:20010: bind: address already in use", PortTrouble::Host),
            ("Ports are not available: exposing port TCP 0.0.0.0:20010", PortTrouble::Host),
            (
                "An attempt was made to access a socket in a way forbidden by its access permissions.",
                PortTrouble::Forbidden,
            ),
            ("boom", PortTrouble::Unsaid),
        ];
        for (message, expected) in cases {
            assert_eq!(classify_port(message), expected, "{message}");
        }
    }
}
