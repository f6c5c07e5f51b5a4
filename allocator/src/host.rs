//! The host as the allocator sees it: sockets, routes, addresses, processes, kernel settings.
//!
//! All of it is observation. [`Host`] is a trait so that tests can put a host of their own beneath the same code.

pub(crate) mod guard;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod routes;
pub(crate) mod sysctl;

use std::io;

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;

use crate::lease::Process;
use crate::pool::ports::Proto;

/// An IPv4 route of any table, or an address of the host (as a route of its prefix).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) net: Ipv4Net,
    /// The interface it leaves by, by index; none for blackholes and the like.
    pub(crate) interface: Option<u32>,
    /// The main, local, … table's number.
    pub(crate) table: u32,
    /// It is an address of this host rather than a route to others.
    pub(crate) address: bool,
}

/// The questions.
pub(crate) trait Host: Send + Sync {
    /// Whether nothing on this host has the port, on any address. An error other than "in use" is the caller's error, never a "busy".
    fn port_free(&self, proto: Proto, number: u16) -> io::Result<bool>;
    /// All IPv4 routes and addresses.
    fn routes(&self) -> BoxFuture<'_, io::Result<Vec<Route>>>;
    /// Whether the process lives.
    fn alive(&self, process: &Process) -> bool;
    /// The name of the present boot.
    fn boot_id(&self) -> String;
}

/// This host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThisHost;

impl Host for ThisHost {
    fn port_free(&self, proto: Proto, number: u16) -> io::Result<bool> {
        probe::port_free(proto, number)
    }

    fn routes(&self) -> BoxFuture<'_, io::Result<Vec<Route>>> {
        Box::pin(routes::dump())
    }

    fn alive(&self, process: &Process) -> bool {
        process::start_time(process.pid) == Some(process.start_time)
    }

    fn boot_id(&self) -> String {
        process::boot_id()
    }
}
