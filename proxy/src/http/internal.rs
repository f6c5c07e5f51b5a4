//! `decant.internal`: the gateway's own host, where a bottle learns about the gateway and itself.
//!
//! Invariant: a bottle sees its own facts alone, and no value that was found.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use serde::Serialize;

use super::allowlist::Allowlist;
use super::exchange::{Party, ResponseBody};
use super::refusal::{Reason, Refusal};
use super::serve;
use crate::identity::Bottle;
use crate::listen::Connection;
use crate::target::{Host, Target};
use crate::tls;

/// The gateway's own name. It is in nobody's DNS (`.internal` is reserved for private use, ICANN 2024).
pub(crate) const HOST: &str = "decant.internal";

/// Where the probe asks.
pub(crate) const PROBE_PATH: &str = "/health";

const PEM: &str = "application/x-pem-file";
const JSON: &str = "application/json";

/// Whether `host` is the gateway's own.
pub(crate) fn is_host(host: &Host) -> bool {
    matches!(host, Host::Name(name) if &**name == HOST)
}

/// Answers a request to the gateway's own host.
pub(super) fn answer(
    connection: &Connection,
    party: &Party,
    _target: &Target,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let refusal = Refusal::new(Reason::Policy, "decant.internal is read only")
            .status(StatusCode::METHOD_NOT_ALLOWED);
        return serve::refuse(connection, Some(&party.bottle), request, &refusal);
    }
    let gateway = &connection.gateway;
    let found = match request.uri().path() {
        "/ca.pem" => Some((PEM, gateway.leaves.authority().pem().to_owned())),
        "/bundle.pem" => Some((PEM, tls::bundle(gateway.leaves.authority()))),
        "/whoami" => Some((JSON, whoami(connection, &party.bottle))),
        "/allowlist" => {
            let policy = gateway.book().policy_or_nothing(&party.bottle);
            Some((JSON, json(&Allowlist::of(&policy))))
        }
        "/blocks" => Some((JSON, json(&gateway.blocks.of(&party.bottle.key)))),
        PROBE_PATH if party.probe => Some((JSON, "{\"status\":\"ok\"}\n".to_owned())),
        _ => None,
    };
    match found {
        Some((content, body)) => serve::full(page(content, body)),
        None => {
            let refusal = Refusal::new(Reason::Policy, "there is no such page")
                .status(StatusCode::NOT_FOUND)
                .hint("/ca.pem, /bundle.pem, /whoami, /allowlist and /blocks exist");
            let h1 = request.version() != Version::HTTP_2;
            serve::full(
                refusal
                    .for_exchange(&party.bottle.key.name, &gateway.request_id())
                    .response(request.headers(), h1),
            )
        }
    }
}

fn page(content: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What the gateway knows about the bottle that asks.
#[derive(Serialize)]
struct WhoAmI<'a> {
    bottle: &'a str,
    policy: &'a str,
    mode: &'static str,
    labels: &'a std::collections::BTreeMap<String, String>,
    address: String,
    gateway: &'static str,
}

fn whoami(connection: &Connection, bottle: &Arc<Bottle>) -> String {
    let policy = connection.gateway.book().policy_or_nothing(bottle);
    let who = WhoAmI {
        bottle: &bottle.key.name,
        policy: &bottle.policy,
        mode: bottle.mode.unwrap_or(policy.mode).as_str(),
        labels: &bottle.labels,
        address: connection.client().to_string(),
        gateway: env!("CARGO_PKG_VERSION"),
    };
    json(&who)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}
