//! The handover: what the supervisor gives to a worker that it starts.
//!
//! One message over the socket pair that is the worker's standard input: the terms as JSON, and with their first byte
//! the listening sockets, the configuration that was last in force, and the journal (`SCM_RIGHTS`, unix(7)). Afterwards the same socket is the channel on which
//! the supervisor asks the worker. Invariant: the sockets are the supervisor's own, so that a connection that arrives
//! while no worker lives waits in their backlog.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// Listening sockets that one handover carries at most.
pub(crate) const LISTENERS_MAX: usize = 64;
/// Descriptors of one message: the listening sockets, the configuration and the journal.
const DESCRIPTORS_MAX: usize = LISTENERS_MAX + 2;
/// Bytes of the terms.
const TERMS_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the length in front of the terms.
const LENGTH_BYTES: usize = 4;

/// What a worker has to know beyond its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// Where the supervisor's admin port listens.
    pub(crate) admin: SocketAddr,
    /// The token by which the supervisor's probe is known.
    pub(crate) probe_token: String,
    /// The supervisor's process id: the worker ends with it.
    pub(crate) supervisor: u32,
    /// The workers before it that have not ended, by process id: their memory is not to be had.
    pub(crate) before: Vec<u32>,
    /// Whether to say on standard output what runs.
    pub(crate) announce: bool,
}

/// A handover, as the worker has it.
pub(crate) struct Handover {
    pub(crate) terms: Terms,
    pub(crate) proxies: Vec<TcpListener>,
    /// The configuration that was last in force, empty if none was: see [`crate::channel::path::CONFIG`].
    pub(crate) config: File,
    pub(crate) journal: File,
    /// Where the supervisor asks from here on.
    pub(crate) channel: UnixStream,
}

/// Sends a handover.
///
/// # Errors
/// When the worker's end is closed, or there are more than [`LISTENERS_MAX`] sockets.
pub(crate) fn give(
    mut channel: &UnixStream,
    terms: &Terms,
    proxies: &[TcpListener],
    config: &File,
    journal: &File,
) -> io::Result<()> {
    let text = serde_json::to_vec(terms)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes();
    let descriptors: Vec<BorrowedFd<'_>> =
        proxies.iter().map(TcpListener::as_fd).chain([config.as_fd(), journal.as_fd()]).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= DESCRIPTORS_MAX;
    if !(fits && control.push(SendAncillaryMessage::ScmRights(&descriptors))) {
        return Err(io::Error::other(format!("more than {LISTENERS_MAX} listening sockets")));
    }
    sendmsg(channel, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    channel.write_all(&text)
}

/// Takes the handover that waits on `channel`.
///
/// # Errors
/// When the supervisor's end is closed, or what comes is no handover.
pub(crate) fn take(mut channel: UnixStream) -> io::Result<Handover> {
    let mut length = [0; LENGTH_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&channel, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if received.bytes != LENGTH_BYTES || length > TERMS_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    channel.read_exact(&mut text)?;
    let terms = serde_json::from_slice(&text)?;
    let mut file = || descriptors.pop().map(File::from).ok_or(io::ErrorKind::InvalidData);
    let (journal, config) = (file()?, file()?);
    let proxies = descriptors.into_iter().map(TcpListener::from).collect();
    Ok(Handover { terms, proxies, config, journal, channel })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn what_is_given_is_taken() {
        let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        for count in [1, 2, LISTENERS_MAX] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let proxies: Vec<TcpListener> = (0..count).map(|_| listener()).collect();
            let addresses = |all: &[TcpListener]| -> Vec<SocketAddr> {
                all.iter().map(|one| one.local_addr().expect("it is bound")).collect()
            };
            let terms = Terms {
                admin: (Ipv4Addr::LOCALHOST, 9190).into(),
                probe_token: "token".into(),
                supervisor: 1,
                before: vec![7],
                announce: true,
            };
            let [config, journal] = ["config", "journal"].map(|text| {
                let mut file = tempfile::tempfile().expect("a file");
                file.write_all(text.as_bytes()).expect("it is written");
                file
            });
            give(&ours, &terms, &proxies, &config, &journal).expect("it is sent");
            (&ours).write_all(b"and then").expect("it is sent");
            let taken = take(theirs).expect("it is taken");
            assert_eq!(taken.terms, terms);
            assert_eq!(addresses(&taken.proxies), addresses(&proxies));
            for (file, text) in [(&taken.config, "config"), (&taken.journal, "journal")] {
                let mut bytes = [0; 16];
                let read = std::os::unix::fs::FileExt::read_at(file, &mut bytes, 0).expect("it is there");
                assert_eq!(&bytes[..read], text.as_bytes());
            }
            let mut rest = [0; 8];
            (&taken.channel).read_exact(&mut rest).expect("it comes");
            assert_eq!(&rest, b"and then", "what follows is left to the channel");
        }
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let many: Vec<TcpListener> = (0..=LISTENERS_MAX).map(|_| listener()).collect();
        let terms = Terms {
            admin: (Ipv4Addr::LOCALHOST, 1).into(),
            probe_token: String::new(),
            supervisor: 1,
            before: vec![7],
            announce: false,
        };
        let file = tempfile::tempfile().expect("a file");
        assert!(give(&ours, &terms, &many, &file, &file).is_err());
    }

    #[test]
    fn what_is_no_handover_is_refused() {
        for sent in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\x02{}", b"\0\0\0\x05"] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (&ours).write_all(sent).expect("it is sent");
            drop(ours);
            assert!(take(theirs).is_err(), "{sent:?}");
        }
    }
}
