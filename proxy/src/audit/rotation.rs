//! Rotation: old findings make room for new ones, fairly between bottles.
//!
//! Invariants: the files together stay below their bound; a bottle loses findings only if it has more than its equal share of
//! the room, and then its oldest, so that a flood from one bottle pushes no other's out.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{numbered, private};

/// Bytes that no line of a finding reaches; room for one is left at the end of each file.
const LINE_BYTES: u64 = 16 * 1024;

/// The findings files: the one in use, and the older ones with a number behind its name, `1` the youngest.
pub(super) struct Files {
    pub(super) path: PathBuf,
    /// Bytes of one file at most (`limits.findings_file_bytes`).
    pub(super) file_bytes: u64,
    /// Files at most, the one in use included (`limits.findings_files`).
    pub(super) count: usize,
}

impl Files {
    /// Makes room for a new file in use: it is gone afterwards, what was in it is kept under a number.
    ///
    /// A crash in the midst of it may lose old findings, never a new one.
    ///
    /// # Errors
    /// When a file cannot be read, written or moved.
    pub(super) fn rotate(&self) -> io::Result<()> {
        let oldest = self.count.saturating_sub(1);
        if oldest == 0 || !self.numbered(oldest).exists() {
            return self.shift();
        }
        let held = self.held_by_bottle()?;
        let room = (self.file_bytes - LINE_BYTES.min(self.file_bytes / 4)) * oldest as u64;
        let level = level(held.values().copied().collect(), room);
        let surplus = held.into_iter().map(|(bottle, bytes)| (bottle, bytes.saturating_sub(level))).collect();
        let kept = self.copy_without(surplus)?;
        for number in 1..=oldest {
            match kept.checked_sub(number) {
                // They were written from the oldest on.
                Some(index) => fs::rename(self.written(index), self.numbered(number))?,
                None => remove_if_there(&self.numbered(number))?,
            }
        }
        remove_if_there(&self.path)
    }

    /// Moves every file by one number, where there is room for all.
    fn shift(&self) -> io::Result<()> {
        for number in (1..self.count.saturating_sub(1)).rev() {
            rename_if_there(&self.numbered(number), &self.numbered(number + 1))?;
        }
        if self.count > 1 {
            rename_if_there(&self.path, &self.numbered(1))
        } else {
            remove_if_there(&self.path)
        }
    }

    /// Calls `each` with every line, the oldest first, and its bottle.
    fn lines(&self, mut each: impl FnMut(&str, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let files = (1..self.count).rev().map(|number| self.numbered(number)).chain([self.path.clone()]);
        for file in files {
            let Some(file) = open_if_there(&file)? else { continue };
            let mut reader = BufReader::new(file);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                each(&bottle_of(&line), &line)?;
                line.clear();
            }
        }
        Ok(())
    }

    fn held_by_bottle(&self) -> io::Result<HashMap<String, u64>> {
        let mut held = HashMap::new();
        self.lines(|bottle, line| {
            match held.get_mut(bottle) {
                Some(bytes) => *bytes += line.len() as u64,
                None => drop(held.insert(bottle.to_owned(), line.len() as u64)),
            }
            Ok(())
        })?;
        Ok(held)
    }

    /// Writes every line anew but for so many of each bottle's oldest bytes; returns how many files that makes.
    fn copy_without(&self, mut surplus: HashMap<String, u64>) -> io::Result<usize> {
        let mut out: Option<BufWriter<File>> = None;
        let (mut files, mut written) = (0, 0);
        self.lines(|bottle, line| {
            let length = line.len() as u64;
            if let Some(left) = surplus.get_mut(bottle).filter(|left| **left > 0) {
                *left = left.saturating_sub(length);
                return Ok(());
            }
            let full = written + length > self.file_bytes && files + 1 < self.count;
            let writer = match &mut out {
                Some(writer) if !full => writer,
                _ => {
                    if let Some(mut full) = out.take() {
                        full.flush()?;
                    }
                    let file = private().write(true).create(true).truncate(true).open(self.written(files))?;
                    (files, written) = (files + 1, 0);
                    out.insert(BufWriter::new(file))
                }
            };
            written += length;
            writer.write_all(line)
        })?;
        out.map_or(Ok(()), |mut writer| writer.flush())?;
        Ok(files)
    }

    fn numbered(&self, number: usize) -> PathBuf {
        numbered(&self.path, number)
    }

    /// Where a file is written anew, from the oldest on.
    fn written(&self, index: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".new{index}"));
        name.into()
    }
}

/// The bytes that each may keep at most, so that all together keep no more than `room`; who has less keeps it all.
fn level(mut held: Vec<u64>, room: u64) -> u64 {
    held.sort_unstable();
    let mut left = room;
    for (index, bytes) in held.iter().enumerate() {
        let share = left / (held.len() - index) as u64;
        if *bytes > share {
            return share;
        }
        left -= bytes;
    }
    u64::MAX
}

/// The bottle that a line names. Names of bottles hold nothing that JSON escapes.
fn bottle_of(line: &[u8]) -> String {
    const FIELD: &[u8] = b"\"bottle\":\"";
    let start = line.windows(FIELD.len()).position(|window| window == FIELD).map(|at| at + FIELD.len());
    let name = start.map_or(&[][..], |start| &line[start..]);
    let name = name.split(|byte| *byte == b'"').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_fills_the_room_and_no_more() {
        for (held, room, expected) in [
            (vec![5, 1, 3], 9, u64::MAX),
            (vec![100, 1, 3], 50, 46),
            (vec![100, 100, 2], 50, 24),
            (vec![10, 10, 10], 9, 3),
            (vec![], 9, u64::MAX),
        ] {
            let level = level(held.clone(), room);
            assert_eq!(level, expected, "{held:?} in {room}");
            assert!(held.iter().map(|bytes| (*bytes).min(level)).sum::<u64>() <= room);
        }
    }

    #[test]
    fn a_line_names_its_bottle() {
        assert_eq!(bottle_of(br#"{"request":"1","bottle":"dev","host":"a"}"#), "dev");
        assert_eq!(bottle_of(b"no line of ours"), "");
    }
}
