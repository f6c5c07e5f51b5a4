//! The journal: what a worker leaves behind however it dies.
//!
//! A small memory file (memfd_create(2)) that the supervisor makes and the worker writes: the last panic, and which
//! bottles began an exchange when. It outlives the worker, even one that is killed in mid-sentence. Invariant: an
//! exchange that began is written before its request is looked at, at most [`COALESCED`] behind, and a bottle costs one
//! small write per [`COALESCED`] whatever it sends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{ClockId, clock_gettime};

use crate::identity::{Bottle, BottleKey};

/// Beginnings of one bottle that lie closer together than this are one entry.
pub(crate) const COALESCED: Duration = Duration::from_millis(250);
/// Entries; the oldest is overwritten.
const ENTRIES: usize = 2048;
/// Bytes of an entry: time, epoch, name's length, name.
const ENTRY_BYTES: usize = 160;
/// Bytes of a name that are kept: all of them, as a name has 128 at most.
const NAME_BYTES: usize = ENTRY_BYTES - 17;
/// Bytes in front of the entries, for the last panic: its length and its text.
const PANIC_BYTES: usize = 1024;

/// Makes the file of a journal.
///
/// # Errors
/// When the kernel has no memory for it.
pub(crate) fn create() -> io::Result<File> {
    memory_file("decant-journal")
}

/// A file that stands in no folder, and is gone with the last who has it open.
///
/// # Errors
/// When the kernel has no memory for it.
pub(crate) fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// A worker's end.
pub(crate) struct Journal {
    file: File,
    next: AtomicUsize,
}

impl Journal {
    /// Writes into `file`.
    pub(crate) const fn new(file: File) -> Self {
        Self { file, next: AtomicUsize::new(0) }
    }

    /// An exchange of `bottle` begins.
    pub(crate) fn began(&self, bottle: &Bottle) {
        let now = now_ms();
        if !bottle.begins(now, COALESCED) {
            return;
        }
        let name = bottle.key.name.as_bytes();
        let name = &name[..name.len().min(NAME_BYTES)];
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&now.to_le_bytes());
        entry[8..16].copy_from_slice(&bottle.key.epoch.to_le_bytes());
        entry[16] = u8::try_from(name.len()).unwrap_or(u8::MAX);
        entry[17..17 + name.len()].copy_from_slice(name);
        let slot = self.next.fetch_add(1, Ordering::Relaxed) % ENTRIES;
        // A journal that cannot be written costs a diagnosis, never an exchange.
        let _ = self.file.write_all_at(&entry, (PANIC_BYTES + slot * ENTRY_BYTES) as u64);
    }

    /// Something panicked.
    pub(crate) fn panicked(&self, message: &str) {
        let text = message.as_bytes();
        let text = &text[..text.len().min(PANIC_BYTES - 2)];
        let mut entry = Vec::with_capacity(2 + text.len());
        entry.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        entry.extend(text);
        // The log has it too.
        let _ = self.file.write_all_at(&entry, 0);
    }
}

/// What a journal says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    /// The last panic.
    pub(crate) panic: Option<String>,
    /// The bottles that began an exchange within the time asked for, by name.
    pub(crate) began: Vec<BottleKey>,
}

/// Reads a journal: of the beginnings, those that are younger than `within`.
pub(crate) fn read(file: &File, within: Duration) -> Entries {
    let mut bytes = vec![0; PANIC_BYTES + ENTRIES * ENTRY_BYTES];
    let filled = read_at_most(file, &mut bytes);
    let (panic, entries) = bytes[..filled].split_at(PANIC_BYTES.min(filled));
    let since = now_ms().saturating_sub(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
    let mut began: Vec<BottleKey> =
        entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| beginning(entry, since)).collect();
    began.sort();
    began.dedup();
    Entries { panic: last_panic(panic), began }
}

fn read_at_most(file: &File, bytes: &mut [u8]) -> usize {
    let mut filled = 0;
    while let Ok(read @ 1..) = file.read_at(&mut bytes[filled..], filled as u64) {
        filled += read;
    }
    filled
}

fn last_panic(bytes: &[u8]) -> Option<String> {
    let (length, text) = bytes.split_first_chunk::<2>()?;
    let text = text.get(..usize::from(u16::from_le_bytes(*length)))?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

fn beginning(entry: &[u8], since: u64) -> Option<BottleKey> {
    let (time, rest) = entry.split_first_chunk::<8>()?;
    let (epoch, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first()?;
    let time = u64::from_le_bytes(*time);
    let name = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
    (time > 0 && time >= since).then(|| BottleKey { name: name.into(), epoch: u64::from_le_bytes(*epoch) })
}

/// Milliseconds of the clock that both processes share (clock_gettime(2), `CLOCK_MONOTONIC`).
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn bottle(name: &str, epoch: u64) -> Bottle {
        Bottle::new(BottleKey { name: name.into(), epoch }, "p".into(), None, BTreeMap::new(), None)
    }

    #[test]
    fn beginnings_and_panics_are_read_back() {
        let file = create().expect("a memory file");
        assert_eq!(read(&file, Duration::MAX), Entries::default());
        let journal = Journal::new(file.try_clone().expect("a copy"));
        let long = "n".repeat(128);
        for bottle in [bottle("a", 1), bottle("b", 0), bottle(&long, u64::MAX), bottle("a", 1)] {
            journal.began(&bottle);
            journal.began(&bottle);
        }
        journal.panicked("first");
        journal.panicked(&"x".repeat(5000));
        let entries = read(&file, Duration::from_secs(60));
        let names: Vec<(&str, u64)> = entries.began.iter().map(|key| (&*key.name, key.epoch)).collect();
        assert_eq!(names, [("a", 1), ("b", 0), (long.as_str(), u64::MAX)]);
        assert_eq!(entries.panic.expect("the last one").len(), PANIC_BYTES - 2);
    }

    #[test]
    fn a_bottle_that_begins_without_end_is_one_entry_and_the_youngest_stay() {
        let file = create().expect("a memory file");
        let journal = Journal::new(file.try_clone().expect("a copy"));
        let busy = bottle("busy", 0);
        for _ in 0..1000 {
            journal.began(&busy);
        }
        assert!(file.metadata().expect("it is there").len() < (PANIC_BYTES + 100 * ENTRY_BYTES) as u64);
        for number in 0..ENTRIES + 10 {
            journal.began(&bottle(&number.to_string(), 7));
        }
        let entries = read(&file, Duration::from_secs(60));
        assert_eq!(entries.began.len(), ENTRIES);
        assert!(entries.began.iter().any(|key| *key.name == *(ENTRIES + 9).to_string()));
    }
}
