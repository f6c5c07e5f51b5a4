//! How much is queued for a connection, by the kernel and by us.
//!
//! A connection that is made while there is memory to spare gets buffers of their full size, which cost less CPU a byte;
//! every other one gets those that the budget allows for all. Likewise a connection over HTTP/2 to an origin gets wide
//! windows, on which its speed over a distance depends. What a connection has beyond the others is reserved, and given
//! back with it.
//!
//! Invariants: what is written and not sent is bounded always, which costs no throughput; what is received and not
//! read is the kernel's to size as long as memory is plenty, since a fixed small window wrecks far-away origins, and
//! bounded for whatever connects while it is not.

use std::fmt;
use std::sync::Arc;

use decant_config::Limits;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::admission::{Admission, Reservation};
use super::memory::resident_own;
use crate::identity::BottleKey;
use crate::queue::Portions;

/// Beyond this many eighths of the memory, receive buffers are bounded.
const PLENTY_EIGHTHS: u64 = 1;

/// Beyond this many eighths of the memory, resident, nobody may hold more than is accounted for.
const OVERDRAWN_EIGHTHS: u64 = 7;

/// Beyond this many sixteenths of the memory, resident, somebody has to give way before the kernel ends all: it charges
/// the supervisor and what it keeps for the process, too.
const EXHAUSTED_SIXTEENTHS: u64 = 15;

/// Less growth than this is none, in bytes.
const GROWTH_BYTES: u64 = 64 * 1024;

/// Large buffers and wide windows are given as long as all that is reserved, they included, is no more than this part of
/// the memory.
const SPARE_PART: u64 = 8;

/// Streams of a connection with wide windows: as much is reserved for it.
const WIDE_STREAMS: u32 = 4;

/// What an HTTP/2 connection lets its peer send before it is read, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// On one stream (`limits.h2_stream_window_bytes`).
    pub(crate) stream: u32,
    /// On all of them (`limits.h2_connection_window_bytes`).
    pub(crate) connection: u32,
}

impl Windows {
    /// Those of `limits`.
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self { stream: limits.h2_stream_window_bytes, connection: limits.h2_connection_window_bytes }
    }

    /// Those of `limits` for a connection of few streams.
    pub(crate) fn wide(limits: &Limits) -> Self {
        let all = limits.h2_stream_window_bytes.saturating_mul(WIDE_STREAMS);
        Self { connection: all.min(limits.h2_connection_window_bytes), ..Self::of(limits) }
    }

    /// How many streams may stand still, with all of their windows unread, and leave others room.
    pub(crate) fn streams(&self) -> usize {
        (self.connection / self.stream.max(1)).max(1) as usize
    }
}

/// How large the buffers of one connection may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of a body in HTTP/1.1.
    pub(crate) portions: Portions,
    /// Taken and not encrypted (`limits.tls_buffer_bytes`).
    pub(crate) tls: usize,
    /// Taken by the kernel and not sent (`limits.socket_unsent_bytes`).
    pub(crate) unsent: u32,
    /// Of each stream of HTTP/2, taken and not framed (`limits.h2_send_buffer_bytes`).
    pub(crate) send: usize,
}

impl Sizes {
    /// Those of `limits`.
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self {
            portions: Portions { read: limits.h1_read_bytes, queue: limits.write_queue_bytes },
            tls: limits.tls_buffer_bytes,
            unsent: limits.socket_unsent_bytes,
            send: limits.h2_send_buffer_bytes,
        }
    }

    /// Bytes that all of them hold at most, for one body.
    fn sum(&self) -> u64 {
        let ours = self.portions.read + self.portions.queue + self.tls + self.send;
        ours as u64 + u64::from(self.unsent)
    }
}

/// The buffers of one connection, and what is reserved for them beyond what every connection has.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) sizes: Sizes,
    _spare: Option<Reservation>,
}

