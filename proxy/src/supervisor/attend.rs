//! The tasks beside the supervisor's loop: one that attends each worker, and the probe.
//!
//! Invariant: they only report; what follows from it is decided in one place, the loop.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use rustix::process::Pid;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::child::{AskError, Worker};
use super::death::Cause;
use super::exposition::Exposition;
use super::shared::Shared;
use crate::channel::{Beat, Begin, path};
use crate::leases::LeaseSnapshot;

/// Longest time from a worker's start to its service. A debug build compiles the rules for some seconds.
const START_MAX: Duration = Duration::from_secs(60);
/// Between two beats.
const BEAT: Duration = Duration::from_secs(1);
/// Longest wait for the answer to a beat.
pub(super) const BEAT_PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a change of the leases, before it is asked for again.
const LEASES_PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the answer to the periodic probe: three misses, five seconds apart, are over within 18 seconds.
const PROBE_PATIENCE: Duration = Duration::from_millis(2500);

/// What the loop is told.
pub(super) enum Event {
    /// A worker accepts connections.
    Serves(Pid),
    /// The data path answered, or why not.
    Probed(Result<(), String>),
}

/// Attends a worker from its start to its end.
pub(super) async fn attend(shared: Arc<Shared>, worker: Arc<Worker>, events: mpsc::Sender<Event>) {
    if let Err(error) = begin(&shared, &worker).await {
        tracing::warn!(worker = worker.pid.as_raw_nonzero(), %error, "a worker did not begin");
        if matches!(error, AskError::Late) {
            worker.kill(Cause::Start);
        }
        return;
    }
    // The loop ends with the process.
    let _ = events.send(Event::Serves(worker.pid)).await;
    tokio::select! {
        () = beats(&shared, &worker) => {}
        () = follow_leases(&shared, &worker) => {}
    }
}

/// Asks for a sign of life again and again, until the worker has drained or is gone.
async fn beats(shared: &Shared, worker: &Arc<Worker>) {
    loop {
        match beat(shared, worker).await {
            Ok(beat) if beat.drained => return worker.let_go(),
            // Nobody is there any more; the loop reaps it.
            Err(AskError::Channel(_)) => return,
            Ok(_) | Err(AskError::Late | AskError::Refused(..)) => {}
        }
        sleep(BEAT).await;
    }
}

/// Keeps the worker's leases, each change as it comes: what a worker takes with it, the next one does not know. Never
/// returns by itself.
async fn follow_leases(shared: &Shared, worker: &Arc<Worker>) {
    let mut seen = 0;
    loop {
        let path = format!("{}/{seen}", path::LEASES);
        match worker.get::<LeaseSnapshot>(&path, LEASES_PATIENCE).await {
            Ok(leases) => {
                seen = leases.changes();
                if shared.is_serving(worker) {
                    shared.kept_leases().keep(leases);
                }
            }
            Err(AskError::Late) => {}
            Err(_) => sleep(BEAT).await,
        }
    }
}

/// Tells a worker what the supervisor knows, and makes it the one that is asked. The bottles stay locked meanwhile: a
/// change waits, and finds the new worker.
async fn begin(shared: &Shared, worker: &Arc<Worker>) -> Result<(), AskError> {
    let bottles = shared.bottles.lock().await;
    let begin =
        Begin { bottles: bottles.controlled(), bars: shared.bars(), leases: shared.kept_leases().now() };
    worker.tell(Method::POST, path::BEGIN, &begin, START_MAX).await?;
    {
        let mut seen = worker.seen();
        seen.served = true;
        seen.beat_at = Instant::now();
    }
    shared.take_over(worker);
    drop(bottles);
    Ok(())
}

/// One sign of life, with the counts that would be lost if it were the last.
async fn beat(shared: &Shared, worker: &Arc<Worker>) -> Result<Beat, AskError> {
    let beat: Beat = worker.get(path::BEAT, BEAT_PATIENCE).await?;
    let known = {
        let mut seen = worker.seen();
        seen.beat_at = Instant::now();
        std::mem::replace(&mut seen.beat, beat.clone())
    };
    count(worker).await?;
    if shared.is_serving(worker) {
        shared.admit_from(&beat.admin_from);
        if beat.config != known.config {
            shared.keep_config(worker.ask(Method::GET, path::CONFIG, Bytes::new(), BEAT_PATIENCE).await?);
        }
    }
    Ok(beat)
}

/// Reads a worker's counts.
pub(super) async fn count(worker: &Worker) -> Result<(), AskError> {
    let text = worker.ask(Method::GET, path::METRICS, Bytes::new(), BEAT_PATIENCE).await?;
    let metrics = Exposition::parse(&String::from_utf8_lossy(&text));
    worker.seen().metrics = metrics;
    Ok(())
}

/// Sends one request through the data path.
pub(super) async fn probe(shared: Arc<Shared>, events: mpsc::Sender<Event>) {
    let probed = shared.probe(PROBE_PATIENCE).await.map_err(|error| error.to_string());
    // The loop ends with the process.
    let _ = events.send(Event::Probed(probed)).await;
}
