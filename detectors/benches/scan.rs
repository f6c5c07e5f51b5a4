//! How fast the engine scans: a report in MB/s of thread CPU time, by first stage, corpus and chunk size.
//!
//! `cargo bench -p decant-detectors --bench scan -- [--rounds N] [--short | --views | --part NAME] [FILE...]`
//!
//! The built-in pack is on. `stage` rows look for anchors alone; `scan` rows are the whole scanner;
//! `short` rows scan header-sized inputs one by one. All stages run interleaved and the best round
//! counts, since the machine is shared: read the figures as ratios. Files are scanned as one more part.

#[path = "scan/corpus.rs"]
mod corpus;

use std::sync::Arc;
use std::time::Instant;

use decant_detectors::{
    BuildLimits, Rule, RuleSet, RuleSetBuilder, Scanner, Selection, StageKind, ViewLimits, ViewScanner,
};

/// Bytes of a chunk: a TLS record, and what a network packet carries.
const CHUNKS: [usize; 2] = [16 << 10, 1400];
/// Nanoseconds of CPU that a figure is taken over.
const SPAN: u64 = 60_000_000;
/// Bytes of a header-sized input.
const SHORT: [usize; 3] = [20, 50, 100];

/// The parts that stand for ordinary traffic.
const MIX: [&str; 4] = ["json", "html", "random", "base64"];

struct Options {
    rounds: usize,
    only_short: bool,
    only_views: bool,
    part: Option<String>,
    files: Vec<String>,
}

fn options() -> Options {
    let mut options =
        Options { rounds: 5, only_short: false, only_views: false, part: None, files: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => {
                options.rounds = args.next().and_then(|n| n.parse().ok()).expect("a number of rounds");
            }
            "--part" => options.part = args.next(),
            "--views" => options.only_views = true,
            "--short" => options.only_short = true,
            "--bench" => {}
            _ => options.files.push(arg),
        }
    }
    options
}

/// The built-in pack, as it is switched on by default.
fn pack(stage: StageKind) -> Option<Arc<RuleSet>> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    builder.stage(stage);
    for (name, text) in decant_detectors::pack::FILES {
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
    let start = Instant::now();
    let rules = builder.build().ok()?;
    println!(
        "{:9} {} rules, built in {:.0?}, {} KiB",
        rules.stage_name(),
        rules.len(),
        start.elapsed(),
        rules.memory_usage() >> 10
    );
    Some(Arc::new(rules))
}

/// Nanoseconds of CPU that this thread has used.
fn cpu() -> u64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells a thread's CPU time");
    stat.split(' ').next().and_then(|field| field.parse().ok()).expect("its first field is the time")
}

/// MB/s of `work` over `bytes`, done as often as it takes: the kernel counts CPU time by its tick.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let start = cpu();
    let mut rounds = 0;
    loop {
        work();
        rounds += 1;
        let time = cpu() - start;
        if time >= SPAN {
            #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
            return (bytes * rounds) as f64 * 1000.0 / time as f64;
        }
    }
}

fn whole(rules: &Arc<RuleSet>, selection: &Arc<Selection>, body: &[u8], chunk: usize) -> usize {
    let mut scanner = Scanner::new(rules.clone(), selection.clone());
    let (mut events, mut found) = (Vec::new(), 0);
    for chunk in body.chunks(chunk) {
        std::hint::black_box(scanner.push(chunk, &mut events));
        found += events.len();
        events.clear();
    }
    scanner.finish(&mut events);
    found + events.len()
}

/// As [`whole`], in every view that `limits` allow.
fn viewed(
    rules: &Arc<RuleSet>,
    selection: &Arc<Selection>,
    limits: ViewLimits,
    body: &[u8],
    chunk: usize,
) -> usize {
    let mut scanner = ViewScanner::new(rules.clone(), selection.clone(), limits);
    let (mut found, mut count) = (Vec::new(), 0);
    for chunk in body.chunks(chunk) {
        std::hint::black_box(scanner.push(chunk, &mut found));
        count += found.len();
        found.clear();
    }
    scanner.finish(&mut found);
    count + found.len()
}

