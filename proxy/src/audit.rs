//! Audit: findings, written down without the values that were found.
//!
//! Owns `findings.jsonl` and the fingerprint key. Invariants: a line never holds a matched value, only a keyed
//! fingerprint of it; the files together stay below `findings_file_bytes` x `findings_files`, and each bottle has a
//! quota by the minute and an equal share of the files; a finding that cannot be written is reported to the caller, who
//! then blocks. One beyond the quota is judged like any other and only not written down.

mod rotation;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, Mac};
use serde::Serialize;
use sha2::Sha256;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use self::rotation::Files;
use crate::http::rate::Rate;
use crate::identity::BottleKey;

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

/// How much is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditLimits {
    /// Bytes of one file (`limits.findings_file_bytes`).
    pub(crate) file_bytes: u64,
    /// Files (`limits.findings_files`).
    pub(crate) files: usize,
    /// Findings of one bottle in a minute (`limits.findings_per_minute`).
    pub(crate) per_minute: u32,
}

/// The key that fingerprints are made with.
pub(crate) struct Fingerprints([u8; KEY_BYTES]);

impl Fingerprints {
    /// The key of a state folder, where it is there and may be read.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        read_key(&dir.join(KEY_FILE)).ok().map(Self)
    }

    /// The key of a state folder, made if there is none.
    ///
    /// # Errors
    /// One that cannot be read or made.
    pub(crate) fn make(dir: &Path) -> io::Result<Self> {
        load_key(&dir.join(KEY_FILE)).map(Self)
    }

    /// A key that everybody knows.
    pub(crate) fn of_nobody() -> Self {
        Self([0; KEY_BYTES])
    }

    /// Bytes that follow from the key and `text`, and tell nothing of the key.
    pub(crate) fn derive(&self, text: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        // What is derived is never a fingerprint: those are of values as they are.
        mac.update(b"decant derives\0");
        mac.update(text);
        mac.finalize().into_bytes().into()
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
    quota: Rate,
    writer: Mutex<Writer>,
}

impl Audit {
    /// Opens or makes the file and the key in `dir`.
    ///
    /// # Errors
    /// When either cannot be read, made or protected.
    pub(crate) fn open(dir: &Path, limits: &AuditLimits) -> io::Result<Self> {
        let fingerprints = Fingerprints(load_key(&dir.join(KEY_FILE))?);
        let (file_bytes, count) = (limits.file_bytes, limits.files);
        let writer = Writer::open(Files { path: dir.join(FINDINGS_FILE), file_bytes, count })?;
        let quota = Rate::new(limits.per_minute, Duration::from_secs(60));
        Ok(Self { fingerprints, quota, writer: Mutex::new(writer) })
    }

    /// Whether one more finding of `bottle` is within its quota; it is then taken from that.
    pub(crate) fn admit(&self, bottle: &BottleKey) -> bool {
        self.quota.admit(bottle)
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
    files: Files,
    file: File,
    written: u64,
}

impl Writer {
    fn open(files: Files) -> io::Result<Self> {
        let file = private().append(true).create(true).open(&files.path)?;
        let written = file.metadata()?.len();
        Ok(Self { files, file, written })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.written + line.len() as u64 > self.files.file_bytes && self.written > 0 {
            self.files.rotate()?;
            self.file = private().append(true).create(true).open(&self.files.path)?;
            self.written = 0;
        }
        self.file.write_all(line)?;
        self.written += line.len() as u64;
        Ok(())
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
    use std::fs;

    use super::*;

    fn writer(dir: &Path, file_bytes: u64, count: usize) -> Writer {
        Writer::open(Files { path: dir.join(FINDINGS_FILE), file_bytes, count }).unwrap()
    }

    /// Every line in the files, the oldest first, and the bytes of each file.
    fn kept(dir: &Path, count: usize) -> (Vec<String>, Vec<usize>) {
        let numbered = (1..count).rev().map(|number| format!("{FINDINGS_FILE}.{number}"));
        let texts = numbered.chain([FINDINGS_FILE.to_owned()]).map(|name| fs::read_to_string(dir.join(name)));
        let texts: Vec<String> = texts.map(Result::unwrap_or_default).collect();
        let lines = texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
        (lines, texts.iter().map(String::len).collect())
    }

    #[test]
    fn rotation_keeps_the_sum_bounded_and_the_newest_lines() {
        for count in [1, 2, 3, 5] {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = writer(dir.path(), 1000, count);
            for index in 0..400 {
                writer.append(format!("{{\"bottle\":\"a\",\"n\":{index:04}}}\n").as_bytes()).unwrap();
                let (lines, sizes) = kept(dir.path(), count);
                assert!(sizes.iter().all(|size| *size <= 1000), "{count} files: {sizes:?}");
                let first = 1 + index - lines.len();
                let expected = (first..=index).map(|n| format!("{{\"bottle\":\"a\",\"n\":{n:04}}}"));
                assert_eq!(lines, expected.collect::<Vec<_>>(), "{count} files: the newest, in order");
            }
            let (_, sizes) = kept(dir.path(), count);
            assert!(sizes.iter().sum::<usize>() >= 600 * (count - 1), "{count} files are used: {sizes:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), count, "nothing else is left");
        }
    }

    #[test]
    fn a_flood_from_one_bottle_pushes_no_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path(), 4000, 4);
        let line = |bottle: &str, n: usize| format!("{{\"bottle\":\"{bottle}\",\"n\":{n:05}}}\n");
        for n in 0..20 {
            ["quiet", "calm"].iter().for_each(|bottle| writer.append(line(bottle, n).as_bytes()).unwrap());
        }
        for n in 0..5000 {
            writer.append(line("flood", n).as_bytes()).unwrap();
        }
        writer.append(line("quiet", 20).as_bytes()).unwrap();
        let (lines, sizes) = kept(dir.path(), 4);
        let of = |bottle: &str| lines.iter().filter(|line| line.contains(bottle)).count();
        assert_eq!((of("quiet"), of("calm")), (21, 20), "{sizes:?}");
        assert!(
            of("flood") > 200 && sizes.iter().all(|size| *size <= 4000),
            "the rest is the flood's: {sizes:?}"
        );
        assert!(lines.iter().any(|line| line.contains("04999")), "its newest");
    }

    #[test]
    fn fingerprints_depend_on_value_and_key_and_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let limits = AuditLimits { file_bytes: 1000, files: 2, per_minute: 10 };
        let open = |dir: &Path| Audit::open(dir, &limits).unwrap();
        let first = open(dir.path());
        assert_eq!(first.fingerprint(b"a"), open(dir.path()).fingerprint(b"a"));
        assert_ne!(first.fingerprint(b"a"), first.fingerprint(b"b"));
        assert_ne!(first.fingerprint(b"a"), open(tempfile::tempdir().unwrap().path()).fingerprint(b"a"));
        assert_eq!(first.fingerprint(b"a").len(), FINGERPRINT_DIGITS);
    }
}
