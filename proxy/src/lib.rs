//! The gateway: an HTTPS-intercepting forward proxy with constant memory per body.
//!
//! Two processes: the `supervisor` owns the sockets and speaks with operators, the `worker` carries the data. In the
//! worker, a connection comes in at `listen`, which pins the bottle it belongs to; `http` runs its requests, `policy` says
//! where they may go, `tls` opens tunnels, `inspect` scans what streams through, `upstream` carries it on. `app` puts
//! the parts together; [`cli`] is the door.
#![forbid(unsafe_code)]

mod app;
mod audit;
mod bars;
mod budget;
mod channel;
pub mod cli;
mod exceptions;
mod handover;
mod http;
mod identity;
mod inspect;
mod isolation;
mod journal;
mod leases;
mod listen;
mod meaning;
mod policy;
mod probe;
mod queue;
mod rules;
mod secrets;
mod supervisor;
mod target;
mod telemetry;
mod tls;
mod turns;
mod unread;
mod upstream;
mod worker;