/// Prints what views cost on each part and on the four ordinary ones together, off and on in turns.
fn views(rules: &Arc<RuleSet>, selection: &Arc<Selection>, parts: &[(String, Vec<u8>)], rounds: usize) {
    let off = ViewLimits { depth: 0, ..ViewLimits::default() };
    for chunk in CHUNKS {
        let mut mix = [0.0; 2];
        for (name, body) in parts {
            let mut best = [0.0f64; 2];
            for _ in 0..rounds {
                for (best, limits) in best.iter_mut().zip([off, ViewLimits::default()]) {
                    *best = best.max(rate(body.len(), || {
                        std::hint::black_box(viewed(rules, selection, limits, body, chunk));
                    }));
                }
            }
            println!("views {name:20} {chunk:6} {:8.0} {:8.0}   {:.2}x", best[0], best[1], best[0] / best[1]);
            if MIX.contains(&name.as_str()) {
                mix.iter_mut().zip(best).for_each(|(mix, best)| *mix += 1.0 / best);
            }
        }
        println!("views {:20} {chunk:6} {:17}   {:.2}x", "the mix", "", mix[1] / mix[0]);
    }
}

fn short(rules: &Arc<RuleSet>, selection: &Arc<Selection>, body: &[u8], size: usize) -> usize {
    let mut events = Vec::new();
    let mut scanner = Scanner::new(rules.clone(), selection.clone());
    for input in body.chunks(size) {
        scanner.whole(input, &mut events);
    }
    events.len()
}

/// Runs every stage in turn, `rounds` times, and prints the best of each.
fn row(sets: &[Arc<RuleSet>], rounds: usize, bytes: usize, name: &str, run: impl Fn(&Arc<RuleSet>) -> usize) {
    let mut best = vec![0.0f64; sets.len()];
    let mut found = vec![0; sets.len()];
    for _ in 0..rounds {
        for (at, set) in sets.iter().enumerate() {
            best[at] = best[at].max(rate(bytes, || found[at] = std::hint::black_box(run(set))));
        }
    }
    let figures: String = best.iter().map(|best| format!("{best:10.0}")).collect();
    println!("{name:32}{figures}   {} found", found[0]);
    assert!(found.iter().all(|&n| n == found[0]), "the stages disagree: {found:?}");
}

fn main() {
    let options = options();
    let kinds = [StageKind::Portable, StageKind::Avx2, StageKind::Avx512Bw, StageKind::Avx512Vbmi];
    let sets: Vec<Arc<RuleSet>> = kinds.into_iter().filter_map(pack).collect();
    let selection = Arc::new(Selection::all(&sets[0]));
    let mut parts = corpus::parts(&sets[0]);
    for file in &options.files {
        parts.push((file.clone(), std::fs::read(file).expect("a readable file")));
    }
    parts.retain(|(name, _)| options.part.as_deref().is_none_or(|part| part == name));
    if options.only_views {
        println!("{:33} {:>8} {:>8}   MB/s, best of {}", "", "off", "on", options.rounds);
        let fastest = sets.last().expect("one runs everywhere");
        return views(fastest, &selection, &parts, options.rounds);
    }
    let names: String = sets.iter().map(|set| format!("{:>10}", set.stage_name())).collect();
    println!("{:32}{names}   MB/s, best of {}", "", options.rounds);
    for (name, body) in parts.iter().filter(|_| !options.only_short) {
        for chunk in CHUNKS {
            let title = |what: &str| format!("{what} {name} {chunk}");
            row(&sets, options.rounds, body.len(), &title("stage"), |set| set.count_anchors(body, chunk));
            row(&sets, options.rounds, body.len(), &title("scan "), |set| {
                whole(set, &selection, body, chunk)
            });
        }
    }
    let (_, json) = &parts[0];
    let json = &json[..json.len() / 8];
    for size in SHORT {
        let title = format!("short json {size}");
        row(&sets, options.rounds, json.len(), &title, |set| short(set, &selection, json, size));
    }
}
