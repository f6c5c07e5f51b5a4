//! The hold: wire bytes that wait for their verdict, and the only door out.
//!
//! Invariant: released + held = received at every step, in order, byte for byte. [`Cleared`] can be made in this file
//! alone, and it is all that an inspected body can yield, so forwarding an unscanned byte does not compile.
//!
//! Place in the path: [`super::body`] queues each wire chunk here before it is scanned and takes out what the
//! [`super::inspector`] has cleared. Chunks leave as they came, without a copy; only tiny chunks that must wait behind
//! others are put together, so that a hostile frame size cannot multiply the memory of the hold.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// A chunk shorter than this, in bytes, is copied behind the one before it when it has to wait.
const GATHER_BELOW: usize = 512;
/// Bytes gathered in one buffer at most.
const GATHERED_MAX: usize = 16 * 1024;

/// Wire bytes that may leave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cleared(Bytes);

impl Cleared {
    /// Clears bytes of a body that the plan does not inspect: the one way around the hold.
    pub(super) fn by_plan(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes, on their way to the receiver.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// Wire bytes in arrival order, from the first that has not left.
#[derive(Debug, Default)]
pub(super) struct HoldBack {
    queue: VecDeque<Bytes>,
    /// Tiny chunks put together; they came after everything in `queue`.
    gathered: BytesMut,
    received: u64,
    released: u64,
}

impl HoldBack {
    /// Queues a chunk.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.received += chunk.len() as u64;
        let waits = self.held() > chunk.len() as u64;
        let gathers = waits && chunk.len() < GATHER_BELOW;
        if !gathers || self.gathered.len() + chunk.len() > GATHERED_MAX {
            self.settle_gathered();
        }
        if gathers {
            self.gathered.extend_from_slice(&chunk);
        } else {
            self.queue.push_back(chunk);
        }
    }

    fn settle_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.queue.push_back(self.gathered.split().freeze());
        }
    }

    /// The received bytes from stream offset `from` on; `from` lies within the chunk queued last.
    pub(super) fn since(&self, from: u64) -> &[u8] {
        let last: &[u8] = match self.queue.back() {
            Some(chunk) if self.gathered.is_empty() => chunk,
            _ => &self.gathered,
        };
        let wanted = usize::try_from(self.received - from).unwrap_or(usize::MAX);
        debug_assert!(wanted <= last.len(), "only the chunk queued last is still unscanned");
        &last[last.len().saturating_sub(wanted)..]
    }

    /// Overwrites these stream offsets, none of which has left or is still to come, with `fill`. A chunk that somebody
    /// else holds too is copied.
    pub(super) fn overwrite(&mut self, range: &Range<u64>, fill: u8) {
        debug_assert!(
            self.released <= range.start && range.end <= self.received,
            "what is not here stays as it is"
        );
        let mut at = self.released;
        for chunk in &mut self.queue {
            if let Some(part) = overlap(range, at, chunk.len()) {
                let mut bytes =
                    std::mem::take(chunk).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
                bytes[part].fill(fill);
                *chunk = bytes.freeze();
            }
            at += chunk.len() as u64;
        }
        if let Some(part) = overlap(range, at, self.gathered.len()) {
            self.gathered[part].fill(fill);
        }
    }

    /// The held bytes at these stream offsets, piece by piece.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let mut at = self.released;
        let chunks = self.queue.iter().map(|chunk| &chunk[..]).chain([&self.gathered[..]]);
        chunks.filter_map(move |chunk| {
            let part = overlap(&range, at, chunk.len());
            at += chunk.len() as u64;
            part.map(|part| &chunk[part])
        })
    }

    /// Takes out the next bytes before stream offset `to`, if there are any: a whole chunk or the front of one.
    pub(super) fn release(&mut self, to: u64) -> Option<Cleared> {
        let room = usize::try_from(to.min(self.received).saturating_sub(self.released)).unwrap_or(usize::MAX);
        if room == 0 {
            return None;
        }
        let bytes = match self.queue.front_mut() {
            Some(front) if front.len() > room => front.split_to(room),
            Some(_) => self.queue.pop_front().expect("the queue has a front"),
            None => self.gathered.split_to(room.min(self.gathered.len())).freeze(),
        };
        self.released += bytes.len() as u64;
        Some(Cleared(bytes))
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Bytes that have left.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// Bytes that wait.
    pub(super) fn held(&self) -> u64 {
        self.received - self.released
    }

    /// Gives the held bytes back to the allocator; they will never leave.
    pub(super) fn discard(&mut self) {
        self.queue = VecDeque::new();
        self.gathered = BytesMut::new();
    }
}

