//! How much a bottle may cause in a time: refusals before they get cheaper, findings before they are only counted.
//!
//! A refused tunnel costs a handshake and perhaps a certificate, so that the client can read why. Past a rate the
//! refusal is given to the CONNECT itself. Invariant: what one bottle causes never changes another's share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::identity::BottleKey;

/// Token buckets by bottle: so many tokens in a time, as many at most.
pub(crate) struct Rate {
    most: f64,
    per_second: f64,
    state: Mutex<State>,
}

struct State {
    buckets: HashMap<BottleKey, Bucket>,
    /// When full buckets were forgotten last.
    swept: Instant,
}

/// How often full buckets are forgotten: they say nothing that new ones would not.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rate {
    /// Admits `most` in the time `per`, for each bottle.
    pub(crate) fn new(most: u32, per: Duration) -> Self {
        let most = f64::from(most);
        let state = State { buckets: HashMap::new(), swept: Instant::now() };
        Self { most, per_second: most / per.as_secs_f64(), state: Mutex::new(state) }
    }

    /// Takes a token; false when there is none.
    pub(crate) fn admit(&self, bottle: &BottleKey) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= state.swept + SWEEP_EVERY {
            state.buckets.retain(|key, bucket| key == bottle || self.level(bucket, now) < self.most);
            state.swept = now;
        }
        let full = || Bucket { tokens: self.most, filled: now };
        let bucket = state.buckets.entry(bottle.clone()).or_insert_with(full);
        bucket.tokens = self.level(bucket, now);
        bucket.filled = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }

    fn level(&self, bucket: &Bucket, now: Instant) -> f64 {
        (bucket.tokens + now.duration_since(bucket.filled).as_secs_f64() * self.per_second).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bottle_has_a_rate_of_its_own() {
        let rate = Rate::new(2, Duration::from_secs(1));
        let key = |name: &str| BottleKey { name: name.into(), epoch: 0 };
        let (a, b) = (key("a"), key("b"));
        assert!(rate.admit(&a) && rate.admit(&a) && !rate.admit(&a));
        assert!(rate.admit(&b));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert!(rate.admit(&a) && !rate.admit(&a));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(rate.admit(&b));
        assert_eq!(rate.state.lock().unwrap().buckets.len(), 1, "full buckets are forgotten");
    }
}
