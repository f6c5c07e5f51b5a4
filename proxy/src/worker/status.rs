//! What the gateway is doing: the worker's part of `/v1/status`, and the known bottles.
//!
//! Invariant: facts about configuration and load alone; nothing that a bottle sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use time::format_description::well_known::Rfc3339;

use super::api::Api;
use crate::app::Gateway;
use crate::channel::{BottleRow, Ca, GatewayStatus};
use crate::identity::{BottleKey, Entry};

/// Answers `/v1/status`.
pub(super) async fn get(State(api): State<Arc<Api>>) -> Json<GatewayStatus> {
    let gateway = api.gateway();
    let authority = gateway.leaves.authority();
    Json(GatewayStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: gateway.started.elapsed().as_secs(),
        proxy: gateway.proxy_address.to_string(),
        detectors: gateway.book().detectors.count(),
        resident_bytes: u64::try_from(crate::telemetry::resident_bytes().unwrap_or(0)).unwrap_or(0),
        connections: gateway.places.held_in_all(),
        exchanges: u64::try_from(gateway.metrics.exchanges_open.get()).unwrap_or(0),
        ca: Ca {
            sha256: authority.fingerprint(),
            not_after: authority.not_after().format(&Rfc3339).unwrap_or_default(),
        },
        bottles: bottles(gateway),
    })
}

/// Each bottle once, with all of its sources.
pub(super) fn bottles(gateway: &Gateway) -> Vec<BottleRow> {
    let mut by_key: BTreeMap<BottleKey, Vec<Entry>> = BTreeMap::new();
    for entry in gateway.identities().entries() {
        by_key.entry(entry.bottle.key.clone()).or_default().push(entry.clone());
    }
    let book = gateway.book();
    let row = |(key, entries): (BottleKey, Vec<Entry>)| {
        let bottle = entries.first()?.bottle.clone();
        let policy = book.policy_or_nothing(&bottle);
        Some(BottleRow {
            origin: gateway.origin_of(&key).to_owned(),
            policy: bottle.policy.to_string(),
            mode: bottle.mode.unwrap_or(policy.mode).as_str().to_owned(),
            sources: entries.iter().map(|entry| entry.source.to_string()).collect(),
            labels: bottle.labels.clone(),
            connections: gateway.places.held(&key),
            barred: gateway.bars.of(&key),
            cut_off_seconds: gateway.cut_offs.left(&key).map(|left| left.as_secs() + 1),
            name: key.name.to_string(),
            epoch: key.epoch,
        })
    };
    by_key.into_iter().filter_map(row).collect()
}
