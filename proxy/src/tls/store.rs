//! The authority on disk: `STATE/ca/<generation>/{cert.pem,key.pem,signs-from}`.
//!
//! A generation appears whole or not at all: it is written into a folder with a temporary name, flushed, and
//! renamed. The rename fails where another process was first; the loser reads what the winner wrote. The folder is
//! 0700 and the key 0600 from the first byte on (created exclusively, never changed afterwards).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use super::authority::{AuthorityError, Problem};
use super::leaf;

/// Longest certificate or key file that is read, in bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Mode bits that the key of a made authority must not have: anything for group and others.
const KEY_FORBIDDEN: u32 = 0o077;
/// Mode bits that a configured key must not have. Its group may read it, as mounted secrets are shared that way.
pub(super) const CONFIGURED_KEY_FORBIDDEN: u32 = 0o027;

const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const SIGNS_FROM: &str = "signs-from";

/// One authority as it lies on disk.
pub(super) struct Generation {
    /// Counts up from 1.
    pub(super) number: u64,
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    pub(super) key: String,
    /// From when on it signs; the first one signs at once.
    pub(super) signs_from: OffsetDateTime,
}

impl Generation {
    pub(super) fn first(certificate: String, key: String) -> Self {
        Self { number: 1, certificate, key, signs_from: OffsetDateTime::UNIX_EPOCH }
    }

    pub(super) fn after(
        latest: Option<&Self>,
        certificate: String,
        key: String,
        signs_from: OffsetDateTime,
    ) -> Self {
        Self { number: latest.map_or(0, |latest| latest.number) + 1, certificate, key, signs_from }
    }
}

/// The authority's folder in the state folder.
pub(super) fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("ca")
}

/// The folder of one generation.
pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(number.to_string())
}

/// A certificate as PEM.
pub(super) fn to_pem(der: &CertificateDer<'_>) -> String {
    const LINE: usize = 64;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        (0..text.len()).step_by(LINE).map(|at| &text[at..text.len().min(at + LINE)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// All generations, oldest first. A folder that is not there has none.
pub(super) fn read(folder: &Path) -> Result<Vec<Generation>, AuthorityError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, "read", error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder, "read", error))?;
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    numbers.into_iter().map(|number| read_generation(folder, number)).collect()
}

fn read_generation(folder: &Path, number: u64) -> Result<Generation, AuthorityError> {
    let path = path_of(folder, number);
    Ok(Generation {
        number,
        certificate: read_file(&path.join(CERTIFICATE))?,
        key: read_key(&path.join(KEY), KEY_FORBIDDEN)?,
        signs_from: read_time(&path.join(SIGNS_FROM))?,
    })
}

/// Seconds since 1970, as decimal digits.
fn read_time(path: &Path) -> Result<OffsetDateTime, AuthorityError> {
    let text = read_file(path)?;
    let seconds = text.trim().parse().ok();
    seconds
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .ok_or_else(|| AuthorityError::new(path, Problem::Malformed("not a Unix time".into())))
}

/// A bounded read of a text file.
pub(super) fn read_file(path: &Path) -> Result<String, AuthorityError> {
    let file = File::open(path).map_err(|error| failed(path, "open", error))?;
    read_open(path, &file)
}

/// Reads a private key after looking at the mode of the very file that is read.
pub(super) fn read_key(path: &Path, forbidden: u32) -> Result<String, AuthorityError> {
    let file = File::open(path).map_err(|error| failed(path, "open", error))?;
    let metadata = file.metadata().map_err(|error| failed(path, "examine", error))?;
    let mode = metadata.mode() & 0o7777;
    if mode & forbidden != 0 {
        return Err(AuthorityError::new(path, Problem::KeyExposed(mode)));
    }
    let owner = metadata.uid();
    if owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return Err(AuthorityError::new(path, Problem::ForeignOwner(owner)));
    }
    read_open(path, &file)
}

fn read_open(path: &Path, file: &File) -> Result<String, AuthorityError> {
    let mut text = String::new();
    let read = file.take(FILE_MAX_BYTES).read_to_string(&mut text);
    read.map_err(|error| failed(path, "read", error))?;
    Ok(text)
}

/// Writes a generation, unless its number is taken already: then another process made it, and its one counts.
pub(super) fn write(folder: &Path, generation: &Generation) -> Result<(), AuthorityError> {
    make_folder(folder)?;
    let temporary = folder.join(temporary_name()?);
    let result = write_files(&temporary, generation)
        .and_then(|()| publish(&temporary, &path_of(folder, generation.number)))
        .and_then(|()| sync_folder(folder));
    let _ = fs::remove_dir_all(&temporary);
    result
}

/// A name that no other writer has, not even one of the same process id in another container.
fn temporary_name() -> Result<String, AuthorityError> {
    let random = leaf::random_serial()
        .map_err(|error| AuthorityError::new(Path::new(KEY), Problem::Malformed(error.to_string())))?;
    Ok(random.iter().fold(".new-".to_owned(), |name, byte| name + &format!("{byte:02x}")))
}

fn make_folder(folder: &Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| failed(folder, "create", error))?;
    let metadata = fs::metadata(folder).map_err(|error| failed(folder, "examine", error))?;
    let mode = metadata.mode() & 0o7777;
    if mode & KEY_FORBIDDEN != 0 {
        return Err(AuthorityError::new(folder, Problem::FolderExposed(mode)));
    }
    Ok(())
}

fn write_files(temporary: &Path, generation: &Generation) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().mode(0o700).create(temporary);
    made.map_err(|error| failed(temporary, "create", error))?;
    write_file(&temporary.join(KEY), 0o600, &generation.key)?;
    write_file(&temporary.join(CERTIFICATE), 0o644, &generation.certificate)?;
    let signs_from = format!("{}\n", generation.signs_from.unix_timestamp());
    write_file(&temporary.join(SIGNS_FROM), 0o644, &signs_from)?;
    sync_folder(temporary)
}

fn write_file(path: &Path, mode: u32, text: &str) -> Result<(), AuthorityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| failed(path, "write", error))
}

fn publish(temporary: &Path, path: &Path) -> Result<(), AuthorityError> {
    match fs::rename(temporary, path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) =>
        {
            Ok(())
        }
        other => other.map_err(|error| failed(path, "create", error)),
    }
}

fn sync_folder(folder: &Path) -> Result<(), AuthorityError> {
    let sync = File::open(folder).and_then(|folder| folder.sync_all());
    sync.map_err(|error| failed(folder, "flush", error))
}

/// Removes the generations before `number`, whose keys could otherwise still sign for clients that trust them.
pub(super) fn remove_before(folder: &Path, number: u64) -> Result<(), AuthorityError> {
    for generation in read(folder)?.iter().filter(|generation| generation.number < number) {
        let path = path_of(folder, generation.number);
        fs::remove_dir_all(&path).map_err(|error| failed(&path, "remove", error))?;
    }
    Ok(())
}

fn failed(path: &Path, what: &'static str, error: io::Error) -> AuthorityError {
    AuthorityError::new(path, Problem::Io(what, error))
}
