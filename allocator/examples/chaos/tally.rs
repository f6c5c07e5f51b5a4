//! What launchers wrote down, and what it comes to.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A line of the log: one short write, so that lines of several processes do not mix.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(dir: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(dir.join("tally"));
        Self(file.expect("the log can be opened"))
    }

    /// `what` about a port: `draw`, `drop`, `served`, `bind` (the engine could not bind it), `other` (any other failure).
    pub(crate) fn note(&self, owner: &str, what: &str, port: u16, words: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
        let words = words.replace(['\n', '\t'], " ");
        let line = format!("{now}\t{owner}\t{what}\t{port}\t{words}\n");
        drop((&self.0).write_all(line.as_bytes()));
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: String,
    pub(crate) deploys: usize,
    pub(crate) bind_failures: usize,
    pub(crate) other_failures: usize,
    pub(crate) held_twice: usize,
    pub(crate) kills: usize,
    pub(crate) connections: usize,
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) distinct: usize,
    pub(crate) median: Duration,
    /// Words of the first failures.
    pub(crate) words: Vec<String>,
}

impl Tally {
    /// Reads a log. A port is held twice when it is drawn while an earlier draw of a launcher that still lives has not dropped it.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut tally = Self::default();
        let mut holders: HashMap<u16, String> = HashMap::new();
        let mut ports: BTreeMap<u16, usize> = BTreeMap::new();
        let mut times = Vec::new();
        for line in text.lines() {
            let mut fields = line.split('\t');
            let (Some(_), Some(owner), Some(what), Some(port)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (port, words) = (port.parse().unwrap_or(0), fields.next().unwrap_or_default());
            match what {
                "draw" => {
                    *ports.entry(port).or_default() += 1;
                    tally.held_twice += usize::from(holders.insert(port, owner.to_owned()).is_some());
                }
                "drop" => drop(holders.remove(&port)),
                "dead" => holders.retain(|_, holder| holder != owner),
                "served" => {
                    tally.deploys += 1;
                    times.extend(words.parse::<u64>());
                }
                "bind" => tally.bind_failures += 1,
                _ => tally.other_failures += 1,
            }
            if matches!(what, "bind" | "other") && tally.words.len() < 5 {
                tally.words.push(words.to_owned());
            }
        }
        times.sort_unstable();
        tally.median = Duration::from_millis(times.get(times.len() / 2).copied().unwrap_or_default());
        tally.ports = ports.keys().next().copied().zip(ports.keys().next_back().copied());
        tally.distinct = ports.len();
        tally
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.deploys > 0 && self.bind_failures == 0 && self.other_failures == 0 && self.held_twice == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "| run | served | bind failures | other failures | held twice | launchers killed | connections held | ports | median |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        let attempts = self.deploys + self.bind_failures + self.other_failures;
        let share = 100.0 * self.bind_failures as f64 / attempts.max(1) as f64;
        let (first, last) = self.ports.unwrap_or_default();
        writeln!(
            out,
            "| {} | {} | {} ({share:.1} %) | {} | {} | {} | {} | {} in {first}-{last} | {:.2} s |",
            self.name,
            self.deploys,
            self.bind_failures,
            self.other_failures,
            self.held_twice,
            self.kills,
            self.connections,
            self.distinct,
            self.median.as_secs_f64()
        )?;
        for words in &self.words {
            writeln!(out, "  failed: {words}")?;
        }
        Ok(())
    }
}
