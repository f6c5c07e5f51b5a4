//! The worker: the process that carries the data, started and asked by the supervisor.
//!
//! Owns the order of its life: take the handover, build the gateway, answer on the channel, begin when told to, serve,
//! drain. Invariants: it accepts no connection before it knows what the supervisor knows; it never outlives its
//! supervisor; it is the first process the kernel kills for want of memory, and no debugger may read it.

pub(crate) mod api;
mod bottles;
mod life;
mod status;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use self::api::Api;
use crate::app::Gateway;
use crate::channel::Texts;
use crate::handover::{self, Handover};
use crate::http::{holders, relief};
use crate::journal::Journal;
use crate::{leases, listen};

/// How long a drained worker waits for the supervisor to read its last counts.
const FAREWELL: Duration = Duration::from_secs(3);

/// Takes the handover from standard input, and makes this process a worker.
///
/// # Errors
/// In words, when it was not started by a supervisor.
pub(crate) fn take_over() -> Result<Handover, String> {
    let stdin = rustix::stdio::stdin().try_clone_to_owned();
    let handover = stdin.and_then(|socket| handover::take(UnixStream::from(socket)));
    let handover = handover.map_err(|error| format!("a worker is started by `decant run` alone: {error}"))?;
    life::settle(handover.terms.supervisor)?;
    Ok(handover)
}

/// The configuration that was last in force, if a worker before this one had one.
pub(crate) fn last_config(file: &File) -> Option<decant_config::Texts> {
    // The offset is the supervisor's too: read from the start, whoever read before.
    let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    serde_json::from_slice::<Texts>(&bytes).ok().map(Into::into)
}

/// Has panics logged, and noted where the supervisor finds them.
pub(crate) fn note_panics(journal: Journal) {
    life::note_panics(journal);
}

/// Serves until told to drain.
pub(crate) struct Serving {
    drain: watch::Sender<()>,
    api: Arc<Api>,
}

impl Serving {
    /// Waits for the supervisor's word, then accepts on `proxies`.
    ///
    /// # Errors
    /// In words: the supervisor is gone.
    pub(crate) async fn begin(
        gateway: &Arc<Gateway>,
        api: Arc<Api>,
        proxies: Vec<TcpListener>,
        allocator: Option<std::path::PathBuf>,
    ) -> Result<Self, String> {
        let begin = api.told_to_begin().await.ok_or("the supervisor is gone")?;
        api::take_up(gateway, begin);
        let (drain, drained) = watch::channel(());
        for listener in proxies {
            tokio::spawn(listen::run(listener, gateway.clone(), drained.clone()));
        }
        tokio::spawn(holders::watch(Arc::downgrade(gateway), gateway.budget.pace));
        tokio::spawn(relief::watch(Arc::downgrade(gateway)));
        if let Some(socket) = allocator {
            tokio::spawn(leases::follow(gateway.clone(), socket));
        }
        api.has_begun();
        Ok(Self { drain, api })
    }

    /// Ends what runs, in `grace` at most, and lets the supervisor read the last counts.
    pub(crate) async fn drain(self, grace: Duration) {
        // The receivers are the connections; none left is as good as told.
        let _ = self.drain.send(());
        if tokio::time::timeout(grace, self.drain.closed()).await.is_err() {
            tracing::warn!("exchanges were cut off at the end of limits.shutdown_grace");
        }
        self.api.has_drained();
        // A supervisor that does not come has its own reasons to end.
        let _ = tokio::time::timeout(FAREWELL, self.api.closed()).await;
    }
}
