//! The bytes of a stream that are still needed: what a live attempt has matched, what a head or a
//! context may reach back to, and the chunk at hand.
//!
//! At rest a window keeps the few bytes that rules may look back to; while an attempt lives it keeps
//! the bytes from its start on. It never grows past the longest match and those few bytes.

use std::borrow::Cow;

/// Bytes kept from earlier chunks.
#[derive(Default)]
pub(crate) struct Window {
    /// Stream offset of the first kept byte.
    base: u64,
    kept: Vec<u8>,
}

impl Window {
    /// A window that keeps `before`, which ends at stream offset `at`.
    pub(crate) fn behind(at: u64, before: &[u8]) -> Self {
        Self { base: at - before.len() as u64, kept: before.to_vec() }
    }

    /// Kept bytes and `chunk` as one run of the stream.
    pub(crate) fn with<'a>(&'a self, chunk: &'a [u8]) -> Bytes<'a> {
        Bytes { base: self.base, kept: &self.kept, chunk }
    }

    /// Takes over what `chunk` has from offset `from` on and forgets what lies before it.
    pub(crate) fn advance(&mut self, chunk: &[u8], from: u64) {
        let chunk_start = self.base + self.kept.len() as u64;
        if let Some(skip) = from.checked_sub(chunk_start) {
            let skip = index(skip).min(chunk.len());
            self.kept.clear();
            self.kept.extend_from_slice(&chunk[skip..]);
            self.base = chunk_start + skip as u64;
        } else {
            let drop = index(from.saturating_sub(self.base));
            self.kept.drain(..drop);
            self.kept.extend_from_slice(chunk);
            self.base += drop as u64;
        }
    }

    /// Gives memory back when far more than `rest` bytes are reserved and no more are needed.
    pub(crate) fn shrink(&mut self, rest: usize) {
        if self.kept.len() <= rest && self.kept.capacity() > 2 * rest.max(64) {
            self.kept.shrink_to(rest);
        }
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_usage(&self) -> usize {
        self.kept.capacity()
    }
}

/// A run of the stream: kept bytes, then the chunk at hand.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    base: u64,
    kept: &'a [u8],
    chunk: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// Stream offset of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.base
    }

    /// Stream offset of the chunk's first byte.
    pub(crate) fn chunk_start(&self) -> u64 {
        self.base + self.kept.len() as u64
    }

    /// Stream offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.chunk_start() + self.chunk.len() as u64
    }

    /// The chunk at hand.
    pub(crate) fn chunk(&self) -> &'a [u8] {
        self.chunk
    }

    /// The byte at a stream offset; `None` outside.
    #[inline]
    pub(crate) fn get(&self, at: u64) -> Option<u8> {
        let at = index(at.checked_sub(self.base)?);
        match at.checked_sub(self.kept.len()) {
            None => self.kept.get(at).copied(),
            Some(at) => self.chunk.get(at).copied(),
        }
    }

    /// The bytes from one stream offset to another, clipped to what there is, in two pieces.
    #[inline]
    pub(crate) fn pieces(&self, from: u64, to: u64) -> [&'a [u8]; 2] {
        let clip = |offset: u64| index(offset.max(self.base).min(self.end()) - self.base);
        let (from, to) = (clip(from), clip(to.max(from)));
        let split = self.kept.len();
        [
            &self.kept[from.min(split)..to.min(split)],
            &self.chunk[from.max(split) - split..to.max(split) - split],
        ]
    }

    /// The bytes from one stream offset to another, clipped to what there is, in one piece.
    pub(crate) fn text(&self, from: u64, to: u64) -> Cow<'a, [u8]> {
        match self.pieces(from, to) {
            [whole, []] | [[], whole] => Cow::Borrowed(whole),
            both => Cow::Owned(both.concat()),
        }
    }
}

/// A distance inside a window, which memory bounds.
fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_end_of_the_stream_under_any_advance() {
        let stream: Vec<u8> = (0..=255).collect();
        for size in 1..40usize {
            for keep in [0u64, 1, 5, 64] {
                let mut window = Window::default();
                for (n, chunk) in stream.chunks(size).enumerate() {
                    let start = (n * size) as u64;
                    let bytes = window.with(chunk);
                    assert_eq!(bytes.chunk_start(), start);
                    let first = start.saturating_sub(keep);
                    for offset in first..bytes.end() {
                        assert_eq!(bytes.get(offset).map(u64::from), Some(offset));
                    }
                    assert_eq!(bytes.get(bytes.end()), None);
                    assert_eq!(*bytes.text(first, bytes.end()), stream[index(first)..index(bytes.end())]);
                    let end = bytes.end();
                    window.advance(chunk, end.saturating_sub(keep));
                }
            }
        }
    }
}
