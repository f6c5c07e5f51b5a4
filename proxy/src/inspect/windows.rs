//! Where decoders get their memory: a window is reserved before the decoder that needs it exists, and is given back
//! with it.
//!
//! Invariants: nobody waits for a window who holds another one of the same exchange, so that two cannot wait for each
//! other; a decoder that waits has read nothing of the bytes it waits at.
//!
//! Place in the path: a decoder asks its [`Room`]. Where there is no memory the body that is being scanned waits, by
//! [`Supply::poll_granted`], and then goes on where it stood.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use decant_detectors::DecoderRoom;

use super::verdict::TroubleKind;
use crate::budget::{Admission, Kind, NoMemory, Reservation, WINDOW_TABLES_BYTES};
use crate::identity::BottleKey;

/// The memory of one exchange's decoders.
#[derive(Clone)]
pub(crate) struct Windows {
    /// `None`: as much as is asked for.
    ledger: Option<(Arc<Admission>, BottleKey)>,
    /// Rooms of the exchange that hold something.
    holding: Arc<AtomicUsize>,
}

impl Windows {
    /// Of `bottle`, out of the gateway's memory.
    pub(crate) fn of(admission: &Arc<Admission>, bottle: &BottleKey) -> Self {
        Self { ledger: Some((admission.clone(), bottle.clone())), holding: Arc::default() }
    }

    /// As much as is asked for.
    pub(crate) fn unbounded() -> Self {
        Self { ledger: None, holding: Arc::default() }
    }
}

impl Windows {
    /// For the decoders of what is compressed inside a body's content.
    pub(super) fn of_views(&self) -> Box<dyn DecoderRoom> {
        Box::new(ViewRoom { windows: self.clone(), held: Vec::new() })
    }
}

/// The memory of the decoders inside a body's content: had at once or not at all, as nobody can wait amid a scan.
struct ViewRoom {
    windows: Windows,
    held: Vec<Reservation>,
}

impl DecoderRoom for ViewRoom {
    fn take(&mut self, bytes: u64) -> bool {
        let Some((admission, bottle)) = &self.windows.ledger else { return true };
        let Ok(taken) = admission.take(bottle, Kind::Decoder, bytes) else { return false };
        if self.held.is_empty() {
            self.windows.holding.fetch_add(1, Ordering::Relaxed);
        }
        self.held.push(taken);
        true
    }

