//! The tools that are compared: how each is run, and how its report reads.
//!
//! Invariant: none may ask a network; each reads the same folder, once, with its own defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Ticks of the kernel's clock of processes, in a second.
const TICKS: f64 = 100.0;

/// Longest run of one tool over one folder; `timeout` ends it.
const RUN_MAX: Duration = Duration::from_secs(1800);

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    program: PathBuf,
    arguments: fn(&str) -> Vec<OsString>,
    read: fn(&str, &Path) -> Vec<Found>,
}

/// One report.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Below the folder of the run.
    pub(crate) path: PathBuf,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: String,
    /// Whether it is more than an alert: ours would block, theirs has more than low confidence (detect-secrets tells none).
    pub(crate) blocks: bool,
}

/// What one run gave and cost.
pub(crate) struct Run {
    pub(crate) found: Vec<Found>,
    pub(crate) wall: Duration,
    /// User and system time of the tool and its children, in seconds.
    pub(crate) cpu: f64,
}

/// The tools, ours first; `peers` holds the programs of the others.
pub(crate) fn all(peers: &Path) -> [Tool; 3] {
    let ours = decant_tests::program::binary().to_owned();
    let betterleaks = peers.join("betterleaks");
    let detect_secrets = peers.join("detect-secrets");
    [
        Tool {
            name: "decant scan",
            version: version(&ours, &["--version"]),
            program: ours,
            arguments: |folder| words(&["scan", "--format", "json", folder]),
            read: decant,
        },
        Tool {
            name: "betterleaks",
            version: version(&betterleaks, &["--version"]),
            program: betterleaks,
            arguments: |folder| {
                words(&["--no-banner", "--silent", "--exit-code=0", "--output=betterleaks.jsonl", folder])
            },
            read: betterleaks_report,
        },
        Tool {
            name: "detect-secrets",
            version: version(&detect_secrets, &["--version"]),
            program: detect_secrets,
            arguments: |folder| words(&["scan", "--all-files", "--no-verify", folder]),
            read: detect_secrets_report,
        },
    ]
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn version(program: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).split_whitespace().last().unwrap_or_default().to_owned()
}

impl Tool {
    /// Runs over `part` of `folder`, from there.
    pub(crate) fn run(&self, folder: &Path, part: &str) -> io::Result<Run> {
        let (cpu, started) = (children_cpu()?, Instant::now());
        let output = Command::new("timeout")
            .arg(RUN_MAX.as_secs().to_string())
            .arg(&self.program)
            .args((self.arguments)(part))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        let (wall, cpu) = (started.elapsed(), children_cpu()? - cpu);
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(io::Error::other(format!("{} ended with {}", self.name, output.status)));
        }
        let found = (self.read)(&String::from_utf8_lossy(&output.stdout), folder);
        Ok(Run { found, wall, cpu })
    }
}

/// User and system time of every child that was waited for, in seconds.
fn children_cpu() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    // The 16th and 17th of all; two stand before the bracket's end.
    let ticks: f64 = fields.skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS)
}

/// `decant scan --format json` counts bytes; the others count lines.
fn decant(report: &str, folder: &Path) -> Vec<Found> {
    let mut texts: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = Vec::new();
    for line in lines {
        let path = PathBuf::from(line["path"].as_str().unwrap_or_default());
        let text =
            texts.entry(path.clone()).or_insert_with(|| fs::read(folder.join(&path)).unwrap_or_default());
        let offset = line["offset"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        let before = &text[..offset.min(text.len())];
        let number = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let rule = line["detector"].as_str().or(line["trouble"].as_str()).unwrap_or_default().to_owned();
        // What could not be looked into blocks in requests.
        let blocks = line["action"].as_str() != Some("alert");
        found.push(Found { path, line: number, rule, blocks });
        if texts.len() > 64 {
            texts.clear();
        }
    }
    found
}

fn betterleaks_report(_: &str, folder: &Path) -> Vec<Found> {
    let text = fs::read_to_string(folder.join("betterleaks.jsonl")).unwrap_or_default();
    let findings = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    findings
        .filter_map(|line| {
            let finding = &line["finding"];
            let place = &finding["location"];
            Some(Found {
                path: PathBuf::from(place["path"].as_str()?),
                line: usize::try_from(place["start_line"].as_u64()?).ok()?,
                rule: finding["rule_id"].as_str()?.to_owned(),
                blocks: finding["confidence"].as_str() != Some("low"),
            })
        })
        .collect()
}

fn detect_secrets_report(report: &str, _: &Path) -> Vec<Found> {
    let report: Value = serde_json::from_str(report).unwrap_or_default();
    let files = report["results"].as_object().cloned().unwrap_or_default();
    let all = files.into_iter().flat_map(|(path, found)| {
        let found = found.as_array().cloned().unwrap_or_default();
        found.into_iter().map(move |one| (PathBuf::from(&path), one))
    });
    all.map(|(path, one)| Found {
        path,
        line: one["line_number"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0),
        rule: one["type"].as_str().unwrap_or_default().to_owned(),
        blocks: true,
    })
    .collect()
}
