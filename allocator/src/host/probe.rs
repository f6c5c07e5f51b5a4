//! Is a port free? A strict bind answers.
//!
//! Without `SO_REUSEADDR` one dual-stack bind of `[::]` meets every holder: listeners on any address of either family, sockets that
//! are bound and do not listen, outgoing connections, TIME_WAIT. With it, several of those would look free. The standard library and
//! tokio set it on every listener, so this file alone binds, through `socket2`. TCP and UDP are separate questions.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::pool::ports::Proto;

/// Whether nothing has the port. `EADDRINUSE` is the only "no"; anything else is an error of the host or its configuration.
pub(crate) fn port_free(proto: Proto, number: u16) -> io::Result<bool> {
    match bind(Domain::IPV6, proto, number) {
        // No IPv6 here: the other family is all there is.
        Err(error) if no_such_family(&error) => answer(bind(Domain::IPV4, proto, number)),
        other => answer(other),
    }
}

fn answer(bound: io::Result<()>) -> io::Result<bool> {
    match bound {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

fn no_such_family(error: &io::Error) -> bool {
    let family = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT];
    error.raw_os_error().is_some_and(|code| family.iter().any(|errno| errno.raw_os_error() == code))
}

fn bind(domain: Domain, proto: Proto, number: u16) -> io::Result<()> {
    let (kind, protocol) = match proto {
        Proto::Tcp => (Type::STREAM, Protocol::TCP),
        Proto::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    let address: SocketAddr = if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
        (Ipv6Addr::UNSPECIFIED, number).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, number).into()
    };
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests;
