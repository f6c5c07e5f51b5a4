//! Upstreams over real sockets and real TLS, against origins made here.

mod fixture;
mod http1;
mod http2;
mod pooling;
mod verification;
