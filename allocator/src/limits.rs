//! Every bound of the allocator by name: counts, sizes and times that no request, engine or gateway can exceed.
//!
//! Nothing here is configuration; what an operator sets lives in [`crate::settings`]. Units stand in the names.

use std::time::Duration;

/// Bytes of one request body on the lease socket.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one acknowledgement on the gateway socket (it may carry the gateway's CA bundle).
pub(crate) const ACK_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Ports in one lease.
pub(crate) const PORTS_PER_LEASE_MAX: usize = 64;
/// Characters of a port's name (it becomes part of an environment variable).
pub(crate) const PORT_NAME_CHARS_MAX: usize = 48;
/// Characters of a client key.
pub(crate) const CLIENT_KEY_CHARS_MAX: usize = 200;
/// Characters of a session's or policy's name (they become Docker label values).
pub(crate) const NAME_CHARS_MAX: usize = 128;
/// Labels that name the containers of an owner.
pub(crate) const OWNER_LABELS_MAX: usize = 8;
/// Characters of one such label's key or value.
pub(crate) const LABEL_CHARS_MAX: usize = 256;
/// Leases that are not ended, all states together.
pub(crate) const LEASES_MAX: usize = 8192;
/// Ended leases whose client keys are remembered; beyond it the oldest are forgotten first.
pub(crate) const ENDED_MAX: usize = 100_000;
/// How long the client key of an ended lease stays taken, so that a late retry cannot make a second lease.
pub(crate) const ENDED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Leases in one answer of the list.
pub(crate) const LIST_PAGE_MAX: usize = 1000;
/// Holders named by an exhaustion error.
pub(crate) const HOLDERS_SHOWN: usize = 5;

/// Shortest lifetime that a lease may ask for.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(1);
/// Longest lifetime that a lease may ask for.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Connections open at once on one listener; more wait in its backlog.
pub(crate) const CONNECTIONS_MAX: usize = 512;
/// Time for a connection to send one request's head.
pub(crate) const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for a connection to send one request's body.
pub(crate) const BODY_READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes a connection buffers while it reads a head.
pub(crate) const CONNECTION_BUFFER_BYTES: usize = 16 * 1024;
/// Time for one request to be answered, networks and admission included.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that open requests get when the process ends.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Watch streams open at once.
pub(crate) const WATCHERS_MAX: usize = 8;
/// Changes that a slow watcher may lag behind before its stream is ended (it then lists again).
pub(crate) const WATCH_LAG_MAX: usize = 4096;
/// Silence after which a watch stream carries a `beat` line.
pub(crate) const WATCH_BEAT: Duration = Duration::from_secs(5);
/// Time that a gateway has to admit a lease before its request fails.
pub(crate) const ADMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Jobs waiting for the ledger's thread.
pub(crate) const LEDGER_QUEUE: usize = 1024;
/// Jobs that share one durable commit.
pub(crate) const LEDGER_BATCH_MAX: usize = 128;

/// Age up to which a list of the engine's containers serves an acquire (ports are probed besides), and a whole view whoever shows it.
pub(crate) const WORLD_AGE_MAX: Duration = Duration::from_secs(1);
/// Time for a look at an engine that whoever can do without it waits for.
pub(crate) const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// Time for one call to the container engine.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for making a network: the engine makes one after the other, and on a busy host each takes seconds.
pub(crate) const NETWORK_TIMEOUT: Duration = Duration::from_secs(90);
/// Networks worked on at the same time.
pub(crate) const ENGINE_PARALLEL: usize = 8;
/// Containers inspected at the same time.
pub(crate) const INSPECTIONS: usize = 32;
/// Time without an answer after which no more is waited for inspections.
pub(crate) const INSPECT_PATIENCE: Duration = Duration::from_millis(250);
/// The same at the first look at an engine.
pub(crate) const INSPECT_PATIENCE_FIRST: Duration = Duration::from_secs(10);
/// Candidates that one acquire tries when the engine refuses subnets.
pub(crate) const SUBNET_TRIES_MAX: usize = 64;
/// Time that a subnet refused by the engine is passed over.
pub(crate) const SUBNET_REFUSED: Duration = Duration::from_secs(30);
/// Time that a port found busy by a probe is passed over before it is probed again.
pub(crate) const PORT_BUSY: Duration = Duration::from_secs(20);
/// First quarantine of a port whose use was reported as failing; doubles with each report.
pub(crate) const PORT_QUARANTINE: Duration = Duration::from_secs(10 * 60);
/// Longest such quarantine.
pub(crate) const PORT_QUARANTINE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Time that a stopped container has before the engine kills it.
pub(crate) const CONTAINER_STOP: Duration = Duration::from_secs(10);

/// How long it is remembered when an acquire ended; no look that anything is judged by is older.
pub(crate) const MADE_KEPT: Duration = Duration::from_secs(600);
/// Between two reconciliations without any event.
pub(crate) const RECONCILE_EVERY: Duration = Duration::from_secs(30);
/// The same where the engine sends no network events (podman).
pub(crate) const RECONCILE_EVERY_POLLING: Duration = Duration::from_secs(3);
/// Between two looks at leases that expire or drain.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// News gathered before one reconciliation answers it.
pub(crate) const NEWS_DEBOUNCE: Duration = Duration::from_millis(20);
/// Between two reconciliations that news asks for.
pub(crate) const NEWS_PAUSE: Duration = Duration::from_millis(300);
/// The same on a host that is slow to look at, where no gateway's container waits to be attached.
pub(crate) const NEWS_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest wait between attempts at a failing reconciliation.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A pause of the whole process (or host) beyond this gives every lease a grace before it may expire.
pub(crate) const OUTAGE: Duration = Duration::from_secs(15);
/// Draining that takes longer is shown as `stuck`.
pub(crate) const STUCK: Duration = Duration::from_secs(10 * 60);
/// Warnings shown at once.
pub(crate) const WARNINGS_MAX: usize = 64;
