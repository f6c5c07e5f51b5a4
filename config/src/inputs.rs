//! The files a configuration was made of, and whether any of them says something else by now.
//!
//! Invariant: change is judged by content, read through whatever links stand on the way, so that a rename, an editor's
//! swap or a moved symbolic link is seen, and a mere `touch` is not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What a watched path held.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// The digest of a file's bytes.
    File([u8; 32]),
    /// The names of the configuration files in a folder.
    Folder(Vec<PathBuf>),
    /// The names of the files in a folder of secrets.
    Secrets(Vec<PathBuf>),
    /// Nothing there, or not readable.
    Absent,
}

/// The files and folders that a configuration was read from, with what they held at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    watched: BTreeMap<PathBuf, Content>,
}

impl Inputs {
    /// The first file or folder that differs from when it was read; `None` when all are as they were.
    ///
    /// Reads every file again: some hundred kilobytes at the sizes that a configuration has.
    #[must_use]
    pub fn changed(&self) -> Option<&Path> {
        let differs = |(path, content): &(&PathBuf, &Content)| match content {
            Content::Folder(names) => files_of(path).ok().as_ref() != Some(names),
            Content::Secrets(names) => secret_files(path).unwrap_or_default() != *names,
            Content::File(_) | Content::Absent => digest_of(path) != **content,
        };
        self.watched.iter().find(differs).map(|(path, _)| path.as_path())
    }

    /// Every file and folder that was read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.watched.keys().map(PathBuf::as_path)
    }

    /// Watches a file whose bytes are at hand.
    pub(crate) fn add_read(&mut self, path: &Path, bytes: &[u8]) {
        // A pipe's content is gone once read: nothing to compare it with.
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            self.watched.insert(path.to_path_buf(), Content::File(Sha256::digest(bytes).into()));
        }
    }

    /// Watches a file that others read: a certificate, a key, a secret.
    pub(crate) fn add_referenced(&mut self, path: &Path) {
        self.watched.entry(path.to_path_buf()).or_insert_with(|| digest_of(path));
    }

    /// Watches a folder of secrets that others read, and every file in it.
    pub(crate) fn add_secrets(&mut self, folder: &Path) {
        let names = secret_files(folder).unwrap_or_default();
        names.iter().for_each(|file| self.add_referenced(file));
        self.watched.insert(folder.to_path_buf(), Content::Secrets(names));
    }

    pub(crate) fn add_folder(&mut self, path: &Path, files: &[PathBuf]) {
        self.watched.insert(path.to_path_buf(), Content::Folder(files.to_vec()));
    }
}

fn digest_of(path: &Path) -> Content {
    // Only a plain file has a content to compare: reading a pipe or a device could wait for ever.
    let plain = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    match plain.then(|| std::fs::read(path)) {
        Some(Ok(bytes)) => Content::File(Sha256::digest(bytes).into()),
        _ => Content::Absent,
    }
}

/// The files of a folder of secrets in name order: all that are not hidden, links to files among them. Container engines
/// keep what such links lead to in hidden folders.
///
/// # Errors
/// A folder that cannot be read.
pub fn secret_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let file = folder.join(&name);
        let is_file = std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file());
        if is_file && !name.to_string_lossy().starts_with('.') {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The `*.yaml` files of a folder in name order; hidden ones (an editor's swap files) are left out.
pub(crate) fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = PathBuf::from(entry?.file_name());
        let hidden = name.to_string_lossy().starts_with('.');
        let yaml = name.extension().is_some_and(|extension| extension == "yaml");
        if yaml && !hidden {
            files.push(folder.join(name));
        }
    }
    files.sort();
    Ok(files)
}
