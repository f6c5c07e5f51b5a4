//! The store: what was recorded is read back, what breaks a constraint is refused and leaves the rest.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::book::decide::{self, Blocked};
use crate::lease::{Cause, LeaseId, State};
use crate::testing::{NETWORK, T0, active, after, apply, book, pools, wish};

/// An observer that counts.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Move>>>);

/// A lease's state before and after.
type Move = (Option<State>, Option<State>);

impl Observer for Heard {
    fn committed(&mut self, transitions: &[Transition]) {
        let states = transitions.iter().map(|one| {
            (one.old.as_ref().map(|lease| lease.state), one.new.as_ref().map(|lease| lease.state))
        });
        self.0.lock().expect("nobody panicked").extend(states);
    }

    fn reset(&mut self, _: &Book) {
        self.0.lock().expect("nobody panicked").clear();
    }
}

fn open(path: &Path) -> Ledger {
    Ledger::open(path, &pools(), Heard::default()).expect("the store opens")
}

async fn put(ledger: &Ledger, changes: Vec<Change>) -> Result<(), Error> {
    ledger.record(move |_| Ok::<_, Error>((changes, ()))).await
}

#[tokio::test]
async fn what_was_recorded_is_read_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("a.db");
    let mut expected = book();
    let ledger = open(&path);
    let mut changes = Vec::new();
    for (key, ports) in [("a", 3), ("b", 2), ("c", 1)] {
        let (made, lease) = decide::reserve(
            &expected,
            &wish(key, ports, Some(NETWORK)),
            LeaseId::random(),
            &Blocked::default(),
            T0,
        )
        .expect("there is room");
        apply(&mut expected, &made);
        changes.push(made);
        let network = decide::set_network(&expected, &lease.id, Some("n"), false).expect("it has one").0;
        apply(&mut expected, &network);
        changes.push(network);
        let up = decide::advance(&expected, &lease.id, State::Active, after(1)).expect("it is reserved").0;
        apply(&mut expected, &up);
        changes.push(up);
        if key == "b" {
            let swapped = decide::conflict(&expected, &lease.id, None, "p0", &Default::default(), after(2))
                .expect("it lives")
                .0;
            apply(&mut expected, &swapped);
            changes.push(swapped);
            let ended =
                decide::end(&expected, &lease.id, None, Cause::Expired, after(3)).expect("it lives").0;
            apply(&mut expected, &ended);
            changes.push(ended);
            let finished = decide::finish(&expected, &lease.id).expect("it drains").0;
            apply(&mut expected, &finished);
            changes.push(finished);
        }
    }
    changes.push(vec![Change::Seen(after(9))]);
    apply(&mut expected, &[Change::Seen(after(9))]);
    for change in changes {
        put(&ledger, change).await.expect("it is recorded");
    }
    let live = ledger.read(Clone::clone).await.expect("it is read");
    assert_eq!(live, expected);
    let instance = ledger.instance().to_owned();
    drop(ledger);
    assert_eq!(last_seen(&path), Some(after(9)));
    let again = open(&path);
    assert_eq!(again.instance(), instance);
    assert_eq!(again.read(Clone::clone).await.expect("it is read"), expected);
}

#[tokio::test]
async fn a_broken_constraint_fails_its_job_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let ledger = open(&dir.path().join("a.db"));
    let mut there = book();
    let first = active(&mut there, &wish("a", 1, Some(NETWORK)));
    put(&ledger, vec![Change::Put(Box::new(first.clone()))]).await.expect("it is recorded");
    let other = |change: fn(&mut Lease)| {
        let mut lease = first.clone();
        (lease.id, lease.epoch, lease.client_key) = (LeaseId::random(), 77, Some("other".into()));
        change(&mut lease);
        vec![Change::Epoch(99), Change::Put(Box::new(lease))]
    };
    let cases: [(&str, Vec<Change>); 4] = [
        ("the port", other(|lease| lease.subnet = None)),
        (
            "a subnet inside",
            other(|lease| {
                lease.ports.clear();
                lease.subnet.as_mut().expect("it has one").net =
                    "10.252.0.128/25".parse().expect("a network");
            }),
        ),
        (
            "the key",
            other(|lease| {
                (lease.ports, lease.subnet) = (Vec::new(), None);
                lease.client_key = Some("a".into());
            }),
        ),
        (
            "the epoch",
            other(|lease| {
                (lease.ports, lease.subnet) = (Vec::new(), None);
                lease.epoch = 1;
            }),
        ),
    ];
    for (what, changes) in cases {
        assert!(matches!(put(&ledger, changes).await, Err(Error::Store(_))), "{what}");
    }
    let (epoch, leases) =
        ledger.read(|book| (book.counters().epoch, book.live().count())).await.expect("it is read");
    assert_eq!((epoch, leases), (0, 1), "nothing of a failed job stays");
}

