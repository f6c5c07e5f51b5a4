//! Identity: which bottle a connection belongs to, pinned when it is accepted.
//!
//! Owns the table from source addresses to bottles. Invariants: a source matches at most one bottle (overlaps are
//! refused when the table is built); what is unknown has no identity at all, never a default one; a connection keeps
//! the bottle it was accepted as, whatever the table says later.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use decant_config::Mode;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

/// Names a bottle in every cache, pool and log: its name and the epoch of the lease it came with (0 for a
/// configured bottle), so that nothing of an earlier bottle of the same name is ever reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BottleKey {
    /// The bottle's name, as in configuration, logs and metrics.
    pub(crate) name: Arc<str>,
    /// The epoch of the lease; 0 where the bottle has none.
    pub(crate) epoch: u64,
}

/// A known bottle.
#[derive(Debug)]
pub(crate) struct Bottle {
    pub(crate) key: BottleKey,
    /// The name of its policy.
    pub(crate) policy: Arc<str>,
    /// Its own mode, where it differs from its policy's.
    pub(crate) mode: Option<Mode>,
    pub(crate) labels: BTreeMap<String, String>,
    /// SHA-256 of the token it must present as a second factor.
    pub(crate) token_sha256: Option<[u8; 32]>,
    closings: watch::Sender<Closings>,
    /// When its last exchange began that the journal knows, in milliseconds of the monotonic clock.
    began_ms: AtomicU64,
}

/// What has closed a bottle's connections so far.
#[derive(Clone, Copy, Debug, Default)]
struct Closings {
    /// How often it was cut.
    cuts: u32,
    /// Whether it is no bottle any more.
    ended: bool,
}

/// Tells a connection when it has to close; taken before the connection is admitted, so that no closing is missed.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    seen: u32,
    closings: watch::Receiver<Closings>,
}

impl Closing {
    /// Returns once the connection has to close.
    pub(crate) async fn due(mut self) {
        let seen = self.seen;
        // A bottle that nobody knows any more has ended.
        let _ = self.closings.wait_for(|now| now.ended || now.cuts != seen).await;
    }
}

impl Bottle {
    /// A bottle that lives.
    pub(crate) fn new(
        key: BottleKey,
        policy: Arc<str>,
        mode: Option<Mode>,
        labels: BTreeMap<String, String>,
        token_sha256: Option<[u8; 32]>,
    ) -> Self {
        let closings = watch::Sender::new(Closings::default());
        Self { key, policy, mode, labels, token_sha256, closings, began_ms: AtomicU64::new(0) }
    }

    /// Ends the bottle: everybody who waits for it learns it at once.
    pub(crate) fn end(&self) {
        self.closings.send_modify(|closings| closings.ended = true);
    }

    /// Whether the bottle has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.closings.borrow().ended
    }

    /// Closes the connections that are there now.
    pub(crate) fn cut(&self) {
        self.closings.send_modify(|closings| closings.cuts += 1);
    }

    /// What tells a connection of this bottle to close.
    pub(crate) fn closing(&self) -> Closing {
        let closings = self.closings.subscribe();
        let seen = closings.borrow().cuts;
        Closing { seen, closings }
    }

    /// Whether a beginning at `now_ms` is to be noted: the last one that was lies `apart` or longer back.
    pub(crate) fn begins(&self, now_ms: u64, apart: Duration) -> bool {
        let last = self.began_ms.load(Ordering::Relaxed);
        if u128::from(now_ms.saturating_sub(last)) < apart.as_millis() {
            return false;
        }
        // Of several at once, one is noted.
        self.began_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether `headers` carry this bottle's token, or it needs none (RFC 9110 §11.7: Basic's password, or Bearer).
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        match self.token_sha256 {
            None => true,
            Some(expected) => presented_token(headers).is_some_and(|token| same_digest(&token, &expected)),
        }
    }
}

/// Compares by digest, so that the time taken says nothing about the token.
pub(crate) fn same_digest(token: &[u8], expected: &[u8; 32]) -> bool {
    let digest: [u8; 32] = Sha256::digest(token).into();
    digest.iter().zip(expected).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The token in `Proxy-Authorization`: the Bearer token, or the password of Basic.
pub(crate) fn presented_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(PROXY_AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Where the bottle's connections come from.
    pub(crate) source: IpNet,
    /// The gateway's own address they must arrive at; any where it is absent.
    pub(crate) arrival: Option<IpAddr>,
    pub(crate) bottle: Arc<Bottle>,
}

/// Sources to bottles.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityTable {
    entries: Vec<Entry>,
}

