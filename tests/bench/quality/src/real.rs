//! Real text: what a machine has in its documentation and sources.
//!
//! Invariant: only whole files of UTF-8; the same machine gives the same text; what was left out for its size is counted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

/// Largest file that is taken, in bytes.
const FILE_MAX: u64 = 8 << 20;

/// Findings in real text that are right: a part of the path, a part of the line, and why. One a line, by tabs.
const RIGHT: &str = include_str!("../right.tsv");

/// What was gathered.
pub(crate) struct Text {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    folder: PathBuf,
}

impl Text {
    /// The line of a file below the folder of the run, counted from 1.
    pub(crate) fn line(&self, path: &Path, line: usize) -> String {
        let content = self.folder.parent().and_then(|folder| fs::read_to_string(folder.join(path)).ok());
        content
            .and_then(|text| text.lines().nth(line.saturating_sub(1)).map(str::to_owned))
            .unwrap_or_default()
    }

    /// Why a report at this place is right, if it is.
    pub(crate) fn right(&self, path: &Path, line: usize) -> Option<&'static str> {
        let (path, text) = (path.to_string_lossy().into_owned(), self.line(path, line));
        RIGHT.lines().filter(|line| !line.starts_with('#')).find_map(|entry| {
            let mut fields = entry.split('\t');
            let (place, part, reason) = (fields.next()?, fields.next()?, fields.next()?);
            (path.contains(place) && text.contains(part)).then_some(reason)
        })
    }
}

/// Copies text out of `sources` to `folder`, which is emptied, up to `bytes_max` in all, the same share from each.
pub(crate) fn gather(folder: &Path, sources: &[PathBuf], bytes_max: u64) -> io::Result<Text> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let mut text = Text { files: 0, bytes: 0, folder: folder.to_owned() };
    for (at, source) in sources.iter().enumerate() {
        let bytes_max = bytes_max / sources.len().max(1) as u64 * (at as u64 + 1);
        take(&folder.join(at.to_string()), source, &mut text, bytes_max)?;
    }
    Ok(text)
}

fn take(folder: &Path, source: &Path, text: &mut Text, bytes_max: u64) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(source)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default();
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            take(&folder.join(name), &path, text, bytes_max)?;
        } else if kind.is_file()
            && let Some(content) = read(&path)?
            && text.bytes + content.len() as u64 <= bytes_max
        {
            fs::create_dir_all(folder)?;
            let name = Path::new(name);
            let is_packed = name.extension().is_some_and(|extension| extension == "gz");
            fs::write(
                folder.join(if is_packed { name.with_extension("") } else { name.to_owned() }),
                &content,
            )?;
            text.files += 1;
            text.bytes += content.len() as u64;
        }
    }
    Ok(())
}

/// The text of a file, unpacked; `None` where it is none or too large.
fn read(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let packed = std::mem::take(&mut bytes);
        if MultiGzDecoder::new(&packed[..]).take(FILE_MAX + 1).read_to_end(&mut bytes).is_err() {
            return Ok(None);
        }
    }
    let is_text = bytes.len() as u64 <= FILE_MAX && !bytes.is_empty() && !bytes.contains(&0);
    Ok(is_text.then(|| String::from_utf8(bytes).ok()).flatten())
}