#[tokio::test]
async fn many_jobs_share_commits_and_are_told_in_order() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let heard = Heard::default();
    let ledger = Ledger::open(&dir.path().join("a.db"), &pools(), heard.clone()).expect("the store opens");
    let jobs = (0..19).map(|index| {
        let (ledger, wish) = (ledger.clone(), wish(&index.to_string(), 1, None));
        tokio::spawn(async move {
            let made = ledger
                .record(move |book| decide::reserve(book, &wish, LeaseId::random(), &Blocked::default(), T0))
                .await?;
            ledger.record(move |book| decide::advance(book, &made.id, State::Active, T0)).await
        })
    });
    let mut numbers = std::collections::HashSet::new();
    for job in jobs.collect::<Vec<_>>() {
        let lease = job.await.expect("no panic").expect("there is room");
        assert!(numbers.insert(lease.ports[0].number));
    }
    let heard = heard.0.lock().expect("nobody panicked");
    assert_eq!(heard.iter().filter(|told| **told == (None, Some(State::Reserving))).count(), 19);
    assert_eq!(
        heard.iter().filter(|told| **told == (Some(State::Reserving), Some(State::Active))).count(),
        19
    );
}

#[test]
fn the_bundled_sqlite_is_one_that_keeps_what_it_commits() {
    assert!(rusqlite::version_number() >= schema::SQLITE_VERSION_MIN, "{}", rusqlite::version());
}

#[tokio::test]
async fn a_store_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("a.db");
    closed(open(&path), &path);
    Connection::open(&path)
        .and_then(|store| store.pragma_update(None, "user_version", 99))
        .expect("it can be set");
    let error = Ledger::open(&path, &pools(), Heard::default()).err().expect("it is later");
    let error = crate::error::chain(&error);
    assert!(error.contains("version 99"), "{error}");
}

/// Lets go of a ledger and waits until its thread has closed the store.
fn closed(ledger: Ledger, path: &Path) {
    drop(ledger);
    while path.with_extension("db-wal").exists() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// What was granted while the disk filled up is there, what was refused is not, and with room again all goes on.
#[tokio::test]
async fn a_full_disk_fails_what_it_cannot_hold_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("a.db");
    let ledger = Ledger::open_bounded(&path, &pools(), Heard::default(), 40).expect("the store opens");
    let pattern = active(&mut book(), &wish("pattern", 0, None));
    let lease = |epoch: u64| Lease {
        id: LeaseId::random(),
        epoch,
        client_key: Some(format!("key-{epoch}")),
        session: "x".repeat(700),
        ..pattern.clone()
    };
    let jobs = (1..=200).map(|epoch| {
        let (ledger, lease) = (ledger.clone(), lease(epoch));
        tokio::spawn(async move {
            let outcome =
                put(&ledger, vec![Change::Epoch(epoch), Change::Put(Box::new(lease.clone()))]).await;
            (lease, outcome)
        })
    });
    let (mut granted, mut refused) = (Vec::new(), 0);
    for job in jobs.collect::<Vec<_>>() {
        match job.await.expect("no panic") {
            (lease, Ok(())) => granted.push(lease),
            (_, Err(Error::Store(_))) => refused += 1,
            (_, Err(other)) => panic!("{other}"),
        }
    }
    assert!(refused > 0, "the disk was never full");
    granted.sort_by(|one, other| one.id.cmp(&other.id));
    let live = |ledger: Ledger| async move {
        ledger.read(|book| book.live().cloned().collect::<Vec<_>>()).await.expect("it is read")
    };
    assert_eq!(live(ledger.clone()).await, granted);
    drop(ledger);
    let again = open(&path);
    assert_eq!(live(again.clone()).await, granted);
    put(&again, vec![Change::Put(Box::new(lease(999)))]).await.expect("there is room again");
}

