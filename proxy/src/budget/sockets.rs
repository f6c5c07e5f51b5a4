//! What the kernel queues for a connection.
//!
//! Invariants: what is written and not sent is bounded always, which costs no throughput; what is received and not
//! read is the kernel's to size as long as memory is plenty, since a fixed small window wrecks far-away origins, and
//! bounded for whatever connects while it is not.

use std::fmt;
use std::sync::Arc;

use socket2::SockRef;
use tokio::net::TcpStream;

use super::admission::Admission;

/// Beyond this many eighths of the memory, receive buffers are bounded.
const PLENTY_EIGHTHS: u64 = 1;

/// Bounds of a connection's socket.
#[derive(Clone)]
pub(crate) struct Sockets {
    /// Bytes taken and not sent (`limits.socket_unsent_bytes`).
    pub(crate) unsent_bytes: u32,
    /// Bytes received and not read, once memory is short (`limits.socket_receive_bytes`).
    pub(crate) receive_bytes: usize,
    pub(crate) admission: Arc<Admission>,
}

impl Sockets {
    /// Bounds a fresh connection. One that cannot be bounded still works: the kernel's own bounds hold.
    pub(crate) fn bound(&self, stream: &TcpStream) {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_notsent_lowat(self.unsent_bytes);
        if self.admission.is_used_beyond(PLENTY_EIGHTHS) {
            let _ = socket.set_recv_buffer_size(self.receive_bytes);
        }
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unsent_bytes, receive_bytes, .. } = self;
        f.debug_struct("Sockets")
            .field("unsent_bytes", unsent_bytes)
            .field("receive_bytes", receive_bytes)
            .finish()
    }
}