impl IdentityTable {
    /// Its rows.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Builds the table.
    ///
    /// # Errors
    /// Names the first two bottles whose sources overlap.
    pub(crate) fn new(entries: Vec<Entry>) -> Result<Self, Overlap> {
        for (index, one) in entries.iter().enumerate() {
            for other in &entries[index + 1..] {
                if overlaps(one, other) {
                    return Err(Overlap(
                        one.bottle.key.name.clone(),
                        other.bottle.key.name.clone(),
                        other.source,
                    ));
                }
            }
        }
        Ok(Self { entries })
    }

    /// The bottle that owns a connection from `source` that arrived at `local`. Mapped IPv4 addresses are unwrapped.
    pub(crate) fn find(&self, source: IpAddr, local: IpAddr) -> Option<Arc<Bottle>> {
        let (source, local) = (source.to_canonical(), local.to_canonical());
        let fits =
            |entry: &&Entry| entry.source.contains(&source) && entry.arrival.is_none_or(|at| at == local);
        self.entries.iter().find(fits).map(|entry| entry.bottle.clone())
    }
}

fn overlaps(one: &Entry, other: &Entry) -> bool {
    let nested = one.source.contains(&other.source) || other.source.contains(&one.source);
    let apart = matches!((one.arrival, other.arrival), (Some(a), Some(b)) if a != b);
    nested && !apart && !Arc::ptr_eq(&one.bottle, &other.bottle)
}

/// Two bottles claim the same source.
#[derive(Debug)]
pub(crate) struct Overlap(Arc<str>, Arc<str>, IpNet);

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bottles `{}` and `{}` both claim source {}; give each its own", self.0, self.1, self.2)
    }
}

impl std::error::Error for Overlap {}

#[cfg(test)]
mod tests {
    use super::*;

    fn bottle(name: &str, token: Option<&[u8]>) -> Arc<Bottle> {
        let key = BottleKey { name: name.into(), epoch: 0 };
        let token_sha256 = token.map(|token| Sha256::digest(token).into());
        Arc::new(Bottle::new(key, "default".into(), None, BTreeMap::new(), token_sha256))
    }

    fn entry(source: &str, arrival: Option<&str>, bottle: &Arc<Bottle>) -> Entry {
        Entry {
            source: source.parse().unwrap(),
            arrival: arrival.map(|a| a.parse().unwrap()),
            bottle: bottle.clone(),
        }
    }

    #[test]
    fn a_source_is_known_by_network_and_arrival() {
        let (a, b) = (bottle("a", None), bottle("b", None));
        let table = IdentityTable::new(vec![
            entry("10.0.0.0/29", None, &a),
            entry("10.1.0.0/24", Some("10.1.0.1"), &b),
            entry("::1/128", None, &a),
        ])
        .unwrap();
        let cases = [
            ("10.0.0.3", "10.0.0.1", Some("a")),
            ("::ffff:10.0.0.3", "10.0.0.1", Some("a")),
            ("10.0.0.9", "10.0.0.1", None),
            ("10.1.0.7", "10.1.0.1", Some("b")),
            ("10.1.0.7", "10.9.0.1", None),
            ("::1", "::1", Some("a")),
        ];
        for (source, local, expected) in cases {
            let found = table.find(source.parse().unwrap(), local.parse().unwrap());
            assert_eq!(found.as_ref().map(|b| &*b.key.name), expected, "{source} at {local}");
        }
    }

    #[test]
    fn overlapping_sources_are_refused_unless_they_arrive_apart() {
        let (a, b) = (bottle("a", None), bottle("b", None));
        let overlap = IdentityTable::new(vec![entry("10.0.0.0/8", None, &a), entry("10.1.0.0/16", None, &b)]);
        assert!(overlap.unwrap_err().to_string().contains("`a` and `b`"));
        let apart =
            vec![entry("10.0.0.0/8", Some("10.0.0.1"), &a), entry("10.0.0.0/8", Some("10.0.0.2"), &b)];
        assert!(IdentityTable::new(apart).is_ok());
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_the_password_of_basic() {
        let dev = bottle("dev", Some(b"t0ken:x"));
        let basic = format!("Basic {}", STANDARD.encode("user:t0ken:x"));
        for (value, admitted) in
            [("Bearer t0ken:x", true), (&basic, true), ("Bearer other", false), ("Digest x", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(PROXY_AUTHORIZATION, value.parse().unwrap());
            assert_eq!(dev.admits(&headers), admitted, "{value}");
        }
        assert!(!dev.admits(&HeaderMap::new()));
        assert!(bottle("open", None).admits(&HeaderMap::new()));
    }
}