    fn give_back(&mut self, bytes: u64) {
        if let Some(at) = self.held.iter().position(|held| held.bytes() == bytes) {
            self.held.swap_remove(at);
            if self.held.is_empty() {
                self.windows.holding.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for ViewRoom {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.windows.holding.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<Reservation, NoMemory>> + Send>>;

/// What one body's decoders have asked for.
pub(super) struct Supply {
    windows: Windows,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes that a decoder waits for.
    wanted: Option<u64>,
    wait: Option<Wait>,
    /// What came of the wait.
    granted: Option<Result<Reservation, NoMemory>>,
}

impl Supply {
    pub(super) fn new(windows: &Windows) -> Arc<Self> {
        Arc::new(Self { windows: windows.clone(), state: Mutex::default() })
    }

    /// Whether a decoder waits for memory.
    pub(super) fn is_wanted(&self) -> bool {
        self.state().wanted.is_some()
    }

    /// Waits for what a decoder wants; ready when it may ask again, or when nothing is wanted.
    pub(super) fn poll_granted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let (Some(bytes), Some((admission, bottle))) = (state.wanted, &self.windows.ledger) else {
            return Poll::Ready(());
        };
        let wait = state.wait.get_or_insert_with(|| {
            let (admission, bottle) = (admission.clone(), bottle.clone());
            Box::pin(async move { admission.acquire(&bottle, Kind::Decoder, bytes).await })
        });
        let granted = ready!(wait.as_mut().poll(cx));
        *state = State { granted: Some(granted), ..State::default() };
        Poll::Ready(())
    }

    fn take(&self, bytes: u64) -> Result<Option<Reservation>, TroubleKind> {
        let Some((admission, bottle)) = &self.windows.ledger else { return Ok(None) };
        let mut state = self.state();
        match state.granted.take() {
            Some(Ok(granted)) if granted.bytes() >= bytes => return Ok(Some(granted)),
            Some(Err(error)) => return Err(TroubleKind::Memory(error)),
            Some(Ok(_)) | None => {}
        }
        admission.take(bottle, Kind::Decoder, bytes).map(Some).map_err(|error| {
            if self.windows.holding.load(Ordering::Relaxed) == 0 {
                state.wanted = Some(bytes);
            }
            TroubleKind::Memory(error)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The room that one decoder has.
pub(super) struct Room {
    supply: Arc<Supply>,
    bytes: u64,
    held: Vec<Reservation>,
}

impl Room {
    /// None yet.
    pub(super) fn of(supply: &Arc<Supply>) -> Self {
        Self { supply: supply.clone(), bytes: 0, held: Vec::new() }
    }

    /// Makes it enough for a window of `window` bytes, and the tables beside it.
    ///
    /// # Errors
    /// There is no memory. Where the body may wait for it, the supply says that it is wanted.
    pub(super) fn grow(&mut self, window: u64) -> Result<(), TroubleKind> {
        self.grow_to(window.saturating_add(WINDOW_TABLES_BYTES))
    }

    /// Makes it `bytes`, if it is less.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), TroubleKind> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let taken = self.supply.take(more)?;
        if self.bytes == 0 {
            self.supply.windows.holding.fetch_add(1, Ordering::Relaxed);
        }
        self.held.extend(taken);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.supply.windows.holding.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;

    use super::*;
    use crate::budget::Terms;

    const TABLES: u64 = WINDOW_TABLES_BYTES;

    #[test]
    fn views_take_their_decoders_at_once_or_not_at_all() {
        let admission = admission(3 * TABLES);
        let bottle = BottleKey { name: "a".into(), epoch: 0 };
        let windows = Windows::of(&admission, &bottle);
        let (mut one, mut two) = (windows.of_views(), windows.of_views());
        assert!(one.take(TABLES) && one.take(TABLES) && two.take(TABLES));
        assert!(!two.take(1), "nothing is left");
        one.give_back(TABLES);
        assert!(two.take(TABLES));
        let supply = Supply::new(&windows);
        assert!(Room::of(&supply).grow(TABLES).is_err());
        assert!(!supply.is_wanted(), "nobody waits for a window whose views hold memory");
        drop((one, two));
        assert_eq!((admission.reserved().sum(), windows.holding.load(Ordering::Relaxed)), (0, 0));
    }

    fn admission(capacity: u64) -> Arc<Admission> {
        let terms = Terms {
            capacity,
            connection: 0,
            exchange: 0,
            stream: 0,
            decoders: 0,
            bottle: u64::MAX,
            exchanges: 8,
        };
        Admission::new(terms, Duration::from_secs(10))
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_is_waited_for_once_and_by_those_who_hold_none() {
        let admission = admission(4 * TABLES);
        let bottle = BottleKey { name: "a".into(), epoch: 0 };
        let exchange = || Supply::new(&Windows::of(&admission, &bottle));
        let (first, second) = (exchange(), exchange());
        let (mut one, mut two) = (Room::of(&first), Room::of(&second));
        one.grow(2 * TABLES).expect("there is room");
        one.grow(1).expect("no more is needed");
        assert!(one.grow(4 * TABLES).is_err());
        assert!(!first.is_wanted(), "it holds a window");

        assert!(two.grow(TABLES).is_err());
        assert!(second.is_wanted());
        let mut granted = std::future::poll_fn(|cx| second.poll_granted(cx));
        assert!(poll!(&mut granted).is_pending());
        drop(one);
        granted.await;
        two.grow(TABLES).expect("it came back");
        assert_eq!(admission.reserved().sum(), 2 * TABLES);

        let (third, _full) = (exchange(), admission.take(&bottle, Kind::Exchange, 2 * TABLES));
        let mut three = Room::of(&third);
        assert!(three.grow(TABLES).is_err());
        std::future::poll_fn(|cx| third.poll_granted(cx)).await;
        assert!(matches!(three.grow(TABLES), Err(TroubleKind::Memory(_))), "its patience is over");
        assert!(!third.is_wanted(), "nobody waits twice");
        drop((two, three, _full));
        assert_eq!(admission.reserved().sum(), 0);
    }
}