/// The part of a chunk of `length` bytes at stream offset `at` that lies in `range`; `None` if there is none.
fn overlap(range: &Range<u64>, at: u64, length: usize) -> Option<Range<usize>> {
    let within = |offset: u64| usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX).min(length);
    let part = within(range.start)..within(range.end);
    (!part.is_empty()).then_some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(hold: &mut HoldBack, to: u64, out: &mut Vec<u8>) {
        while let Some(cleared) = hold.release(to) {
            assert!(!cleared.0.is_empty(), "an empty frame never leaves");
            out.extend_from_slice(&cleared.into_bytes());
        }
    }

    proptest! {
        #[test]
        fn released_and_held_are_what_came(steps in prop::collection::vec((1usize..1500, 0u64..2000), 1..60)) {
            let mut hold = HoldBack::default();
            let (mut sent, mut left) = (Vec::new(), Vec::new());
            for (size, advance) in steps {
                let chunk: Vec<u8> = (0u8..251).cycle().skip(sent.len() % 251).take(size).collect();
                sent.extend_from_slice(&chunk);
                hold.push(Bytes::from(chunk.clone()));
                prop_assert_eq!(hold.since(hold.received() - size as u64), &chunk[..]);
                let to = hold.released() + advance;
                drain(&mut hold, to, &mut left);
                prop_assert_eq!(hold.released() + hold.held(), sent.len() as u64);
                prop_assert_eq!(hold.released(), left.len() as u64);
                prop_assert_eq!(hold.released(), to.min(hold.received()));
            }
            drain(&mut hold, u64::MAX, &mut left);
            prop_assert_eq!(left, sent);
        }
    }

    #[test]
    fn what_is_overwritten_is_these_bytes_alone() {
        let text = b"0123456789".repeat(200);
        for size in [1, 7, 600, 2000] {
            let mut hold = HoldBack::default();
            text.chunks(size).for_each(|chunk| hold.push(Bytes::copy_from_slice(chunk)));
            let mut left = Vec::new();
            drain(&mut hold, 13, &mut left);
            let range = 15..1433;
            hold.overwrite(&range, b'*');
            let pieces: Vec<u8> = hold.pieces(14..1434).flatten().copied().collect();
            assert_eq!(pieces, [&b"4"[..], &vec![b'*'; 1418], b"3"].concat(), "chunks of {size}");
            drain(&mut hold, u64::MAX, &mut left);
            assert_eq!(left, [&text[..15], &vec![b'*'; 1418], &text[1433..]].concat(), "chunks of {size}");
        }
    }

    #[test]
    fn others_do_not_see_what_is_overwritten() {
        let chunk = Bytes::from_static(b"shared");
        let mut hold = HoldBack::default();
        hold.push(chunk.clone());
        hold.overwrite(&(0..6), b'*');
        assert_eq!(&chunk[..], b"shared");
        assert_eq!(hold.release(6).map(Cleared::into_bytes).as_deref(), Some(&b"******"[..]));
    }

    #[test]
    fn a_cleared_chunk_is_not_copied() {
        let chunk = Bytes::from(vec![7u8; 100]);
        let mut hold = HoldBack::default();
        hold.push(chunk.clone());
        assert_eq!(hold.release(100).expect("it is cleared").into_bytes().as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn tiny_chunks_that_wait_are_gathered() {
        let mut hold = HoldBack::default();
        for _ in 0..100_000 {
            hold.push(Bytes::from_static(b"x"));
        }
        assert!(hold.queue.len() <= 1 + 100_000 / GATHERED_MAX + 1, "{} handles", hold.queue.len());
    }
}
