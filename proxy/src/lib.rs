//! The gateway: an HTTPS-intercepting forward proxy with constant memory per body.
#![forbid(unsafe_code)]
