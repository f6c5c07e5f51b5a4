//! Listening: Unix sockets that are replaced when stale and never taken from a live server, and one bounded loop of connections.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::limits;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    /// The client's process as this namespace names it; none if it is not visible.
    pub(crate) pid: Option<i32>,
}

/// A bound socket, and the lock that says whose it is.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: UnixListener,
    _lock: File,
}

/// Binds a Unix socket that only its owner and group may use. A socket file that nobody answers on is replaced; of several servers
/// that would do so at once the lock beside it lets one.
pub(crate) fn bind_unix(path: &Path, group: Option<u32>) -> io::Result<Bound> {
    let in_use = |why: &str| io::Error::new(io::ErrorKind::AddrInUse, why);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(path.with_extension("sock.lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(in_use("another allocator serves on this socket")),
        other => other?,
    }
    if is_live(path)? {
        return Err(in_use("another server answers on this socket"));
    }
    // Bound under another name first: nobody meets it before its permissions are set, and the rename replaces a stale one.
    let fresh = path.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660))?;
    if let Some(group) = group {
        std::os::unix::fs::chown(&fresh, None, Some(group))?;
    }
    std::fs::rename(&fresh, path)?;
    Ok(Bound { listener, _lock: lock })
}

/// Whether somebody listens on a socket. One who listens and accepts nothing is not waited for.
fn is_live(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        // Its backlog is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(_) => Ok(false),
    }
}

/// The number of a group.
pub(crate) fn group_id(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(name));
    let number = line.and_then(|line| line.split(':').nth(2)).and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no group named {name}")))
}

/// Serves a router on a Unix socket, for ever.
pub(crate) async fn serve_unix(bound: Bound, router: Router) {
    let listener = &bound.listener;
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                let router = router.clone().layer(Extension(Peer { pid }));
                tokio::spawn(async move {
                    connection(stream, router).await;
                    drop(place);
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves a router on TCP, for ever.
pub(crate) async fn serve_tcp(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone().layer(Extension(Peer::default()));
                tokio::spawn(async move {
                    connection(stream, router).await;
                    drop(place);
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Out of descriptors, most likely: trying again at once would only burn the processor.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

async fn connection<S>(stream: S, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADER_READ_TIMEOUT)
        .max_buf_size(limits::CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(error = %crate::error::chain(&error), "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("deep/a.sock");
        let first = bind_unix(&path, None).expect("nothing is there");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o660);
        assert_eq!(bind_unix(&path, None).expect_err("a server lives").kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(path.exists(), "a killed server leaves its socket");
        let second = bind_unix(&path, None).expect("a stale socket is replaced");
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
    }

    /// A server of another kind has no lock of ours; one that is stopped accepts nothing, and its backlog fills up.
    #[tokio::test]
    async fn a_server_that_does_not_accept_is_alive() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("a.sock");
        let stopped = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        stopped.bind(&SockAddr::unix(&path).expect("a path")).expect("nothing is there");
        stopped.listen(0).expect("it listens");
        let _waiting = UnixStream::connect(&path).expect("the backlog has one place");
        assert_eq!(bind_unix(&path, None).expect_err("a server lives").kind(), io::ErrorKind::AddrInUse);
        assert!(is_live(&path).expect("it can be asked"), "it was left in its place");
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        assert_eq!(group_id("root").expect("root exists"), 0);
        assert_eq!(group_id("17").expect("a number is one"), 17);
        assert!(group_id("no-such-group-here").is_err());
    }
}
