//! How many refusals a bottle may cause in a second before they get cheaper.
//!
//! A refused tunnel costs a handshake and perhaps a certificate, so that the client can read why. Past a rate the
//! refusal is given to the CONNECT itself. Invariant: one bottle's refusals never change another's.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::identity::BottleKey;

/// Token buckets by bottle: `per_second` tokens a second, as many at most.
pub(crate) struct Rate {
    per_second: u32,
    buckets: Mutex<HashMap<BottleKey, Bucket>>,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rate {
    /// Admits `per_second` a second and bottle.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Takes a token; false when there is none.
    pub(crate) fn admit(&self, bottle: &BottleKey) -> bool {
        let now = Instant::now();
        let most = f64::from(self.per_second);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // A full bucket says nothing that a new one would not.
        buckets.retain(|key, bucket| key == bottle || bucket.level(now, most) < most);
        let bucket = buckets.entry(bottle.clone()).or_insert(Bucket { tokens: most, filled: now });
        bucket.tokens = bucket.level(now, most);
        bucket.filled = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

impl Bucket {
    fn level(&self, now: Instant, most: f64) -> f64 {
        (self.tokens + now.duration_since(self.filled).as_secs_f64() * most).min(most)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bottle_has_a_rate_of_its_own() {
        let rate = Rate::new(2);
        let key = |name: &str| BottleKey { name: name.into(), epoch: 0 };
        let (a, b) = (key("a"), key("b"));
        assert!(rate.admit(&a) && rate.admit(&a) && !rate.admit(&a));
        assert!(rate.admit(&b));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert!(rate.admit(&a) && !rate.admit(&a));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(rate.admit(&b));
        assert_eq!(rate.buckets.lock().unwrap().len(), 1, "full buckets are forgotten");
    }
}
