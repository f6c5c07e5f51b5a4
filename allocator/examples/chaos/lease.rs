//! The allocator as a launcher asks it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::docker::ask;

/// The allocator's socket of a run.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("allocator.sock")
}

/// A lease, as far as a launcher needs it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: String,
    pub(crate) ports: Vec<u16>,
    pub(crate) network: Option<String>,
    pub(crate) cidr: Option<String>,
}

/// Leases so many ports, and a network if asked for. The lease ends with this process.
pub(crate) fn acquire(dir: &Path, key: &str, ports: usize, network: bool) -> Result<Lease, String> {
    let ports: Vec<Value> = (0..ports).map(|index| json!({"name": format!("p{index}")})).collect();
    let mut body = json!({"client_key": key, "ports": ports, "owner": {"pid": std::process::id()}});
    if network {
        body["subnet"] = json!({"create_network": true});
    }
    let (status, answer) =
        ask(&socket(dir), "POST", "/v1/leases", &body).map_err(|error| error.to_string())?;
    if status != 201 {
        return Err(format!("{status} {}", answer["detail"]));
    }
    let numbers = answer["ports"].as_array().into_iter().flatten();
    Ok(Lease {
        id: answer["id"].as_str().unwrap_or_default().to_owned(),
        ports: numbers.filter_map(|port| u16::try_from(port["number"].as_u64()?).ok()).collect(),
        network: answer["subnet"]["network_name"].as_str().map(str::to_owned),
        cidr: answer["subnet"]["cidr"].as_str().map(str::to_owned),
    })
}

pub(crate) fn release(dir: &Path, lease: &Lease) {
    drop(ask(&socket(dir), "DELETE", &format!("/v1/leases/{}", lease.id), &Value::Null));
}

/// How many leases hold something.
pub(crate) fn live(dir: &Path) -> usize {
    let answer = ask(&socket(dir), "GET", "/v1/leases", &Value::Null);
    answer.ok().and_then(|(_, body)| Some(body["leases"].as_array()?.len())).unwrap_or(usize::MAX)
}

/// The name of the run's allocator, as its networks carry it.
pub(crate) fn instance(dir: &Path) -> String {
    let answer = ask(&socket(dir), "GET", "/v1/status", &Value::Null);
    answer.ok().and_then(|(_, body)| Some(body["instance"].as_str()?.to_owned())).unwrap_or_default()
}
