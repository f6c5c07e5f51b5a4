//! The gateway: an HTTPS-intercepting forward proxy with constant memory per body.
//!
//! A connection comes in at `listen`, which pins the bottle it belongs to; `http` runs its requests, `policy` says
//! where they may go, `tls` opens tunnels, `inspect` scans what streams through, `upstream` carries it on. `app` puts
//! the parts together; [`cli`] is the door.
#![forbid(unsafe_code)]

mod admin;
mod app;
mod audit;
mod budget;
pub mod cli;
mod exceptions;
mod http;
mod identity;
mod inspect;
mod isolation;
mod leases;
mod listen;
mod meaning;
mod policy;
mod probe;
mod rules;
mod target;
mod telemetry;
mod tls;
mod upstream;
