//! The state folder: one process at a time, on a file system that keeps what it is told to.
//!
//! A lock file says who has it. The lock is the kernel's and goes with the process, however it dies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstatfs};

/// File systems that lock or sync otherwise than they say: (magic, name).
const REFUSED: [(i64, &str); 2] =
    [(0x6969, "NFS"), (0x794c_7630, "overlayfs (a container's own layer: mount a volume)")];

/// The folder, taken.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes the folder if need be and takes it; fails if another process has it.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        check_file_system(&File::open(path)?)?;
        let name = path.join("allocator.lock");
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&name)?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            let mut holder = String::new();
            lock.read_to_string(&mut holder)?;
            let why = format!("another allocator (process {}) has it", holder.trim());
            return Err(if error == rustix::io::Errno::WOULDBLOCK {
                io::Error::new(io::ErrorKind::WouldBlock, why)
            } else {
                error.into()
            });
        }
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())?;
        sync(path)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn check_file_system(dir: &File) -> io::Result<()> {
    let kind = fstatfs(dir)?.f_type;
    match REFUSED.iter().find(|(magic, _)| kind == *magic) {
        Some((_, name)) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("it lies on {name}, which keeps no promises"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let first = StateDir::take(dir.path()).expect("nobody has it");
        let error = StateDir::take(dir.path()).expect_err("it is taken");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(first);
        StateDir::take(dir.path()).expect("it is free again");
    }
}
