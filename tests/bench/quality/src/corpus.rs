//! The made corpus on disk: one file for each credential and each near miss.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use decant_tests::quality::{self, Kind};
use decant_tests::seed::Seeded;

/// What one file holds.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) detector: &'static str,
    /// Whether the form ends in a documented checksum.
    pub(crate) has_checksum: bool,
    /// `None` for a credential.
    pub(crate) miss: Option<Kind>,
    pub(crate) lines: RangeInclusive<usize>,
}

/// Every file by its path below the folder of the run.
pub(crate) type Made = BTreeMap<PathBuf, Item>;

/// Writes `count` credentials and `count` near misses of each form below `folder`, which is emptied.
pub(crate) fn write(folder: &Path, count: usize) -> io::Result<Made> {
    let mut seeded = Seeded::named("quality");
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let root = folder.file_name().map(PathBuf::from).unwrap_or_default();
    let mut made = Made::new();
    for format in quality::formats() {
        let valid = format.valid(&mut seeded, count).into_iter();
        for (at, case) in valid.chain(format.misses(&mut seeded, count)).enumerate() {
            let kind = if case.miss.is_some() { "miss" } else { "valid" };
            let place = Path::new(kind).join(case.detector).join(at.to_string());
            fs::create_dir_all(folder.join(&place))?;
            fs::write(folder.join(&place).join(case.text.name), &case.text.content)?;
            let item = Item {
                detector: case.detector,
                has_checksum: format.has_checksum(),
                miss: case.miss,
                lines: case.text.lines,
            };
            made.insert(root.join(place).join(case.text.name), item);
        }
    }
    Ok(made)
}
