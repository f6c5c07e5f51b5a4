//! The end-to-end tests: the real program between real sockets, one module per kind of promise.

mod support;

mod blocks;
mod certificates;
mod clients;
mod codings;
mod connections;
mod control;
mod day;
mod endurance;
mod evasion;
mod expected;
mod framing;
mod headers;
mod hostile;
mod latency;
mod leases;
mod logs;
mod memory;
mod metrics;
mod observe;
mod operations;
mod quality;
mod redaction;
mod refusals;
mod reload;
mod secrets;
mod size;
mod streams;
mod supervision;
mod targets;
mod tidy;
mod transparency;
mod tuning;
