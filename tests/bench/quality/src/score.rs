//! The score: recall, precision, false reports and speed of each tool, as a table and as JSON.
//!
//! Invariant: each figure is given twice, of all reports and of those that are more than an alert.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::corpus::Made;
use crate::real::Text;
use crate::tools::{Found, Run, Tool};

/// Least share of the credentials that we find.
const RECALL_MIN: f64 = 0.99;

/// Wrong blocking reports per 100 MB of real text that we stay below.
const WRONG_MAX: f64 = 1.0;

/// What one tool did, of all its reports or of those that are more than an alert.
#[derive(Debug, Default)]
struct Side {
    /// Credentials found.
    found: usize,
    /// Near misses reported.
    misses: usize,
    /// Near misses reported of forms with a checksum.
    summed_misses: usize,
    /// Places in real text that were reported and are no credential.
    wrong: Vec<(PathBuf, usize, String)>,
}

/// The score of one tool.
pub(crate) struct Score {
    name: &'static str,
    version: String,
    valid: usize,
    text_bytes: u64,
    all: Side,
    strong: Side,
    /// Places in real text that hold what a credential looks like, and were reported.
    right: usize,
    /// Bytes of real text for each second of CPU time, and of wall time.
    speed: (f64, f64),
    missed: BTreeMap<&'static str, usize>,
    hit: BTreeMap<String, usize>,
}

/// The score of `tool` for its two runs.
pub(crate) fn of(tool: &Tool, made: &Made, on_made: &Run, text: &Text, on_text: &Run) -> Score {
    let bytes = text.bytes as f64;
    let mut score = Score {
        name: tool.name,
        version: tool.version.clone(),
        valid: made.values().filter(|item| item.miss.is_none()).count(),
        text_bytes: text.bytes,
        all: side(made, &on_made.found, |_| true),
        strong: side(made, &on_made.found, |found| found.blocks),
        right: 0,
        speed: (bytes / on_text.cpu, bytes / on_text.wall.as_secs_f64()),
        missed: missed(made, &on_made.found),
        hit: hit(made, &on_made.found),
    };
    for (path, line, rule, blocks) in places(&on_text.found) {
        if text.right(&path, line).is_some() {
            score.right += 1;
            continue;
        }
        if blocks {
            score.strong.wrong.push((path.clone(), line, rule.clone()));
        }
        score.all.wrong.push((path, line, rule));
    }
    score
}

fn is_in(made: &Made, found: &Found) -> bool {
    made.get(&found.path).is_some_and(|item| item.lines.contains(&found.line))
}

fn side(made: &Made, reports: &[Found], counts: fn(&Found) -> bool) -> Side {
    let reported: BTreeSet<&PathBuf> =
        reports.iter().filter(|found| counts(found) && is_in(made, found)).map(|found| &found.path).collect();
    let anywhere: BTreeSet<&PathBuf> =
        reports.iter().filter(|found| counts(found)).map(|found| &found.path).collect();
    let misses = || made.iter().filter(|(path, item)| item.miss.is_some() && anywhere.contains(path));
    Side {
        found: made.iter().filter(|(path, item)| item.miss.is_none() && reported.contains(path)).count(),
        misses: misses().count(),
        summed_misses: misses().filter(|(_, item)| item.has_checksum).count(),
        wrong: Vec::new(),
    }
}

/// How many credentials of each form nobody reported.
fn missed(made: &Made, reports: &[Found]) -> BTreeMap<&'static str, usize> {
    let reported: BTreeSet<&PathBuf> =
        reports.iter().filter(|found| is_in(made, found)).map(|found| &found.path).collect();
    let mut missed = BTreeMap::new();
    for (path, item) in made {
        if item.miss.is_none() && !reported.contains(path) {
            *missed.entry(item.detector).or_default() += 1;
        }
    }
    missed
}

/// How many near misses of each kind and form were reported, and by which rule.
fn hit(made: &Made, reports: &[Found]) -> BTreeMap<String, usize> {
    let mut hit = BTreeMap::new();
    for found in reports {
        let Some((item, kind)) = made.get(&found.path).and_then(|item| Some((item, item.miss?))) else {
            continue;
        };
        let strength = if found.blocks { "strong" } else { "weak" };
        *hit.entry(format!("{strength}: {} of {} by {}", kind.name(), item.detector, found.rule))
            .or_default() += 1;
    }
    hit
}

/// Each place once, with its rule and whether any report there is more than an alert.
fn places(reports: &[Found]) -> Vec<(PathBuf, usize, String, bool)> {
    let mut places: BTreeMap<(PathBuf, usize), (String, bool)> = BTreeMap::new();
    for found in reports {
        let place = places
            .entry((found.path.clone(), found.line))
            .or_insert_with(|| (found.rule.clone(), found.blocks));
        place.1 |= found.blocks;
    }
    places.into_iter().map(|((path, line), (rule, blocks))| (path, line, rule, blocks)).collect()
}

