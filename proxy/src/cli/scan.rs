//! `decant scan`: the gateway's own scanner over files and folders.
//!
//! Invariant: the inspector of the data path does the work, and no value it finds is printed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use decant_config::{DetectorFilter, MatchAction};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;

use super::args::{Format, ScanArgs, ScanDirection};
use super::{Exit, Failure, load, printable};
use crate::budget::{self, Budget};
use crate::inspect::{
    self, BodyPlan, Coding, Counts, Direction, Hit, Inspector, Judge, Ruling, Trouble, Windows,
};
use crate::rules::Detectors;
use crate::secrets;

/// Bytes read from a file at once.
const READ_BYTES: usize = 64 * 1024;
/// Folders below the one that was named: deep enough for any tree of sources, short of a loop of mounts.
const DEPTH_MAX: usize = 64;
/// Characters of a value that an excerpt shows at most, and the share of the value they may be.
const SHOWN_MAX: usize = 4;
const SHOWN_SHARE: usize = 4;

/// Runs the command: exit code 1 when something was found or could not be looked into.
pub(super) fn run(args: &ScanArgs) -> Result<Exit, Failure> {
    let config = load::config(&args.config)?;
    let detectors = secrets::read(&config)
        .and_then(|secrets| {
            Detectors::compile(&config.detectors, &secrets, budget::detectors(&config.limits))
        })
        .map_err(|found| load::report(&found))?;
    let budget = Budget::new(&config.limits);
    let direction = match args.direction {
        ScanDirection::Request => Direction::Request,
        ScanDirection::Response => Direction::Response,
    };
    let scan = Scan {
        codings: codings(args.coding.as_deref(), budget.coding_layers)?,
        selection: Arc::new(detectors.select(&DetectorFilter::all(), direction)),
        detectors: Arc::new(detectors),
        budget,
        direction,
        format: args.format,
    };
    let mut found = false;
    for path in &args.paths {
        found |= scan.path(path, 0)?;
    }
    Ok(if found { Exit::Found } else { Exit::Fine })
}

fn codings(text: Option<&str>, layers_max: usize) -> Result<Vec<Coding>, Failure> {
    let mut headers = HeaderMap::new();
    if let Some(text) = text {
        let value =
            HeaderValue::from_str(text).map_err(|error| Failure::usage(format!("--coding: {error}")))?;
        headers.insert(header::CONTENT_ENCODING, value);
    }
    inspect::parse_codings(&headers, layers_max)
        .map_err(|trouble| Failure::usage(format!("--coding: {trouble}")))
}

struct Scan {
    detectors: Arc<Detectors>,
    selection: Arc<decant_detectors::Selection>,
    budget: Budget,
    codings: Vec<Coding>,
    direction: Direction,
    format: Format,
}

impl Scan {
    /// Scans a file, a folder in the order of its names, or standard input. True when something was found.
    fn path(&self, path: &Path, depth: usize) -> Result<bool, Failure> {
        if path == Path::new("-") {
            return self.stream(path, &mut io::stdin().lock());
        }
        let failed =
            |error: io::Error| Failure::internal(format!("{}: {error}", printable(&path.to_string_lossy())));
        let kind =
            if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) }.map_err(failed)?;
        if kind.is_file() {
            return self.stream(path, &mut File::open(path).map_err(failed)?);
        }
        if !kind.is_dir() {
            return Ok(false);
        }
        if depth >= DEPTH_MAX {
            return Err(Failure::internal(format!("{}: more than {DEPTH_MAX} folders deep", path.display())));
        }
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        entries.sort();
        let mut found = false;
        for entry in entries {
            found |= self.path(&entry, depth + 1)?;
        }
        Ok(found)
    }

    fn stream(&self, path: &Path, input: &mut dyn Read) -> Result<bool, Failure> {
        let report = Arc::new(Report::new(path, self.detectors.clone(), self.format));
        let plan = BodyPlan {
            rules: self.detectors.rules.clone(),
            selection: self.selection.clone(),
            direction: self.direction,
            codings: self.codings.clone(),
            strict: true,
            fixed: None,
            limits: self.budget.inspect,
            windows: Windows::unbounded(),
            seat: None,
            judge: report.clone(),
        };
        drive(&plan, input)
            .map_err(|error| Failure::internal(format!("{}: {error}", printable(&path.to_string_lossy()))))?;
        report.finish()
    }
}

