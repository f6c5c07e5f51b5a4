//! Lines in, bottles out: the table against a gateway that only notes what it is told.

use std::cell::{Cell, RefCell};

use super::*;
use crate::identity::IdentityTable;

/// Notes which bottles are installed and which were ended.
#[derive(Default)]
struct Notes {
    installed: RefCell<IdentityTable>,
    ended: RefCell<Vec<(String, u64)>>,
    installs: Cell<usize>,
}

impl Bottles for Notes {
    fn has_policy(&self, name: &str) -> bool {
        name == "default"
    }

    fn install(&self, leased: Vec<Entry>) -> Result<(), Overlap> {
        *self.installed.borrow_mut() = IdentityTable::new(leased)?;
        self.installs.set(self.installs.get() + 1);
        Ok(())
    }

    fn end(&self, bottle: &Bottle) {
        let known =
            self.installed.borrow().find("10.252.0.2".parse().unwrap(), "10.252.0.9".parse().unwrap());
        assert!(known.is_none_or(|known| known.key != bottle.key), "a bottle is unknown before it is ended");
        self.ended.borrow_mut().push((bottle.key.name.to_string(), bottle.key.epoch));
    }
}

impl Notes {
    fn who(&self, source: &str) -> Option<(String, u64)> {
        let found = self.installed.borrow().find(source.parse().unwrap(), "10.252.0.9".parse().unwrap());
        found.map(|bottle| (bottle.key.name.to_string(), bottle.key.epoch))
    }
}

fn lease(id: &str, epoch: u64, subnet: &str) -> Lease {
    Lease {
        id: id.to_owned(),
        epoch,
        session: String::new(),
        policy: None,
        subnet: subnet.parse().unwrap(),
        gateway: None,
        expires_in_ms: 1000,
    }
}

fn known(id: &str, epoch: u64) -> Known {
    Known { id: id.to_owned(), epoch }
}

#[tokio::test]
async fn a_snapshot_is_the_whole_table() {
    let (mut table, notes) = (LeaseTable::default(), Notes::default());
    let first = vec![lease("a", 1, "10.252.0.0/24"), lease("b", 1, "10.252.1.0/24")];
    let applied = table.replace(first, 5, &notes);
    assert_eq!(applied.admitted, [known("a", 1), known("b", 1)]);
    let second = vec![lease("b", 1, "10.252.1.0/24"), lease("c", 2, "10.252.0.0/24")];
    let applied = table.replace(second, 9, &notes);
    assert_eq!((applied.generation, applied.forgotten), (9, vec![known("a", 1)]));
    assert_eq!(notes.who("10.252.0.2"), Some(("c".into(), 2)));
    assert_eq!(*notes.ended.borrow(), [("a".into(), 1)]);
}

#[tokio::test]
async fn a_gone_of_another_epoch_changes_nothing() {
    let (mut table, notes) = (LeaseTable::default(), Notes::default());
    table.put(lease("a", 2, "10.252.0.0/24"), 1, &notes);
    table.remove("a", 1, 2, &notes);
    assert_eq!(notes.who("10.252.0.2"), Some(("a".into(), 2)));
    let applied = table.remove("a", 2, 3, &notes);
    assert_eq!(applied.forgotten, [known("a", 2)]);
    assert_eq!(notes.who("10.252.0.2"), None);
}

#[tokio::test]
async fn a_renewed_lease_stays_the_bottle_it_is() {
    let (mut table, notes) = (LeaseTable::default(), Notes::default());
    table.put(lease("a", 1, "10.252.0.0/24"), 1, &notes);
    let installs = notes.installs.get();
    let applied = table.put(lease("a", 1, "10.252.0.0/24"), 2, &notes);
    assert_eq!(applied.admitted, [known("a", 1)]);
    assert_eq!((notes.installs.get(), notes.ended.borrow().len()), (installs, 0));
    table.put(lease("a", 2, "10.252.0.0/24"), 3, &notes);
    assert_eq!(*notes.ended.borrow(), [("a".into(), 1)]);
}

#[tokio::test]
async fn what_cannot_be_a_bottle_is_refused_with_the_reason() {
    let (mut table, notes) = (LeaseTable::default(), Notes::default());
    let mut strange = lease("a", 1, "10.252.0.0/24");
    strange.policy = Some("other".to_owned());
    let applied = table.put(strange, 1, &notes);
    assert!(applied.refused[0].reason.contains("`other`"));
    table.put(lease("b", 1, "10.252.0.0/24"), 2, &notes);
    let applied = table.put(lease("c", 1, "10.252.0.128/25"), 3, &notes);
    assert!(applied.refused[0].reason.contains("`b`") || applied.refused[0].reason.contains("`c`"));
    assert_eq!(notes.who("10.252.0.200"), Some(("b".into(), 1)));
}

#[tokio::test(start_paused = true)]
async fn without_the_allocator_leases_end_with_their_time_and_grace() {
    let (mut table, notes) = (LeaseTable::default(), Notes::default());
    table.put(lease("a", 1, "10.252.0.0/24"), 1, &notes);
    let grace = Duration::from_secs(30);
    let due = table.next_end(grace).unwrap();
    table.expire(due - Duration::from_millis(1), grace, &notes);
    assert!(notes.who("10.252.0.2").is_some());
    table.expire(due, grace, &notes);
    assert_eq!(notes.who("10.252.0.2"), None);
    assert_eq!(table.next_end(grace), None);
}
