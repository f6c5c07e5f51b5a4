//! Reading findings back, youngest first, without holding a file in memory.
//!
//! Invariant: at most [`FOUND_MAX`] are returned and [`LINE_BYTES_MAX`] of one line are held; what is not a line of
//! JSON is passed over.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::audit;

/// Findings of one answer, and how many where none are asked for.
const FOUND_MAX: usize = 1000;
const FOUND_DEFAULT: usize = 100;
/// Bytes of one line.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes read at once.
const BLOCK_BYTES: u64 = 64 * 1024;

/// Which findings are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// How many; 100 where none are asked for, 1000 at most.
    limit: Option<usize>,
    /// Of this bottle alone.
    bottle: Option<String>,
    /// Of this detector alone.
    detector: Option<String>,
    /// This finding, or those of this request.
    id: Option<String>,
}

impl Wanted {
    fn fits(&self, finding: &Value) -> bool {
        let is = |key: &str, wanted: &str| finding.get(key).and_then(Value::as_str) == Some(wanted);
        self.bottle.as_deref().is_none_or(|bottle| is("bottle", bottle))
            && self.detector.as_deref().is_none_or(|detector| is("detector", detector))
            && self.id.as_deref().is_none_or(|id| is("id", id) || is("request", id))
    }
}

/// The youngest findings in the `files` files of `dir`.
pub(super) fn youngest(dir: &Path, files: usize, wanted: &Wanted) -> Vec<Value> {
    let limit = wanted.limit.unwrap_or(FOUND_DEFAULT).min(FOUND_MAX);
    let mut found = Vec::new();
    for path in audit::findings_files(dir, files) {
        let Ok(mut lines) = File::open(path).and_then(Backwards::new) else { continue };
        while found.len() < limit
            && let Ok(Some(line)) = lines.next()
        {
            found.extend(serde_json::from_slice(&line).ok().filter(|finding| wanted.fits(finding)));
        }
    }
    found
}

/// The lines of a file from its end.
struct Backwards {
    file: File,
    /// Where the unread part ends.
    end: u64,
    /// What was read from there on and not returned.
    read: Vec<u8>,
}

impl Backwards {
    fn new(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file, end, read: Vec::new() })
    }

    /// The line before; `None` at the start of the file.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            while self.read.last() == Some(&b'\n') {
                self.read.pop();
            }
            if let Some(before) = self.read.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.read.split_off(before + 1)));
            }
            if self.end == 0 {
                return Ok(Some(std::mem::take(&mut self.read)).filter(|line| !line.is_empty()));
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.read_before()?;
        }
    }

    fn read_before(&mut self) -> io::Result<()> {
        let length = self.end.min(BLOCK_BYTES);
        let mut block = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.seek(SeekFrom::Start(self.end - length))?;
        self.file.read_exact(&mut block)?;
        self.end -= length;
        block.append(&mut self.read);
        self.read = block;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(dir: &Path, name: &str, ids: std::ops::Range<usize>, pad: usize) {
        let line = |id: usize| {
            let bottle = if id.is_multiple_of(2) { "even" } else { "odd" };
            format!("{{\"id\":\"{id}\",\"bottle\":\"{bottle}\",\"pad\":\"{}\"}}\n", "x".repeat(pad))
        };
        std::fs::write(dir.join(name), ids.map(line).collect::<String>()).expect("it is written");
    }

    fn ids(found: &[Value]) -> Vec<usize> {
        found.iter().map(|one| one["id"].as_str().expect("an id").parse().expect("a number")).collect()
    }

    #[test]
    fn the_youngest_come_first_over_all_files_and_blocks() {
        for pad in [0, 10, 5000, 60_000] {
            let dir = tempfile::tempdir().expect("a folder");
            written(dir.path(), "findings.jsonl.1", 0..20, pad);
            written(dir.path(), "findings.jsonl", 20..50, pad);
            let all = youngest(dir.path(), 3, &Wanted::default());
            assert_eq!(ids(&all), (0..50).rev().collect::<Vec<_>>(), "lines of {pad} bytes");
            let wanted = Wanted { limit: Some(3), bottle: Some("odd".into()), ..Wanted::default() };
            assert_eq!(ids(&youngest(dir.path(), 3, &wanted)), [49, 47, 45]);
            let wanted = Wanted { id: Some("7".into()), ..Wanted::default() };
            assert_eq!(ids(&youngest(dir.path(), 3, &wanted)), [7]);
            assert!(
                youngest(dir.path(), 3, &Wanted { detector: Some("x".into()), ..Wanted::default() })
                    .is_empty()
            );
        }
    }

    #[test]
    fn what_is_no_line_of_json_is_passed_over() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(youngest(dir.path(), 3, &Wanted::default()).is_empty(), "there is no file");
        std::fs::write(dir.path().join("findings.jsonl"), "{\"id\":\"1\"}\nbroken\n\n{\"id\":\"2\"}")
            .expect("it is written");
        assert_eq!(ids(&youngest(dir.path(), 3, &Wanted::default())), [2, 1]);
    }
}
