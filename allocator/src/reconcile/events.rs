//! Following the engine's events, through every end of the stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::Notify;

use crate::limits;
use crate::service::Service;
use crate::settings::EngineChoice;

/// First wait before the stream is opened again.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Notifies `changed` of every event that a fresh list would show, and whenever events may have been missed.
pub(super) async fn follow(service: Arc<Service>, changed: Arc<Notify>) {
    if service.settings.engine == EngineChoice::None {
        return;
    }
    let mut backoff = BACKOFF_MIN;
    loop {
        if let Ok(engine) = service.worlds.engine().await {
            let mut events = engine.events();
            // The stream is asked for from here on: the list that this brings about is younger than the subscription.
            changed.notify_one();
            while let Some(Ok(event)) = events.next().await {
                backoff = BACKOFF_MIN;
                if matters(event.kind, &event.action) {
                    tracing::debug!(kind = event.kind, action = %event.action, id = %event.id, "the engine has news");
                    changed.notify_one();
                }
            }
            service.worlds.forget_engine().await;
            changed.notify_one();
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(limits::BACKOFF_MAX);
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