/// Bounds of connections.
#[derive(Clone)]
pub(crate) struct Sockets {
    /// What the budget allows for everybody.
    pub(crate) tight: Sizes,
    /// What `limits` says, whatever the budget.
    pub(crate) ample: Sizes,
    /// The same for HTTP/2 with origins.
    pub(crate) narrow: Windows,
    pub(crate) wide: Windows,
    /// Bytes received and not read, once memory is short (`limits.socket_receive_bytes`).
    pub(crate) receive_bytes: usize,
    pub(crate) admission: Arc<Admission>,
    /// All of the memory.
    pub(crate) budget: u64,
}

impl Sockets {
    /// The buffers of a connection that is made for `bottle` now.
    pub(crate) fn room(&self, bottle: &BottleKey) -> Room {
        let beyond = self.ample.sum().saturating_sub(self.tight.sum());
        match self.admission.take_spare(bottle, beyond, SPARE_PART) {
            Some(spare) => Room { sizes: self.ample, _spare: Some(spare) },
            None => self.tight_room(),
        }
    }

    /// The buffers of a connection that is to have no more than it needs.
    pub(crate) fn tight_room(&self) -> Room {
        Room { sizes: self.tight, _spare: None }
    }

    /// The windows of an HTTP/2 connection to an origin that is made for `bottle` now, and what is reserved for them: an
    /// exchange reserves the narrow ones by itself.
    pub(crate) fn windows(&self, bottle: &BottleKey) -> (Windows, Option<Reservation>) {
        if self.wide.stream <= self.narrow.stream {
            return (self.narrow, None);
        }
        let bytes = u64::from(self.wide.connection);
        match self.admission.take_spare(bottle, bytes, SPARE_PART) {
            Some(reserved) => (self.wide, Some(reserved)),
            None => (self.narrow, None),
        }
    }

    /// Whether so much memory is resident that what holds more than it has reserved has to let go.
    pub(crate) fn are_overdrawn(&self) -> bool {
        resident_own() > self.budget / 8 * OVERDRAWN_EIGHTHS
    }

    /// Bounds a fresh connection. One that cannot be bounded still works: the kernel's own bounds hold.
    pub(crate) fn bound(&self, stream: &TcpStream, sizes: &Sizes) {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_notsent_lowat(sizes.unsent);
        if self.admission.is_used_beyond(PLENTY_EIGHTHS) {
            let _ = socket.set_recv_buffer_size(self.receive_bytes);
        }
    }
}

/// What is known of the resident memory from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// Where it stood when somebody last had to give way, as long as it stays near that.
    given_way_at: u64,
}

impl Headroom {
    /// Takes a look at `resident` bytes of `budget`; whether somebody has to give way now.
    pub(crate) fn is_exhausted(&mut self, resident: u64, budget: u64) -> bool {
        if resident <= budget / 16 * EXHAUSTED_SIXTEENTHS {
            self.given_way_at = 0;
            return false;
        }
        let grows = resident >= self.given_way_at + GROWTH_BYTES;
        if grows {
            self.given_way_at = resident;
        }
        grows
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tight, ample, narrow, wide, receive_bytes, .. } = self;
        f.debug_struct("Sockets")
            .field("tight", tight)
            .field("ample", ample)
            .field("narrow", narrow)
            .field("wide", wide)
            .field("receive_bytes", receive_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_gives_way_only_where_memory_runs_out_and_grows() {
        let (budget, mib) = (64 << 20, 1 << 20);
        let mut headroom = Headroom::default();
        let looks = [
            (59 * mib, false, "there is room"),
            (60 * mib + 1, true, "there is none"),
            (60 * mib + 2, false, "it stands still"),
            (61 * mib, true, "it grows"),
            (60 * mib + 1, false, "it falls"),
            (61 * mib, false, "no more than at its worst"),
            (59 * mib, false, "there is room again"),
            (60 * mib + 1, true, "it begins anew"),
        ];
        for (resident, expected, why) in looks {
            assert_eq!(headroom.is_exhausted(resident, budget), expected, "{why}");
        }
    }
}
