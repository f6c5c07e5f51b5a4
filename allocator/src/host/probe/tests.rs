//! The table of who else can hold a port, with real sockets.

use std::net::{TcpListener, TcpStream, UdpSocket};

use super::*;

/// A holder of a port, of some kind.
struct Holder {
    _sockets: Vec<Socket>,
    number: u16,
}

fn socket(domain: Domain, kind: Type, reuse: bool, v6only: bool) -> Socket {
    let socket = Socket::new(domain, kind, None).expect("a socket");
    socket.set_reuse_address(reuse).expect("the option exists");
    if domain == Domain::IPV6 {
        socket.set_only_v6(v6only).expect("the option exists");
    }
    socket
}

fn held(socket: Socket, address: &str, listen: bool) -> Holder {
    let address: SocketAddr = address.parse().expect("an address");
    socket.bind(&address.into()).expect("the port is free");
    if listen {
        socket.listen(1).expect("it can listen");
    }
    let number =
        socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound").port();
    Holder { _sockets: vec![socket], number }
}

#[test]
fn a_strict_dual_stack_bind_meets_every_holder() {
    let v4 = |reuse| socket(Domain::IPV4, Type::STREAM, reuse, false);
    let v6 = |v6only| socket(Domain::IPV6, Type::STREAM, true, v6only);
    let cases = [
        ("listener on 127.0.0.2", held(v4(true), "127.0.0.2:0", true)),
        ("listener on the wildcard", held(v4(true), "0.0.0.0:0", true)),
        ("bound and silent, with reuse", held(v4(true), "127.0.0.1:0", false)),
        ("bound and silent, plain", held(v4(false), "127.0.0.1:0", false)),
        ("dual-stack listener", held(v6(false), "[::]:0", true)),
        ("listener on ::1 alone", held(v6(true), "[::1]:0", true)),
    ];
    for (name, holder) in &cases {
        assert!(!port_free(Proto::Tcp, holder.number).expect("it can be probed"), "{name}");
        assert!(
            port_free(Proto::Udp, holder.number).expect("it can be probed"),
            "{name}: the other protocol"
        );
    }
    for (name, holder) in cases {
        let number = holder.number;
        drop(holder);
        assert!(port_free(Proto::Tcp, number).expect("it can be probed"), "{name}: gone");
    }
}

#[test]
fn an_outgoing_connection_holds_its_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it accepts");
    let number = stream.local_addr().expect("it is bound").port();
    assert!(!port_free(Proto::Tcp, number).expect("it can be probed"));
}

#[test]
fn udp_is_a_question_of_its_own() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let number = socket.local_addr().expect("it is bound").port();
    assert!(!port_free(Proto::Udp, number).expect("it can be probed"));
    assert!(port_free(Proto::Tcp, number).expect("it can be probed"));
}

#[test]
fn only_in_use_means_busy() {
    let error = io::Error::from(Errno::ACCESS);
    assert_eq!(answer(Err(error)).expect_err("an error stays one").kind(), io::ErrorKind::PermissionDenied);
    for errno in [Errno::MFILE, Errno::NOBUFS] {
        assert!(answer(Err(errno.into())).is_err(), "{errno}");
    }
    assert!(!answer(Err(Errno::ADDRINUSE.into())).expect("that is an answer"));
}
