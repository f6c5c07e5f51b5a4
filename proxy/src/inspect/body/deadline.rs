//! The hold's deadline: how long bytes wait while their sender is silent.
//!
//! Invariant: the timer runs from the moment bytes were first left waiting, and starts anew only when some of them have
//! left. It is made with the first byte that has to wait.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The deadline of one body.
pub(super) struct Deadline {
    after: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Deadline {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, sleep: None, running: false }
    }

    /// Bytes have left, or none wait.
    pub(super) fn stop(&mut self) {
        self.running = false;
    }

    /// Starts the deadline unless it runs; ready when, and as long as, it has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.after)));
        if !self.running {
            sleep.as_mut().reset(Instant::now() + self.after);
            self.running = true;
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(())
    }
}
