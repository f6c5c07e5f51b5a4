//! The gateway's interface: watch and acknowledge, nothing else. The protocol stands in [`crate::watch`].

use axum::Router;
use axum::body::Body as ResponseBody;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::broadcast;

use crate::api::Shared;
use crate::api::leases::Body;
use crate::api::problem::{Problem, Reason};
use crate::error::{Error, chain};
use crate::lease::LeaseId;
use crate::limits;
use crate::time::millis;
use crate::watch::{Ack, Known, Line, Seat};

/// The routes.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/watch", get(watch))
        .route("/v1/ack", post(ack))
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, Reason::Unknown, "this socket serves /v1/watch and /v1/ack")
        })
        .layer(DefaultBodyLimit::max(limits::ACK_BYTES_MAX))
        .with_state(shared)
}

/// A stream's place in the hub, and where it stands.
struct Stream {
    lines: broadcast::Receiver<Option<Line>>,
    generation: u64,
    snapshot: Option<String>,
    _seat: Seat,
}

impl Stream {
    /// The next text to send; none ends the stream, and its reader lists again.
    async fn next(&mut self) -> Option<String> {
        if let Some(snapshot) = self.snapshot.take() {
            return Some(snapshot);
        }
        let line = match tokio::time::timeout(limits::WATCH_BEAT, self.lines.recv()).await {
            Err(_) => Line::Beat { generation: self.generation },
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a watch stream ends: its reader has to list again");
                return None;
            }
        };
        self.generation = line.generation();
        Some(line.text())
    }
}

async fn watch(State(shared): State<Shared>) -> Result<Response, Response> {
    let Some(seat) = shared.service.hub.sit() else {
        let detail = format!("there are {} watch streams already", limits::WATCHERS_MAX);
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, Reason::TooMany, detail).into_response());
    };
    let hub = shared.service.hub.clone();
    // Subscribed and listed on the ledger's thread, which alone tells changes: nothing falls between, nothing comes out of order.
    let taken = shared.service.ledger.read(move |book| {
        let (lines, generation) = hub.subscribe();
        let bottles: Vec<_> =
            book.live().filter(|lease| lease.is_bottle()).filter_map(|lease| hub.bottle(lease)).collect();
        (lines, generation, bottles)
    });
    let (lines, generation, bottles) = taken.await.map_err(IntoResponse::into_response)?;
    let mut snapshot: String =
        bottles.into_iter().map(|lease| Line::Lease { generation, lease }.text()).collect();
    let pool = shared.service.blocks.iter().map(ToString::to_string).collect();
    let grace_ms = u64::try_from(millis(shared.service.settings.times.grace)).unwrap_or_default();
    let instance = shared.service.ledger.instance().to_owned();
    snapshot.push_str(&Line::End { generation, instance, grace_ms, pool }.text());
    let stream = Stream { lines, generation, snapshot: Some(snapshot), _seat: seat };
    let texts = stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), stream))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], ResponseBody::from_stream(texts)).into_response())
}

/// An acknowledgement.
#[derive(Debug, Default, Deserialize)]
struct AckRequest {
    generation: u64,
    #[serde(default)]
    admitted: Vec<KnownBody>,
    #[serde(default)]
    refused: Vec<RefusedBody>,
    #[serde(default)]
    forgotten: Vec<KnownBody>,
    ca: Option<CaRequest>,
}

#[derive(Debug, Deserialize)]
struct KnownBody {
    id: String,
    epoch: u64,
}

#[derive(Debug, Deserialize)]
struct RefusedBody {
    id: String,
    epoch: u64,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize)]
struct CaRequest {
    certificate: String,
    bundle: String,
}

async fn ack(State(shared): State<Shared>, Body(request): Body<AckRequest>) -> Result<StatusCode, Response> {
    let ack = ack_of(&request).map_err(IntoResponse::into_response)?;
    if let Some(ca) = request.ca {
        // Before the verdicts: a lease that is answered because of this very acknowledgement names the CA.
        store_ca(&shared, ca).await.map_err(IntoResponse::into_response)?;
    }
    if shared.service.hub.acknowledge(ack) {
        shared.service.nudge.notify_one();
    }
    Ok(StatusCode::NO_CONTENT)
}

fn ack_of(request: &AckRequest) -> Result<Ack, Error> {
    let known = |id: &str, epoch: u64| -> Result<Known, Error> {
        let id = LeaseId::parse(id)
            .ok_or_else(|| Error::Invalid { field: "id", why: format!("{id:?} is no lease's name") })?;
        Ok((id, epoch))
    };
    let all = |bodies: &[KnownBody]| {
        bodies.iter().map(|body| known(&body.id, body.epoch)).collect::<Result<Vec<_>, _>>()
    };
    let refused = request.refused.iter().map(|body| Ok((known(&body.id, body.epoch)?, body.reason.clone())));
    Ok(Ack {
        generation: request.generation,
        admitted: all(&request.admitted)?,
        refused: refused.collect::<Result<Vec<_>, Error>>()?,
        forgotten: all(&request.forgotten)?,
    })
}

async fn store_ca(shared: &Shared, ca: CaRequest) -> Result<(), Error> {
    let pem = |text: &str| text.contains("-----BEGIN CERTIFICATE-----");
    if !pem(&ca.certificate)
        || !pem(&ca.bundle)
        || ca.bundle.contains("PRIVATE KEY")
        || ca.certificate.contains("PRIVATE KEY")
    {
        return Err(Error::Invalid {
            field: "ca",
            why: "two PEM texts of certificates, and no key".to_owned(),
        });
    }
    let folder = shared.ca.clone();
    let stored = tokio::task::spawn_blocking(move || folder.store(&ca.certificate, &ca.bundle));
    let outcome = stored.await.map_err(|_| Error::Stopping)?;
    outcome.map_err(|source| {
        let error = Error::Host { why: "the gateway's CA cannot be written".to_owned(), source };
        tracing::error!(error = %chain(&error), "leases cannot mount the CA");
        error
    })
}
