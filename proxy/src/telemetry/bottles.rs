//! Counters by bottle.
//!
//! Owns the series whose labels name a bottle. Invariants: live bottles up to a bound have series of their own, and all
//! others share those of `other`; a bottle that ends is folded into `other` under the one lock that counts, so that no
//! count is lost and none of its series comes back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, LabelPair, Metric, MetricFamily, MetricType};

use crate::identity::{Bottle, BottleKey};

/// The label of bottles beyond the bound, and of those that have ended.
pub(super) const OTHER: &str = "other";

/// The label of clients that are no bottle's.
const UNKNOWN: &str = "unknown";

/// The label that names the bottle.
const BOTTLE: &str = "bottle";

/// What is counted of one bottle: by metric, and by the values of its further labels.
type Counts = BTreeMap<(usize, Vec<String>), u64>;

/// One counter with a label `bottle`.
pub(super) struct ByBottle {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The further labels, in the order in which their values are given.
    pub(super) labels: &'static [&'static str],
}

/// The counters of all bottles.
pub(super) struct BottleCounters {
    metrics: &'static [ByBottle],
    descriptions: Vec<Desc>,
    /// Bottles with series of their own at most (`metrics.bottles`).
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: HashMap<BottleKey, Counts>,
    unknown: Counts,
    other: Counts,
}

impl BottleCounters {
    pub(super) fn new(metrics: &'static [ByBottle], most: usize) -> Result<Self, prometheus::Error> {
        let describe = |metric: &ByBottle| {
            let labels = metric.labels.iter().map(|label| (*label).to_owned());
            let labels = labels.chain([BOTTLE.to_owned()]).collect();
            Desc::new(metric.name.to_owned(), metric.help.to_owned(), labels, HashMap::new())
        };
        let descriptions = metrics.iter().map(describe).collect::<Result<_, _>>()?;
        Ok(Self { metrics, descriptions, most, state: Mutex::default() })
    }

    /// Counts one for `bottle` (none: a client that is no bottle's) in the metric at `index`.
    pub(super) fn count(&self, index: usize, bottle: Option<&Bottle>, values: &[&str]) {
        debug_assert_eq!(values.len(), self.metrics[index].labels.len(), "a value for every label");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = state.counts_of(bottle, self.most);
        // A bottle has a handful of series: looking at each is cheaper than making a key to look one up by.
        let same = |(at, known): &(usize, Vec<String>)| {
            *at == index && known.iter().map(String::as_str).eq(values.iter().copied())
        };
        match counts.iter_mut().find(|(labels, _)| same(labels)) {
            Some((_, count)) => *count += 1,
            None => {
                counts.insert((index, values.iter().map(|value| (*value).to_owned()).collect()), 1);
            }
        }
    }

    /// Folds the series of a bottle that has ended. [`Bottle::end`] comes first: what it still counts goes to `other`.
    pub(super) fn fold(&self, bottle: &BottleKey) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = state.live.remove(bottle) else { return };
        add(&mut state.other, &counts);
    }
}

impl State {
    fn counts_of(&mut self, bottle: Option<&Bottle>, most: usize) -> &mut Counts {
        let Some(bottle) = bottle else { return &mut self.unknown };
        let room = self.live.len() < most || self.live.contains_key(&bottle.key);
        if bottle.has_ended() || !room {
            return &mut self.other;
        }
        self.live.entry(bottle.key.clone()).or_default()
    }

    /// By label. Bottles of one name, an ended lease's and the next one's, are one.
    fn by_label(&self) -> BTreeMap<&str, Counts> {
        let live = self.live.iter().map(|(key, counts)| (&*key.name, counts));
        let mut all: BTreeMap<&str, Counts> = BTreeMap::new();
        for (label, counts) in live.chain([(UNKNOWN, &self.unknown), (OTHER, &self.other)]) {
            add(all.entry(label).or_default(), counts);
        }
        all
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (labels, count) in counts {
        *sum.entry(labels.clone()).or_default() += count;
    }
}

/// Hands the counters to a registry.
pub(super) struct Collecting(pub(super) std::sync::Arc<BottleCounters>);

impl Collector for Collecting {
    fn desc(&self) -> Vec<&Desc> {
        self.0.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut families: Vec<MetricFamily> = self.0.metrics.iter().map(family).collect();
        for (label, counts) in state.by_label() {
            for ((index, values), count) in counts {
                let names = self.0.metrics[index].labels;
                families[index].mut_metric().push(sample(names, &values, label, count));
            }
        }
        families
    }
}

fn family(metric: &ByBottle) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(MetricType::COUNTER);
    family
}

