//! What known values cost: MB/s of thread CPU time of a scan without, and with so many of them.
//!
//! `cargo bench -p decant-detectors --bench known -- [--rounds N]`
//!
//! The values are 32 letters and digits each and stand nowhere in the corpus, as it is with ordinary traffic. `alone` is
//! the scan for values with no detector beside it, `pack` the built-in detectors without and with the values. All run
//! interleaved and the best round counts: read the figures as ratios.

#[path = "scan/corpus.rs"]
mod corpus;

use std::sync::Arc;
use std::time::Instant;

use decant_detectors::{BuildLimits, Known, Rule, RuleSet, RuleSetBuilder, Scanner, Selection};

/// Bytes of a chunk: a TLS record, and what a network packet carries.
const CHUNKS: [usize; 2] = [16 << 10, 1400];
/// Nanoseconds of CPU that a figure is taken over.
const SPAN: u64 = 60_000_000;
/// How many values are looked for.
const VALUES: [usize; 3] = [1, 100, 10_000];
/// Bytes of a value.
const BYTES: usize = 32;

/// Detectors, if any, and so many values.
fn set(with_pack: bool, values: usize) -> Arc<RuleSet> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (name, text) in decant_detectors::pack::FILES.iter().filter(|_| with_pack) {
        let file = decant_config::parse_detectors(name, text).expect("the pack parses");
        for spec in file.detectors.into_iter().filter(|spec| spec.enabled) {
            let context = spec.context.map(|c| decant_detectors::Context { any: c.any, within: c.within });
            builder.rule(Rule {
                id: spec.id.to_string(),
                pattern: spec.pattern,
                keywords: spec.keywords,
                max_length: spec.max_length,
                validator: spec.validate.map(|name| name.parse().expect("a validator")),
                context,
                ..Rule::default()
            });
        }
    }
    let mut seed = 1u64;
    for number in 0..values {
        let value: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[(seed >> 33) as usize % 62]
        })
        .take(BYTES)
        .collect();
        builder.known(Known { id: format!("value {number}"), value: value.into() });
    }
    let start = Instant::now();
    let rules = builder.build().expect("it builds");
    if values > 0 && !with_pack {
        println!(
            "{values:6} values: built in {:.0?}, {} KiB",
            start.elapsed(),
            rules.known_memory_usage() >> 10
        );
    }
    Arc::new(rules)
}

/// Nanoseconds of CPU that this thread has used.
fn cpu() -> u64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells a thread's CPU time");
    stat.split(' ').next().and_then(|field| field.parse().ok()).expect("its first field is the time")
}

/// MB/s of a scan of `body`, done as often as it takes: the kernel counts CPU time by its tick.
fn rate(rules: &Arc<RuleSet>, body: &[u8], chunk: usize) -> f64 {
    let selection = Arc::new(Selection::all(rules));
    let start = cpu();
    let mut rounds = 0;
    loop {
        let mut scanner = Scanner::new(rules.clone(), selection.clone());
        let mut events = Vec::new();
        for chunk in body.chunks(chunk) {
            std::hint::black_box(scanner.push(chunk, &mut events));
            events.clear();
        }
        scanner.finish(&mut events);
        rounds += 1;
        let time = cpu() - start;
        if time >= SPAN {
            #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
            return (body.len() * rounds) as f64 * 1000.0 / time as f64;
        }
    }
}

fn rounds() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--rounds").skip(1);
    args.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"))
}

fn main() {
    let pack = set(true, 0);
    let alone: Vec<_> = VALUES.iter().map(|values| set(false, *values)).collect();
    let both = set(true, VALUES[2]);
    let names: String = VALUES.iter().map(|values| format!("{values:>9} alone")).collect();
    println!("{:18}{names}{:>12}{:>12}   MB/s, best of {}", "", "pack", "and 10000", rounds());
    for (name, body) in &corpus::parts(&pack) {
        for chunk in CHUNKS {
            let sets: Vec<&Arc<RuleSet>> = alone.iter().chain([&pack, &both]).collect();
            let mut best = vec![0.0f64; sets.len()];
            for _ in 0..rounds() {
                for (best, rules) in best.iter_mut().zip(&sets) {
                    *best = best.max(rate(rules, body, chunk));
                }
            }
            let figures: String = best.iter().map(|best| format!("{best:13.0} ")).collect();
            println!("{name:12}{chunk:6}{figures}  {:.2}x", best[3] / best[4]);
        }
    }
}