impl Score {
    fn recall(&self, side: &Side) -> f64 {
        side.found as f64 / self.valid as f64
    }

    fn precision(side: &Side) -> f64 {
        side.found as f64 / (side.found + side.misses).max(1) as f64
    }

    fn wrong_per_gib(&self, side: &Side) -> f64 {
        side.wrong.len() as f64 / (self.text_bytes as f64 / f64::from(1 << 30))
    }

    fn json(&self) -> Value {
        let side = |side: &Side| {
            json!({
                "recall": self.recall(side),
                "precision": Self::precision(side),
                "near_misses": side.misses,
                "near_misses_with_checksum": side.summed_misses,
                "wrong_per_gib": self.wrong_per_gib(side),
                "wrong": side.wrong.iter().map(|(path, line, rule)| format!("{}:{line}: {rule}", path.display())).collect::<Vec<_>>(),
            })
        };
        json!({
            "tool": self.name,
            "version": self.version,
            "all": side(&self.all),
            "strong": side(&self.strong),
            "right_in_real_text": self.right,
            "mb_per_cpu_second": self.speed.0 / 1e6,
            "mb_per_second": self.speed.1 / 1e6,
            "missed": self.missed,
            "near_misses_by": self.hit,
        })
    }
}

/// A column of a score as text.
type Shown = fn(&Score) -> String;

/// Prints the table.
pub(crate) fn print(scores: &[Score], made: &Made, text: &Text) {
    let valid = made.values().filter(|item| item.miss.is_none()).count();
    println!(
        "{valid} credentials, {} near misses, {} files of real text ({} MB)",
        made.len() - valid,
        text.files,
        text.bytes / 1_000_000
    );
    let rows: [(&str, Shown); 9] = [
        ("recall", |one| format!("{:.4}", one.recall(&one.all))),
        ("recall, strong reports", |one| format!("{:.4}", one.recall(&one.strong))),
        ("precision", |one| format!("{:.4}", Score::precision(&one.all))),
        ("precision, strong reports", |one| format!("{:.4}", Score::precision(&one.strong))),
        ("near misses with a checksum: strong (all)", |one| {
            format!("{} ({})", one.strong.summed_misses, one.all.summed_misses)
        }),
        ("wrong in real text, per GiB", |one| format!("{:.1}", one.wrong_per_gib(&one.all))),
        ("wrong, strong reports, per GiB", |one| format!("{:.1}", one.wrong_per_gib(&one.strong))),
        ("MB per second of CPU", |one| format!("{:.1}", one.speed.0 / 1e6)),
        ("MB per second", |one| format!("{:.1}", one.speed.1 / 1e6)),
    ];
    let titles: Vec<String> = scores.iter().map(|one| format!("{} {}", one.name, one.version)).collect();
    println!("| | {} |", titles.join(" | "));
    println!("|---|{}", "---|".repeat(scores.len()));
    for (name, show) in rows {
        let cells: Vec<String> = scores.iter().map(show).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

/// Writes everything as JSON.
pub(crate) fn write(path: &Path, scores: &[Score]) -> io::Result<()> {
    let all: Vec<Value> = scores.iter().map(Score::json).collect();
    fs::write(path, serde_json::to_string_pretty(&all)?)
}

/// Whether our goals were met and no peer is better in a column; says what was missed.
pub(crate) fn goals(scores: &[Score]) -> bool {
    let Some((ours, peers)) = scores.split_first() else { return false };
    let per_100_mb = ours.strong.wrong.len() as f64 / (ours.text_bytes as f64 / 1e8);
    let mut goals = vec![
        ("recall", ours.recall(&ours.all) >= RECALL_MIN),
        ("no near miss with a checksum blocks", ours.strong.summed_misses == 0),
        ("wrong blocking reports per 100 MB", per_100_mb < WRONG_MAX),
    ];
    for peer in peers {
        goals.extend([
            ("recall beside the peers", ours.recall(&ours.all) >= peer.recall(&peer.all)),
            ("precision beside the peers", Score::precision(&ours.all) >= Score::precision(&peer.all)),
            (
                "wrong reports beside the peers",
                ours.wrong_per_gib(&ours.all) <= peer.wrong_per_gib(&peer.all),
            ),
            ("speed beside the peers", ours.speed.0 >= peer.speed.0 && ours.speed.1 >= peer.speed.1),
        ]);
    }
    let missed: Vec<_> = goals.iter().filter(|(_, is_met)| !is_met).map(|(name, _)| *name).collect();
    println!("goals missed: {}", if missed.is_empty() { "none".to_owned() } else { missed.join(", ") });
    missed.is_empty()
}
