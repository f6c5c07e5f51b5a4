//! The gateway's CA as files that containers mount.
//!
//! The gateway sends its certificate and the bundle with its acknowledgements; they are written, each by one rename, into a folder that
//! anyone may read. No key ever comes here.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::answer::{CA_BUNDLE, CA_CERTIFICATE, Ca};
use crate::lease::hex;

/// The folder.
pub(crate) struct CaFolder {
    dir: PathBuf,
    present: Mutex<Option<Ca>>,
}

impl CaFolder {
    /// The folder `dir`, with what an earlier run left in it.
    pub(crate) fn open(dir: PathBuf) -> Self {
        let present =
            fs::read(dir.join(CA_BUNDLE)).ok().map(|bundle| Ca { sha256: digest(&bundle), dir: dir.clone() });
        Self { dir, present: Mutex::new(present) }
    }

    /// What leases mount, once the gateway has sent it.
    pub(crate) fn present(&self) -> Option<Ca> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the files. Blocking.
    pub(crate) fn store(&self, certificate: &str, bundle: &str) -> io::Result<()> {
        let sha256 = digest(bundle.as_bytes());
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if present.as_ref().is_some_and(|ca| ca.sha256 == sha256) {
            return Ok(());
        }
        fs::create_dir_all(&self.dir)?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755))?;
        replace(&self.dir.join(CA_CERTIFICATE), certificate)?;
        replace(&self.dir.join(CA_BUNDLE), bundle)?;
        *present = Some(Ca { dir: self.dir.clone(), sha256 });
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = fs::File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_found_again() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("ca");
        let folder = CaFolder::open(path.clone());
        assert_eq!(folder.present(), None);
        folder.store("own", "roots and own").expect("it can be written");
        folder.store("next", "roots and next").expect("it can be replaced");
        assert_eq!(CaFolder::open(path.clone()).present(), folder.present());
        assert_eq!(fs::read_to_string(path.join(CA_CERTIFICATE)).expect("it is there"), "next");
        let mode = fs::metadata(path.join(CA_BUNDLE)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
}
