//! Metrics of several workers as one: counts of the dead are kept, so that totals never fall.
//!
//! Reads the exposition that this program's own workers write (Prometheus text format 0.0.4), so nothing here has to
//! understand any other. Invariants: counters and histograms are sums over all workers, dead and alive; gauges are the
//! living ones'; carried bottles are bounded like a worker's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

/// Gauges that add up over workers; of every other one the youngest worker's value stands.
const SUMMED: [&str; 5] = [
    "decant_connections",
    "decant_exchanges_open",
    "decant_held_bytes",
    "decant_memory_reserved_bytes",
    "decant_memory_resident_bytes",
];
/// The label of bottles beyond the bound.
const OTHER: &str = "other";
const BOTTLE: &str = "bottle=\"";

/// What one family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Counters and histograms: sums.
    Total,
    Gauge,
}

#[derive(Clone, Debug)]
struct Family {
    kind: Kind,
    /// Its comment lines, as they came.
    head: String,
    /// Series and values, in the order they came.
    samples: Vec<(String, f64)>,
}

/// A set of families.
#[derive(Clone, Debug, Default)]
pub(super) struct Exposition {
    families: BTreeMap<String, Family>,
}

impl Exposition {
    /// Reads a worker's text; lines that are none of its kind are passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let (mut name, mut head) = ("", String::new());
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ').skip(1);
                let named = words.next().unwrap_or_default();
                if named != name {
                    (name, head) = (named, String::new());
                }
                let _ = writeln!(head, "{line}");
                if comment.starts_with("TYPE ") {
                    let kind = if words.next() == Some("gauge") { Kind::Gauge } else { Kind::Total };
                    let family = Family { kind, head: std::mem::take(&mut head), samples: Vec::new() };
                    all.families.insert(name.to_owned(), family);
                }
            } else if let Some((series, value)) = line.rsplit_once(' ')
                && let (Some(family), Ok(value)) = (all.families.get_mut(name), value.parse())
            {
                family.samples.push((series.to_owned(), value));
            }
        }
        all
    }

    /// Adds a living worker, the youngest so far.
    pub(super) fn add_living(&mut self, worker: &Self) {
        for (name, family) in &worker.families {
            let adds = family.kind == Kind::Total || SUMMED.contains(&name.as_str());
            self.family(name, family).merge(family, adds);
        }
    }

    /// Keeps the counts of a worker that has ended, of `bottles` by name at most.
    pub(super) fn carry(&mut self, worker: &Self, bottles: usize) {
        for (name, family) in worker.families.iter().filter(|(_, family)| family.kind == Kind::Total) {
            self.family(name, family).merge(family, true);
        }
        self.bound(bottles);
    }

    fn family(&mut self, name: &str, like: &Family) -> &mut Family {
        let empty = || Family { samples: Vec::new(), ..like.clone() };
        self.families.entry(name.to_owned()).or_insert_with(empty)
    }

    /// Folds bottles beyond the first `bottles` into `other`.
    fn bound(&mut self, bottles: usize) {
        let samples = || self.families.values().flat_map(|family| &family.samples);
        let mut named: HashSet<String> = HashSet::new();
        for bottle in samples().filter_map(|(series, _)| bottle_of(series)) {
            if named.len() >= bottles {
                break;
            }
            named.insert(bottle.to_owned());
        }
        for family in self.families.values_mut() {
            if family.samples.iter().any(|(series, _)| is_beyond(series, &named)) {
                let folded = family.samples.drain(..).map(|(series, value)| (folded(series, &named), value));
                let folded = Family { samples: folded.collect(), ..family.clone() };
                family.merge(&folded, true);
            }
        }
    }

    /// As text again.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for family in self.families.values() {
            text.push_str(&family.head);
            for (series, value) in &family.samples {
                // A string takes all that is written to it.
                let _ = writeln!(text, "{series} {value}");
            }
        }
        text
    }
}

impl Family {
    fn merge(&mut self, other: &Self, adds: bool) {
        let mut places: HashMap<String, usize> =
            self.samples.iter().enumerate().map(|(place, (series, _))| (series.clone(), place)).collect();
        for (series, value) in &other.samples {
            match places.get(series) {
                Some(&place) if adds => self.samples[place].1 += value,
                Some(&place) => self.samples[place].1 = *value,
                None => {
                    places.insert(series.clone(), self.samples.len());
                    self.samples.push((series.clone(), *value));
                }
            }
        }
    }
}