/// Each kind of damage is met by a start that fails and says where.
#[tokio::test]
async fn a_damaged_store_is_refused() {
    let sql = |text: &'static str| {
        move |path: &Path| {
            Connection::open(path).and_then(|store| store.execute_batch(text)).expect("it can be damaged");
        }
    };
    type Damage = Box<dyn Fn(&Path)>;
    let damages: [(&str, Damage); 7] = [
        (
            "no database",
            Box::new(|path| {
                std::fs::write(path, b"this is no database, and long enough to be read as one by its header")
                    .expect("it can be written");
            }),
        ),
        (
            "a folder",
            Box::new(|path| {
                std::fs::remove_file(path)
                    .and_then(|()| std::fs::create_dir(path))
                    .expect("it can be replaced");
            }),
        ),
        (
            "cut short",
            Box::new(|path| {
                let file = std::fs::OpenOptions::new().write(true).open(path).expect("it is there");
                file.set_len(3 * 4096).expect("it can be cut");
            }),
        ),
        (
            "overwritten pages",
            Box::new(|path| {
                use std::os::unix::fs::FileExt;
                let file = std::fs::OpenOptions::new().write(true).open(path).expect("it is there");
                let pages = file.metadata().expect("it has some").len() / 4096;
                for page in 1..pages {
                    file.write_all_at(&[0xa5; 512], page * 4096).expect("it can be overwritten");
                }
            }),
        ),
        ("a lease deleted by hand", Box::new(sql("PRAGMA foreign_keys = off; DELETE FROM leases"))),
        (
            "a state nobody knows",
            Box::new(sql("PRAGMA ignore_check_constraints = on; UPDATE leases SET state = 'odd'")),
        ),
        (
            "overlapping subnets",
            Box::new(sql(
                "UPDATE subnets SET cidr = '10.252.0.128/25', first = first + 128 WHERE cidr = '10.252.1.0/24'",
            )),
        ),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("a.db");
        let ledger = open(&path);
        let mut there = book();
        for key in ["a", "b"] {
            let lease = active(&mut there, &wish(key, 2, Some(NETWORK)));
            put(&ledger, vec![Change::Put(Box::new(lease))]).await.expect("it is recorded");
        }
        closed(ledger, &path);
        damage(&path);
        let error = Ledger::open(&path, &pools(), Heard::default()).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("a.db")), "{what}: {error:?}");
    }
}

/// After an upgrade was rolled back: the newer program has added a table, and a column to each of the others.
#[tokio::test]
async fn a_store_of_the_next_version_is_served_and_left_at_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("a.db");
    let grant = |key: &'static str| {
        move |book: &Book| {
            let wish = wish(key, 2, Some(NETWORK));
            decide::reserve(book, &wish, LeaseId::random(), &Blocked::default(), T0).map_err(Error::from)
        }
    };
    let before = open(&path).record(grant("before")).await.expect("there is room");
    thread::sleep(Duration::from_millis(50));
    let newer = ["leases", "ports", "subnets", "quarantine", "meta"]
        .map(|table| format!("ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'so';"))
        .concat();
    let store = Connection::open(&path).expect("it opens");
    store
        .execute_batch(&format!("{newer} CREATE TABLE later (id TEXT) STRICT; PRAGMA user_version = 2;"))
        .expect("it can be changed");
    let after = open(&path).record(grant("after")).await.expect("there is room");
    thread::sleep(Duration::from_millis(50));
    let version: i64 =
        store.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it has a version");
    assert_eq!(version, 2, "the newer program has nothing to do again");
    let ledger = open(&path);
    let known = ledger
        .record(|book| {
            Ok::<_, Error>((Vec::new(), book.live().map(|lease| lease.id.clone()).collect::<Vec<_>>()))
        })
        .await
        .expect("it can be read");
    assert!(known.contains(&before.id) && known.contains(&after.id), "{known:?}");
}
