//! The gateway: an HTTPS-intercepting forward proxy with constant memory per body.
#![forbid(unsafe_code)]

#[allow(dead_code)]
mod identity;
#[allow(dead_code, unused_imports)]
mod inspect;
#[allow(dead_code)]
mod policy;
#[allow(dead_code)]
mod target;
#[allow(dead_code, unused_imports)]
mod tls;
