//! The harness of the end-to-end tests: origins, clients, gateways under test.
#![forbid(unsafe_code)]