// A count beyond 2^53 is not what one gateway lives to see.
fn sample(names: &[&str], values: &[String], bottle: &str, count: u64) -> Metric {
    let pair = |name: &str, value: &str| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    let further = names.iter().zip(values).map(|(name, value)| pair(name, value));
    let mut counter = Counter::default();
    counter.set_value(count as f64);
    let mut metric = Metric::default();
    metric.set_label(std::iter::once(pair(BOTTLE, bottle)).chain(further).collect());
    metric.set_counter(counter);
    metric
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    const METRICS: &[ByBottle] = &[
        ByBottle { name: "decant_one_total", help: "One.", labels: &["verdict"] },
        ByBottle { name: "decant_two_total", help: "Two.", labels: &[] },
    ];

    fn bottle(name: &str, epoch: u64) -> Bottle {
        let key = BottleKey { name: name.into(), epoch };
        Bottle::new(key, "default".into(), None, BTreeMap::new(), None)
    }

    /// Label, further values and count of every series.
    fn series(counters: &Arc<BottleCounters>) -> Vec<(String, String, u64)> {
        let families = Collecting(counters.clone()).collect();
        let metrics = families.iter().flat_map(MetricFamily::get_metric);
        let show = |metric: &Metric| {
            let labels: Vec<&str> = metric.get_label().iter().map(LabelPair::value).collect();
            let count = format!("{:.0}", metric.get_counter().get_value());
            (labels[0].to_owned(), labels[1..].join(","), count.parse().expect("a count"))
        };
        metrics.map(show).collect()
    }

    #[test]
    fn bottles_beyond_the_bound_and_ended_ones_share_a_label() {
        let counters = Arc::new(BottleCounters::new(METRICS, 2).unwrap());
        let (a, b, c) = (bottle("a", 1), bottle("b", 1), bottle("c", 1));
        for bottle in [&a, &b, &c, &a] {
            counters.count(0, Some(bottle), &["passed"]);
        }
        counters.count(1, None, &[]);
        let row = |label: &str, values: &str, count| (label.to_owned(), values.to_owned(), count);
        assert_eq!(
            series(&counters),
            [row("a", "passed", 2), row("b", "passed", 1), row("other", "passed", 1), row("unknown", "", 1)]
        );
        a.end();
        counters.fold(&a.key);
        counters.count(0, Some(&a), &["passed"]);
        counters.count(0, Some(&c), &["passed"]);
        counters.count(0, Some(&bottle("b", 2)), &["passed"]);
        assert_eq!(
            series(&counters),
            [row("b", "passed", 1), row("c", "passed", 1), row("other", "passed", 5), row("unknown", "", 1)],
            "a place that was given back is taken by the next"
        );
    }

    /// Bottles come and go, and end while others still count for them: nothing is lost, nothing stays.
    #[test]
    fn ten_thousand_short_lives_lose_no_count() {
        const LIVES: u64 = 10_000;
        const EACH: u64 = 7;
        let counters = Arc::new(BottleCounters::new(METRICS, 64).unwrap());
        std::thread::scope(|scope| {
            for part in 0..4 {
                let counters = &counters;
                scope.spawn(move || {
                    for life in (part..LIVES).step_by(4) {
                        let bottle = bottle(&format!("bottle-{life}"), life);
                        std::thread::scope(|scope| {
                            scope.spawn(|| {
                                (0..EACH).for_each(|_| counters.count(0, Some(&bottle), &["passed"]));
                            });
                            bottle.end();
                            counters.fold(&bottle.key);
                        });
                    }
                });
            }
        });
        let series = series(&counters);
        assert_eq!(series.len(), 1, "{series:?}");
        assert_eq!(series[0], ("other".to_owned(), "passed".to_owned(), LIVES * EACH));
    }
}
