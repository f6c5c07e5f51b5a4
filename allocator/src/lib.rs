//! Durable, atomic leases of host ports and session subnets.
//!
//! A launcher of sandboxes ("bottles") asks for everything a session needs in one request and gets all of it or a reason: host ports
//! that stay its own until they are seen free again, a subnet that overlaps nothing, on demand the Docker network over it with the
//! gateway attached. One process per host and state folder keeps the record.
//!
//! # The way of an acquire
//!
//! ```text
//!  api      a request on the Unix socket -> a Wish, checked for form             (422, 404, 413)
//!  service  one turn per client key: a repeated request finds its lease          (422, 410)
//!  world    one look at the engine and the routes, at most a second old          (503 docker)
//!  book     ports and subnet drawn in turn from the pools, pure                  (503 exhausted)
//!  ledger   recorded: one SQLite transaction, one fsync for all that wait
//!  host     every port probed with a strict bind; a busy one is swapped, recorded again
//!  engine   the network made over the subnet; a refused one is swapped, recorded again
//!  watch    the gateway told, and its word waited for                            (503 gateway)
//!  ledger   active; only now the client hears of it                              201
//! ```
//!
//! Whatever breaks on the way is undone by [`reconcile`], which alone compares what is recorded with what is there: at the start, on the
//! engine's events, when a lease is due, and every so often. It plans purely ([`plan`]) and carries out what it planned.
//!
//! # Invariants
//!
//! * No two leases share a port (of one protocol) or overlap in a subnet: the pools refuse it, and so does the store.
//! * What a client was told survives `kill -9`; what it was not told is undone.
//! * What a lease held is given out again only once nobody is seen to use it and the gateway does not know it.
//! * Networks are recognised by label and acted on by ID; what is not ours is never touched.
#![forbid(unsafe_code)]

pub mod cli;

mod answer;
mod api;
mod app;
mod book;
mod ca;
mod engine;
mod error;
mod host;
mod lease;
mod ledger;
mod limits;
mod metrics;
mod plan;
mod pool;
mod reconcile;
mod service;
mod settings;
mod state_dir;
mod status;
#[cfg(test)]
mod testing;
mod time;
mod watch;
mod world;
