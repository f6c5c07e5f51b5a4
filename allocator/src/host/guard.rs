//! Guard sockets: while a TCP port is leased, a bound socket that never listens keeps other programs' plain binds and outgoing
//! connections off it.
//!
//! The engine sets `SO_REUSEADDR` as the guard does, so containers still publish through it. A program that binds the leased port
//! itself without that option does not, which is why guards are an option.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// The guards that stand, by port.
#[derive(Debug, Default)]
pub(crate) struct Guards(HashMap<u16, Vec<Socket>>);

impl Guards {
    /// Sets guards on exactly these ports and lifts all others. A port that cannot be guarded is left alone: its holder has it.
    pub(crate) fn settle(&mut self, ports: impl IntoIterator<Item = u16>) {
        let mut old = std::mem::take(&mut self.0);
        for number in ports {
            let sockets = old.remove(&number).unwrap_or_else(|| stand(number));
            self.0.insert(number, sockets);
        }
    }
}

fn stand(number: u16) -> Vec<Socket> {
    let v4 = bind(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, number).into());
    let v6 = bind(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, number).into());
    v4.into_iter().chain(v6).collect()
}

fn bind(domain: Domain, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_guard_stops_a_plain_bind_and_lets_the_engine_through() {
        // std sets SO_REUSEADDR, as the engine's proxy does.
        let number = TcpListener::bind("127.0.0.1:0")
            .and_then(|probe| probe.local_addr())
            .expect("a free port")
            .port();
        let mut guards = Guards::default();
        guards.settle([number]);
        assert!(
            !super::super::probe::port_free(crate::pool::ports::Proto::Tcp, number).expect("the probe works")
        );
        assert!(TcpListener::bind(("127.0.0.1", number)).is_ok());
        assert!(TcpListener::bind(("0.0.0.0", number)).is_ok());
        guards.settle([]);
        assert!(
            super::super::probe::port_free(crate::pool::ports::Proto::Tcp, number).expect("the probe works")
        );
    }
}
