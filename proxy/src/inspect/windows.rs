//! The windows of all decoders together.
//!
//! Each body's window is bounded by its format's limit; this bounds their sum, so that many bodies at once cannot take
//! what one may not. Invariant: a window is reserved before the decoder that needs it exists, and is given back with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::verdict::TroubleKind;

/// What a decoder with a window takes besides it, in bytes: tables, and room for a block.
const TABLES_BYTES: u64 = 256 * 1024;

/// The room for windows.
#[derive(Debug)]
pub(crate) struct Windows {
    max: u64,
    used: AtomicU64,
}

impl Windows {
    /// Room for `max` bytes (`limits.decoder_windows_bytes`).
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    fn take(&self, bytes: u64) -> Result<(), TroubleKind> {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(|_| ())
            .map_err(|_| TroubleKind::Windows)
    }
}

/// The room that one decoder has.
#[derive(Debug)]
pub(super) struct Room {
    windows: Arc<Windows>,
    bytes: u64,
}

impl Room {
    /// None yet.
    pub(super) fn of(windows: &Arc<Windows>) -> Self {
        Self { windows: windows.clone(), bytes: 0 }
    }

    /// Makes it enough for a window of `window` bytes.
    ///
    /// # Errors
    /// All room is taken.
    pub(super) fn grow(&mut self, window: u64) -> Result<(), TroubleKind> {
        let more = window.saturating_add(TABLES_BYTES).saturating_sub(self.bytes);
        self.windows.take(more)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.windows.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let windows = Windows::new(3 * TABLES_BYTES);
        let mut first = Room::of(&windows);
        first.grow(TABLES_BYTES).expect("there is room");
        first.grow(1).expect("no more is needed");
        let mut second = Room::of(&windows);
        assert_eq!(second.grow(1), Err(TroubleKind::Windows));
        second.grow(0).expect("there is just so much room");
        drop(first);
        second.grow(2 * TABLES_BYTES).expect("it came back");
        drop(second);
        assert_eq!(windows.used.load(Ordering::Relaxed), 0);
    }
}
