//! The memory of an exchange: reserved before anything is done for it.
//!
//! Invariants: what an exchange needs in both directions is reserved at once; while it waits nothing of it is read that
//! was not reserved for; the wait is counted.

use http::{Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::super::refusal::Refusal;
use super::Party;
use crate::budget::{Kind, NoMemory, Reservation};
use crate::listen::Connection;

/// Beyond this many eighths of the memory, origins are not asked for codings whose decoders take much of it.
pub(super) const MODEST_EIGHTHS: u64 = 6;

/// Reserves the memory of an exchange, as soon as it is its bottle's turn.
///
/// # Errors
/// The limit that was reached all the time.
pub(super) async fn admit(
    connection: &Connection,
    party: &Party,
    request: &Request<Incoming>,
) -> Result<Vec<Reservation>, Refusal> {
    let started = Instant::now();
    let admitted = reserve(connection, party, request).await;
    let metrics = &connection.gateway.metrics;
    metrics.admission_wait_seconds.observe(started.elapsed().as_secs_f64());
    admitted.map_err(|short| {
        metrics.shed.with_label_values(&[short.setting]).inc();
        Refusal::from(short)
    })
}

async fn reserve(
    connection: &Connection,
    party: &Party,
    request: &Request<Incoming>,
) -> Result<Vec<Reservation>, NoMemory> {
    let (bottle, admission) = (&party.bottle.key, &connection.gateway.admission);
    let memory = &connection.gateway.memory;
    // A stream may send as much as its window is while the request waits: few may do so that this is not reserved for.
    let sends = request.version() == Version::HTTP_2 && !request.body().is_end_stream();
    let stream = match sends.then(|| admission.take(bottle, Kind::Stream, memory.stream())) {
        Some(Err(short)) => {
            let _place = connection.gateway.waiting_streams.try_acquire().map_err(|_| short)?;
            Some(admission.acquire(bottle, Kind::Stream, memory.stream()).await?)
        }
        taken => taken.transpose()?,
    };
    let exchange = admission.acquire(bottle, Kind::Exchange, memory.exchange()).await?;
    Ok(stream.into_iter().chain([exchange]).collect())
}
