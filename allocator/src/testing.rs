//! What several modules' tests share: small pools, wishes, leases, a host that tests rule.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::book::decide::{SubnetWish, Wish};
use crate::book::{Book, Change, Counters, PoolSettings};
use crate::host::{Host, Route};
use crate::lease::{Lease, LeaseId, Owner, Process, State};
use crate::pool::ports::{PortWish, Proto};
use crate::settings::{EngineChoice, GatewayChoice, LeaseTimes, OnExpire, Settings};
use crate::time::Stamp;

pub(crate) const T0: Stamp = Stamp(1_700_000_000_000);

pub(crate) fn after(seconds: u64) -> Stamp {
    T0.plus(Duration::from_secs(seconds))
}

pub(crate) fn pools() -> PoolSettings {
    let blocks = vec!["10.252.0.0/22".parse().expect("a network")];
    PoolSettings { ports: 20000..=20019, excluded: vec![20003], blocks, prefix: 24 }
}

pub(crate) fn book() -> Book {
    Book::new(&pools(), Counters::default()).expect("the pools are good")
}

/// A wish for `ports` TCP ports, and a subnet if asked for.
pub(crate) fn wish(key: &str, ports: usize, subnet: Option<SubnetWish>) -> Wish {
    let port = PortWish { proto: Proto::Tcp, number: None };
    Wish {
        client_key: key.to_owned(),
        request: [u8::try_from(ports).unwrap_or(255); 32],
        session: format!("session-{key}"),
        policy: None,
        ports: (0..ports).map(|index| (format!("p{index}"), port)).collect(),
        subnet,
        owner: Owner { boot_id: "boot-1".into(), ..Owner::default() },
        ttl: Duration::from_secs(60),
    }
}

pub(crate) const BARE: SubnetWish = SubnetWish { prefix: None, create_network: false, internal: false };
pub(crate) const NETWORK: SubnetWish = SubnetWish { prefix: None, create_network: true, internal: false };

pub(crate) fn apply(book: &mut Book, changes: &[Change]) {
    for change in changes {
        book.apply(change);
    }
}

/// A reserved lease in the book.
pub(crate) fn reserved(book: &mut Book, wish: &Wish) -> Lease {
    let decided = crate::book::decide::reserve(book, wish, LeaseId::random(), &Default::default(), T0);
    let (changes, lease) = decided.expect("there is room");
    apply(book, &changes);
    lease
}

/// An active lease in the book, its network (if it has one) recorded as `net-` and its key.
pub(crate) fn active(book: &mut Book, wish: &Wish) -> Lease {
    let lease = reserved(book, wish);
    if lease.network().is_some() {
        let network = format!("net-{}", wish.client_key);
        let (changes, _) =
            crate::book::decide::set_network(book, &lease.id, Some(&network), false).expect("it has one");
        apply(book, &changes);
    }
    let (changes, lease) =
        crate::book::decide::advance(book, &lease.id, State::Active, T0).expect("it is reserved");
    apply(book, &changes);
    lease
}

pub(crate) fn settings() -> Settings {
    Settings {
        ports: 20000..=20019,
        excluded: vec![20003],
        allow_ephemeral: false,
        guard: false,
        pool: "10.252.0.0/22".parse().expect("a network"),
        prefix: 24,
        strict_routes: false,
        times: LeaseTimes {
            ttl: Duration::from_secs(60),
            drain: Duration::from_millis(50),
            grace: Duration::from_millis(50),
        },
        on_expire: OnExpire::Cut,
        engine: EngineChoice::Auto,
        gateway: GatewayChoice::None,
        state_dir: "/nonexistent".into(),
        socket: "/nonexistent/allocator.sock".into(),
        group: None,
        gateway_group: None,
        listen: None,
    }
}

/// A host whose every answer a test sets.
#[derive(Debug, Default)]
pub(crate) struct FakeHost(Mutex<FakeHostState>);

#[derive(Debug, Default)]
pub(crate) struct FakeHostState {
    pub(crate) busy: HashSet<(Proto, u16)>,
    pub(crate) broken: HashSet<u16>,
    pub(crate) routes: Vec<Route>,
    /// How often the routes were read.
    pub(crate) readings: usize,
    pub(crate) dead: HashSet<i32>,
    pub(crate) boot_id: String,
}

impl FakeHost {
    pub(crate) fn state(&self) -> MutexGuard<'_, FakeHostState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for FakeHost {
    fn port_free(&self, proto: Proto, number: u16) -> io::Result<bool> {
        let state = self.state();
        if state.broken.contains(&number) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(!state.busy.contains(&(proto, number)))
    }

    fn routes(&self) -> BoxFuture<'_, io::Result<Vec<Route>>> {
        Box::pin(async move {
            // As with the kernel, others come to their turn meanwhile.
            tokio::task::yield_now().await;
            let mut state = self.state();
            state.readings += 1;
            Ok(state.routes.clone())
        })
    }

    fn alive(&self, process: &Process) -> bool {
        !self.state().dead.contains(&process.pid)
    }

    fn boot_id(&self) -> String {
        self.state().boot_id.clone()
    }
}
