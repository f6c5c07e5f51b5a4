//! Durable, atomic leases of host ports and session subnets.
#![forbid(unsafe_code)]
