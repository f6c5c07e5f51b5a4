//! The harness of the end-to-end tests: gateways and allocators under test, origins, clients and containers around them.
//!
//! Owns: starting the real `decant` program with an overlay configuration, TLS origins that behave and misbehave on
//! command, clients that speak through the gateway byte by byte, and the measuring of a process from outside.
//! Invariant: nothing here is shared between tests, every port is free when it is taken, every random value comes
//! from a seed that is printed, and what a test could not do is said in words, never passed over.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod bodies;
pub mod ca;
pub mod cgroup;
pub mod client;
pub mod crowd;
pub mod docker;
pub mod encodings;
pub mod frames;
pub mod gateway;
pub mod hostile;
pub mod metrics;
pub mod origin;
pub mod pressure;
pub mod process;
pub mod program;
pub mod quality;
pub mod rawclient;
pub mod relay;
pub mod secrets;
pub mod seed;
pub mod site;
pub mod tools;
