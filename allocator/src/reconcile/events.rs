//! Following the engine's events, through every end of the stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::Notify;

use super::{AbortOnDrop, arrival};
use crate::engine::Engine;
use crate::limits;
use crate::service::Service;
use crate::settings::EngineChoice;

/// First wait before the stream is opened again.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// By then the engine has a subscription that was asked for: it answers the request a moment before it subscribes.
const SUBSCRIBED: Duration = Duration::from_secs(1);

/// Notifies `changed` of every event that a fresh list would show, and whenever events may have been missed.
pub(super) async fn follow(service: Arc<Service>, changed: Arc<Notify>) {
    if service.settings.engine == EngineChoice::None {
        return;
    }
    let mut backoff = BACKOFF_MIN;
    loop {
        if let Ok(engine) = service.worlds.engine().await {
            if listen(&service, engine, &changed).await {
                backoff = BACKOFF_MIN;
            }
            service.worlds.forget_engine().await;
            changed.notify_one();
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(limits::BACKOFF_MAX);
    }
}

/// Follows one stream to its end. What happened before it began is found by a list now, and by one when it surely had begun. True if
/// anything came.
async fn listen(service: &Arc<Service>, engine: Arc<dyn Engine>, changed: &Notify) -> bool {
    let mut events = engine.events();
    let mut attaching = None;
    let mut came = false;
    let mut subscribed = std::pin::pin!(tokio::time::sleep(SUBSCRIBED));
    let mut waiting = true;
    changed.notify_one();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut subscribed, if waiting => {
                waiting = false;
                changed.notify_one();
                continue;
            }
        };
        let Some(Ok(event)) = event else { return came };
        came = true;
        if let Some(container) = arrival::arrived(service, &event).await {
            let attach = arrival::attach(service.clone(), engine.clone(), container.to_owned());
            // Of two arrivals the first has gone again: what is done for it ends.
            drop(attaching.replace(AbortOnDrop(tokio::spawn(attach).abort_handle())));
        }
        if matters(event.kind, &event.action) {
            tracing::debug!(kind = event.kind, action = %event.action, id = %event.id, "the engine has news");
            changed.notify_one();
        }
    }
}

/// Execs, health checks and the like change nothing that a list shows.
fn matters(kind: &str, action: &str) -> bool {
    match kind {
        "network" => true,
        _ => matches!(
            action,
            "create" | "start" | "die" | "destroy" | "stop" | "kill" | "rename" | "pause" | "unpause"
        ),
    }
}