/// Feeds `input` to an inspector, however much of each piece it takes, until its judge blocks.
pub(super) fn drive(plan: &BodyPlan, input: &mut dyn Read) -> io::Result<()> {
    let mut inspector = Inspector::new(plan);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match input.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if read == 0 {
            break;
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            // There is nobody to share the thread with.
            let mut budget = usize::MAX;
            match inspector.push(rest, &mut budget) {
                Ok(done) => rest = &rest[done..],
                // The judge knows: it has blocked.
                Err(_) => return Ok(()),
            }
        }
    }
    let _ = inspector.finish();
    Ok(())
}

/// Prints what is found in one input.
struct Report {
    path: String,
    detectors: Arc<Detectors>,
    format: Format,
    state: Mutex<(bool, io::Result<()>)>,
}

/// One line of `--format json`.
#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detector: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    offset: u64,
    length: u64,
    view: String,
    excerpt: String,
}

impl Report {
    fn new(path: &Path, detectors: Arc<Detectors>, format: Format) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            detectors,
            format,
            state: Mutex::new((false, Ok(()))),
        }
    }

    fn print(&self, line: &Line<'_>) {
        let text = match self.format {
            Format::Json => serde_json::to_string(line).unwrap_or_default(),
            Format::Text => text(line),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if state.1.is_ok() {
            state.1 = writeln!(io::stdout(), "{text}");
        }
    }

    fn finish(&self) -> Result<bool, Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, written) = std::mem::replace(&mut *state, (false, Ok(())));
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::internal(format!("stdout: {error}")))
            }
            _ => Ok(found),
        }
    }
}

impl Judge for Report {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let facts = self.detectors.facts(hit.rule);
        let action = if hit.confidence == decant_detectors::Confidence::Low {
            MatchAction::Alert
        } else {
            facts.action
        };
        self.print(&Line {
            path: &self.path,
            detector: Some(&facts.id),
            action: Some(action.as_str()),
            trouble: None,
            offset: hit.place.offset,
            length: hit.length,
            view: hit.place.view.to_string(),
            // Of a known value not even the beginning is shown.
            excerpt: value.filter(|_| !facts.is_secret).map(excerpt).unwrap_or_default(),
        });
        Ruling::Pass
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        self.print(&Line {
            path: &self.path,
            detector: trouble.kind.rule().map(|rule| &*self.detectors.facts(rule).id),
            action: None,
            trouble: Some(trouble.kind.to_string()),
            offset: trouble.place.offset,
            length: 0,
            view: trouble.place.view.to_string(),
            excerpt: String::new(),
        });
        Ruling::Pass
    }

    fn body_bytes(&self, _: Direction, _: Counts) {}
}

fn text(line: &Line<'_>) -> String {
    let path = printable(line.path);
    let view = if line.view.is_empty() { String::new() } else { format!(" in {}", line.view) };
    match &line.trouble {
        Some(trouble) => format!("{path}:{}: {trouble}{view}", line.offset),
        None => format!(
            "{path}:{}: {} ({} bytes, {}){view} {}",
            line.offset,
            line.detector.unwrap_or(""),
            line.length,
            line.action.unwrap_or(""),
            line.excerpt
        ),
    }
}

/// The first few characters of a value and how long it is, never more than a quarter of it.
fn excerpt(value: &[u8]) -> String {
    let shown = (value.len() / SHOWN_SHARE).min(SHOWN_MAX);
    let head: String = value[..shown]
        .iter()
        .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' })
        .collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_never_shows_more_than_a_quarter() {
        for (value, expected) in [
            (&b"ghp_abcdefgh"[..], "ghp…"),
            (b"abc", "…"),
            (b"AKIAABCDEFGHIJKLMNOP", "AKIA…"),
            (b"\x00\x01\x02\x03", "?…"),
        ] {
            assert_eq!(excerpt(value), expected);
        }
    }
}
