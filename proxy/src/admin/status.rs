//! `/v1/status`: what the gateway is doing, for people and scripts.
//!
//! Invariant: facts about configuration and load alone; nothing that a bottle sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use time::format_description::well_known::Rfc3339;

use crate::app::Gateway;
use crate::identity::{BottleKey, Entry};

/// The answer.
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    uptime_seconds: u64,
    /// Where bottles send their requests.
    proxy: String,
    detectors: usize,
    resident_bytes: i64,
    /// Connections of bottles that are open now.
    connections: usize,
    ca: Ca,
    bottles: Vec<Bottle>,
}

#[derive(Serialize)]
struct Ca {
    sha256: String,
    not_after: String,
}

#[derive(Serialize)]
struct Bottle {
    name: String,
    policy: String,
    mode: &'static str,
    sources: Vec<String>,
    connections: usize,
}

/// Answers.
pub(super) async fn get(State(gateway): State<Arc<Gateway>>) -> Json<Status> {
    let authority = gateway.leaves.authority();
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: gateway.started.elapsed().as_secs(),
        proxy: gateway.proxy_address.to_string(),
        detectors: gateway.book().detectors.rules.len(),
        resident_bytes: crate::telemetry::resident_bytes().unwrap_or(0),
        connections: gateway.places.held_in_all(),
        ca: Ca {
            sha256: authority.fingerprint(),
            not_after: authority.not_after().format(&Rfc3339).unwrap_or_default(),
        },
        bottles: bottles(&gateway),
    })
}

/// Each bottle once, with all of its sources.
fn bottles(gateway: &Gateway) -> Vec<Bottle> {
    let mut by_key: BTreeMap<BottleKey, Vec<Entry>> = BTreeMap::new();
    for entry in gateway.identities().entries() {
        by_key.entry(entry.bottle.key.clone()).or_default().push(entry.clone());
    }
    let book = gateway.book();
    let row = |(key, entries): (BottleKey, Vec<Entry>)| {
        let bottle = entries.first()?.bottle.clone();
        let policy = book.policy_or_nothing(&bottle);
        Some(Bottle {
            name: key.name.to_string(),
            policy: bottle.policy.to_string(),
            mode: bottle.mode.unwrap_or(policy.mode).as_str(),
            sources: entries.iter().map(|entry| entry.source.to_string()).collect(),
            connections: gateway.places.held(&key),
        })
    };
    by_key.into_iter().filter_map(row).collect()
}
