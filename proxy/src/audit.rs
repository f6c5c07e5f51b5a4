//! Audit: findings, written down without the values that were found.
//!
//! Owns `findings.jsonl` and the fingerprint key. Invariants: a line never holds a matched value, only a keyed
//! fingerprint of it; the files together stay below `findings_file_bytes` x `findings_files`; a finding that cannot
//! be written is reported to the caller, who then blocks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hmac::{Hmac, Mac};
use serde::Serialize;
use sha2::Sha256;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub(crate) const FINDINGS_FILE: &str = "findings.jsonl";
const KEY_FILE: &str = "fingerprint.key";
/// Length of the fingerprint key, in bytes: the block that HMAC-SHA-256 makes no better use of more than.
const KEY_BYTES: usize = 32;
/// Hex digits of a fingerprint: enough to tell values apart, too few to rebuild one.
const FINGERPRINT_DIGITS: usize = 16;

/// One finding, as it stands in the file and in the log.
#[derive(Serialize)]
pub(crate) struct FindingRecord<'a> {
    /// RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) id: String,
    pub(crate) request: &'a str,
    pub(crate) bottle: &'a str,
    pub(crate) policy: &'a str,
    pub(crate) route: &'a str,
    pub(crate) mode: &'a str,
    pub(crate) enforced: bool,
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) detector: &'a str,
    pub(crate) severity: &'a str,
    pub(crate) confidence: &'a str,
    pub(crate) direction: &'a str,
    pub(crate) surface: &'a str,
    pub(crate) view: &'a str,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// The exception that accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exception: Option<&'a str>,
}

/// The key that fingerprints are made with.
pub(crate) struct Fingerprints([u8; KEY_BYTES]);

impl Fingerprints {
    /// The key of a state folder, where it is there and may be read.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        read_key(&dir.join(KEY_FILE)).ok().map(Self)
    }

    /// A short keyed digest of a value: equal values can be told to be equal, nothing else can be learned.
    pub(crate) fn of_value(&self, value: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(value);
        let digest = mac.finalize().into_bytes();
        digest.iter().take(FINGERPRINT_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The findings file and the key its fingerprints are made with.
pub(crate) struct Audit {
    fingerprints: Fingerprints,
    writer: Mutex<Writer>,
}

impl Audit {
    /// Opens or makes the file and the key in `dir`.
    ///
    /// # Errors
    /// When either cannot be read, made or protected.
    pub(crate) fn open(dir: &Path, file_bytes: u64, files: usize) -> io::Result<Self> {
        let fingerprints = Fingerprints(load_key(&dir.join(KEY_FILE))?);
        let writer = Writer::open(dir.join(FINDINGS_FILE), file_bytes, files)?;
        Ok(Self { fingerprints, writer: Mutex::new(writer) })
    }

    /// The [fingerprint](Fingerprints::of_value) of a value.
    pub(crate) fn fingerprint(&self, value: &[u8]) -> String {
        self.fingerprints.of_value(value)
    }

    /// Writes one finding.
    ///
    /// # Errors
    /// When the line cannot be written in full; the caller then blocks.
    pub(crate) fn write(&self, record: &FindingRecord<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).append(&line)
    }
}

/// The findings files of `dir`, the youngest first.
pub(crate) fn findings_files(dir: &Path, count: usize) -> impl Iterator<Item = PathBuf> {
    let first = dir.join(FINDINGS_FILE);
    let rest: Vec<PathBuf> = (1..count).map(|index| numbered(&first, index)).collect();
    std::iter::once(first).chain(rest)
}

fn numbered(path: &Path, index: usize) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(format!(".{index}"));
    name.into()
}

/// The time of a record.
pub(crate) fn now() -> String {
    OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default()
}

struct Writer {
    path: PathBuf,
    file: File,
    written: u64,
    file_bytes: u64,
    files: usize,
}

impl Writer {
    fn open(path: PathBuf, file_bytes: u64, files: usize) -> io::Result<Self> {
        let file = private().append(true).create(true).open(&path)?;
        let written = file.metadata()?.len();
        Ok(Self { path, file, written, file_bytes, files })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.written + line.len() as u64 > self.file_bytes && self.written > 0 {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.written += line.len() as u64;
        Ok(())
    }

    /// `findings.jsonl` becomes `.1`, `.1` becomes `.2`, and the oldest is dropped.
    fn rotate(&mut self) -> io::Result<()> {
        for index in (1..self.files.saturating_sub(1)).rev() {
            rename_if_there(&numbered(&self.path, index), &numbered(&self.path, index + 1))?;
        }
        if self.files > 1 {
            rename_if_there(&self.path, &numbered(&self.path, 1))?;
        }
        self.file = private().write(true).create(true).truncate(true).open(&self.path)?;
        self.written = 0;
        Ok(())
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    File::open(path)?.read_exact(&mut key).map(|()| key)
}

fn load_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path),
        other => other,
    }
}

fn make_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut key)
        .map_err(|_| io::Error::other("no randomness for the fingerprint key"))?;
    private().write(true).create_new(true).open(path)?.write_all(&key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_keeps_the_sum_bounded_and_the_newest_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FINDINGS_FILE);
        let mut writer = Writer::open(path.clone(), 30, 3).unwrap();
        for index in 0..20 {
            writer.append(format!("line {index:04}\n").as_bytes()).unwrap();
        }
        let all: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(all.len(), 3);
        assert!(all.iter().sum::<u64>() <= 90);
        assert!(fs::read_to_string(path).unwrap().ends_with("line 0019\n"));
    }

    #[test]
    fn fingerprints_depend_on_value_and_key_and_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = |dir: &Path| Audit::open(dir, 1000, 2).unwrap();
        let first = open(dir.path());
        assert_eq!(first.fingerprint(b"a"), open(dir.path()).fingerprint(b"a"));
        assert_ne!(first.fingerprint(b"a"), first.fingerprint(b"b"));
        assert_ne!(first.fingerprint(b"a"), open(tempfile::tempdir().unwrap().path()).fingerprint(b"a"));
        assert_eq!(first.fingerprint(b"a").len(), FINGERPRINT_DIGITS);
    }
}