/// The bottle that a series is labelled with, as it stands there: a quote in a name is escaped.
fn bottle_of(series: &str) -> Option<&str> {
    let (_, rest) = series.split_once(BOTTLE)?;
    let mut escaped = false;
    let end = rest.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(&rest[..end])
}

fn is_beyond(series: &str, named: &HashSet<String>) -> bool {
    bottle_of(series).is_some_and(|bottle| bottle != OTHER && !named.contains(bottle))
}

fn folded(series: String, named: &HashSet<String>) -> String {
    match bottle_of(&series) {
        Some(bottle) if is_beyond(&series, named) => {
            series.replacen(&format!("{BOTTLE}{bottle}\""), &format!("{BOTTLE}{OTHER}\""), 1)
        }
        _ => series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(scale: u64, extra: &str) -> String {
        format!(
            "# HELP decant_blocks_total Refusals.\n# TYPE decant_blocks_total counter\n\
             decant_blocks_total{{bottle=\"a\",reason=\"policy\"}} {scale}\n{extra}\
             # HELP decant_connections Open.\n# TYPE decant_connections gauge\n\
             decant_connections{{side=\"upstream\"}} {scale}\n\
             # HELP decant_memory_budget_bytes Budget.\n# TYPE decant_memory_budget_bytes gauge\n\
             decant_memory_budget_bytes {scale}\n\
             # HELP decant_upstream_seconds Wait.\n# TYPE decant_upstream_seconds histogram\n\
             decant_upstream_seconds_bucket{{le=\"0.5\"}} {scale}\n\
             decant_upstream_seconds_bucket{{le=\"+Inf\"}} {scale}\n\
             decant_upstream_seconds_sum 0.5\ndecant_upstream_seconds_count {scale}\n"
        )
    }

    #[test]
    fn a_bottle_s_name_ends_at_its_own_quote() {
        for (series, bottle) in [
            (r#"x{bottle="a",y="b"}"#, Some("a")),
            (r#"x{y="b",bottle="a\"b\\"}"#, Some(r#"a\"b\\"#)),
            (r#"x{y="b"}"#, None),
            ("x", None),
        ] {
            assert_eq!(bottle_of(series), bottle, "{series}");
        }
    }

    #[test]
    fn one_worker_s_text_comes_out_as_it_went_in() {
        let text = text(7, "");
        assert_eq!(Exposition::parse(&text).render(), text);
    }

    #[test]
    fn totals_add_up_over_the_dead_and_gauges_are_the_living_ones() {
        let [dead, old, young] = [1, 10, 100].map(|scale| Exposition::parse(&text(scale, "")));
        let mut all = Exposition::default();
        all.carry(&dead, 10);
        all.carry(&dead, 10);
        let carried = all.clone();
        all.add_living(&old);
        all.add_living(&young);
        let expected = text(112, "")
            .replace("decant_memory_budget_bytes 112", "decant_memory_budget_bytes 100")
            .replace("{side=\"upstream\"} 112", "{side=\"upstream\"} 110")
            .replace("_sum 0.5", "_sum 2");
        assert_eq!(all.render(), expected);
        assert!(!carried.render().contains("decant_connections"), "the dead have no connections");
    }

    #[test]
    fn carried_bottles_are_bounded_and_no_count_is_lost() {
        let mut all = Exposition::default();
        for number in 0..100 {
            let extra = format!("decant_blocks_total{{bottle=\"b{number}\",reason=\"policy\"}} 1\n");
            all.carry(&Exposition::parse(&text(1, &extra)), 5);
        }
        let text = all.render();
        let blocks: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("decant_blocks_total{bottle=\"")?.split_once('"'))
            .map(|(bottle, rest)| {
                (bottle, rest.rsplit_once(' ').expect("a value").1.parse().expect("a count"))
            })
            .collect();
        assert_eq!(blocks.len(), 6, "{text}");
        assert_eq!(blocks.iter().map(|(_, count)| count).sum::<u64>(), 200);
        assert!(blocks.contains(&("a", 100)) && blocks.contains(&("other", 96)), "{blocks:?}");
    }
}
