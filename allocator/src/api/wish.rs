//! From a request's JSON to a wish, checked for form.

use std::collections::HashSet;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::types::{AcquireRequest, OwnerRequest, PortRequest};
use crate::book::decide::{SubnetWish, Wish};
use crate::error::Error;
use crate::host::{Host, process};
use crate::lease::{Owner, Process};
use crate::limits;
use crate::pool::ports::PortWish;

/// Checks a request. `peer`: the client's process, as the kernel names it.
pub(crate) fn wish_of(
    request: &AcquireRequest,
    ttl: Duration,
    peer: Option<i32>,
    host: &dyn Host,
) -> Result<Wish, Error> {
    check_text("client_key", &request.client_key, limits::CLIENT_KEY_CHARS_MAX)?;
    let session = request
        .session
        .clone()
        .unwrap_or_else(|| request.client_key.chars().take(limits::NAME_CHARS_MAX).collect());
    check_text("session", &session, limits::NAME_CHARS_MAX)?;
    if let Some(policy) = &request.policy {
        check_text("policy", policy, limits::NAME_CHARS_MAX)?;
    }
    if request.ports.is_empty() && request.subnet.is_none() {
        return invalid("ports", "a lease holds ports, a subnet or both; this request names neither");
    }
    let ports = ports_of(&request.ports)?;
    let ttl = request.ttl.as_deref().map_or(Ok(ttl), ttl_of)?;
    let subnet = request.subnet.map(|subnet| SubnetWish {
        prefix: subnet.prefix,
        create_network: subnet.create_network,
        internal: subnet.internal,
    });
    Ok(Wish {
        client_key: request.client_key.clone(),
        request: fingerprint(request),
        session,
        policy: request.policy.clone(),
        ports,
        subnet,
        owner: owner_of(request.owner.as_ref(), peer, host)?,
        ttl,
    })
}

/// A lifetime as text, within its bounds.
pub(crate) fn ttl_of(text: &str) -> Result<Duration, Error> {
    let ttl = decant_config::parse_duration(text)
        .map_err(|why| Error::Invalid { field: "ttl", why: why.to_string() })?;
    if !(limits::TTL_MIN..=limits::TTL_MAX).contains(&ttl) {
        return invalid("ttl", "it lies between 1s and 7d");
    }
    Ok(ttl)
}

/// What makes two requests the same: everything but the key, in one spelling.
fn fingerprint(request: &AcquireRequest) -> [u8; 32] {
    let bare = AcquireRequest { client_key: String::new(), ..request.clone() };
    let text = serde_json::to_vec(&bare).expect("a request is plain data");
    Sha256::digest(text).into()
}

fn invalid<T>(field: &'static str, why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid { field, why: why.into() })
}

fn check_text(field: &'static str, text: &str, chars_max: usize) -> Result<(), Error> {
    if text.is_empty() || text.chars().count() > chars_max {
        return invalid(field, format!("1 to {chars_max} characters"));
    }
    if text.chars().any(char::is_control) {
        return invalid(field, "control characters do not belong there");
    }
    Ok(())
}

fn ports_of(requests: &[PortRequest]) -> Result<Vec<(String, PortWish)>, Error> {
    if requests.len() > limits::PORTS_PER_LEASE_MAX {
        return invalid("ports", format!("at most {} in one lease", limits::PORTS_PER_LEASE_MAX));
    }
    let mut names = HashSet::new();
    for port in requests {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let length = 1..=limits::PORT_NAME_CHARS_MAX;
        if !length.contains(&port.name.len()) || !port.name.bytes().all(fits) {
            let longest = limits::PORT_NAME_CHARS_MAX;
            return invalid(
                "ports.name",
                format!("1 to {longest} lower-case letters, digits and hyphens, not {:?}", port.name),
            );
        }
        if !names.insert(&port.name) {
            return invalid("ports.name", format!("{:?} stands twice", port.name));
        }
    }
    Ok(requests
        .iter()
        .map(|port| (port.name.clone(), PortWish { proto: port.proto.into(), number: port.number }))
        .collect())
}

fn owner_of(request: Option<&OwnerRequest>, peer: Option<i32>, host: &dyn Host) -> Result<Owner, Error> {
    let request = request.cloned().unwrap_or_default();
    if request.labels.len() > limits::OWNER_LABELS_MAX {
        return invalid("owner.labels", format!("at most {}", limits::OWNER_LABELS_MAX));
    }
    for (key, value) in &request.labels {
        check_text("owner.labels", key, limits::LABEL_CHARS_MAX)?;
        if value.chars().count() > limits::LABEL_CHARS_MAX {
            return invalid(
                "owner.labels",
                format!("values of at most {} characters", limits::LABEL_CHARS_MAX),
            );
        }
    }
    let process = request.pid.map(|pid| process_of(pid, peer)).transpose()?;
    Ok(Owner { process, labels: request.labels, seen: false, boot_id: host.boot_id() })
}

fn process_of(pid: i32, peer: Option<i32>) -> Result<Process, Error> {
    let invalid = |why: &str| Error::Invalid { field: "owner.pid", why: why.to_owned() };
    let pid = process::resolve(pid, peer).map_err(invalid)?;
    let start_time = process::start_time(pid).ok_or_else(|| invalid("there is no such process"))?;
    Ok(Process { pid, start_time })
}

#[cfg(test)]
mod tests;
