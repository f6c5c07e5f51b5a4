//! Decant's scan engine beside Hyperscan's streaming mode, or Vectorscan's: the same patterns over the same bytes, on one
//! core, in turns.
//!
//! `cargo run --release -- [--rounds N] [FILE...]`, with Debian's `libhyperscan-dev` or `libvectorscan-dev`.
//!
//! The patterns are those of the built-in pack that the library takes, without the boundaries around them, validators and
//! context, which it does not know. Rules with a literal and rules without are told apart. Figures are MB/s of thread CPU
//! time, the best round of each: read them as ratios.

mod hyperscan;

#[path = "../../../../detectors/benches/scan/corpus.rs"]
mod corpus;

use std::sync::Arc;

use decant_detectors::{
    AnchorInfo, BuildLimits, Rule, RuleSet, RuleSetBuilder, Scanner, Selection, StageKind,
};
use hyperscan::Database;

/// Bytes of a chunk: a TLS record, and what a network packet carries.
const CHUNKS: [usize; 2] = [16 << 10, 1400];
/// Nanoseconds of CPU that a figure is taken over.
const SPAN: u64 = 60_000_000;
/// The parts that stand for ordinary traffic.
const MIX: [&str; 4] = ["json", "html", "random", "base64"];
/// Decant's first stages that are compared.
const STAGES: [StageKind; 3] = [StageKind::Avx512Vbmi, StageKind::Avx512Bw, StageKind::Avx2];

struct Options {
    rounds: usize,
    files: Vec<String>,
}

fn options() -> Options {
    let mut options = Options { rounds: 5, files: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => {
                options.rounds = args.next().and_then(|n| n.parse().ok()).expect("a number of rounds")
            }
            _ => options.files.push(arg),
        }
    }
    options
}

/// A pattern without the boundaries that the library does not know.
fn without_boundaries(pattern: &str) -> String {
    let names = ["start-half", "end-half", "start", "end"];
    let bare =
        names.iter().fold(pattern.to_owned(), |text, name| text.replace(&format!(r"\b{{{name}}}"), ""));
    bare.replace(r"\b", "")
}

/// The pack's rules that both engines take, those with a literal and those without.
fn rules() -> (Vec<Rule>, Vec<Rule>) {
    let (mut with, mut without, mut refused) = (Vec::new(), Vec::new(), 0);
    for (name, text) in decant_detectors::pack::FILES {
        let file = decant_config::parse_detectors(name, text).expect("the pack parses");
        for spec in file.detectors.into_iter().filter(|spec| spec.enabled) {
            let rule = Rule {
                id: spec.id.to_string(),
                pattern: without_boundaries(&spec.pattern),
                keywords: spec.keywords,
                max_length: spec.max_length,
                ..Rule::default()
            };
            let built =
                Database::new(&[&rule.pattern]).ok().and_then(|_| build(&[rule.clone()], StageKind::Best));
            match built {
                None => refused += 1,
                Some(set) => {
                    let id = set.rule_id(&rule.id).expect("it is in the set");
                    let is_literal = matches!(set.info(id).anchor, AnchorInfo::Literals(_));
                    if is_literal { with.push(rule) } else { without.push(rule) }
                }
            }
        }
    }
    println!(
        "{} rules with a literal, {} without, {refused} that one of both refuses",
        with.len(),
        without.len()
    );
    (with, without)
}

fn build(rules: &[Rule], stage: StageKind) -> Option<Arc<RuleSet>> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    builder.stage(stage);
    rules.iter().for_each(|rule| {
        builder.rule(rule.clone());
    });
    builder.build().ok().map(Arc::new)
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
            return (bytes * rounds) as f64 * 1000.0 / time as f64;
        }
    }
}

/// Findings in `body`, and the bytes that the stream takes afterwards.
fn scan(rules: &Arc<RuleSet>, selection: &Arc<Selection>, body: &[u8], chunk: usize) -> (usize, usize) {
    let mut scanner = Scanner::new(rules.clone(), selection.clone());
    let (mut events, mut found) = (Vec::new(), 0);
    for chunk in body.chunks(chunk) {
        std::hint::black_box(scanner.push(chunk, &mut events));
        found += events.len();
        events.clear();
    }
    scanner.finish(&mut events);
    (found + events.len(), scanner.memory_usage())
}

/// Compares the engines with one list of rules, and prints a line for each part and size of chunk.
fn compare(title: &str, rules: &[Rule], parts: &[(String, Vec<u8>)], rounds: usize) {
    let patterns: Vec<&str> = rules.iter().map(|rule| rule.pattern.as_str()).collect();
    let database = match Database::new(&patterns) {
        Ok(database) => database,
        Err(words) => return println!("{title}: {words}"),
    };
    let sets: Vec<Arc<RuleSet>> = STAGES.into_iter().filter_map(|stage| build(rules, stage)).collect();
    let Some(first) = sets.first() else { return println!("{title}: this machine runs no fast stage") };
    let selection = Arc::new(Selection::all(first));
    let names: String = sets.iter().map(|set| format!("{:>18}", set.stage_name())).collect();
    println!("\n{title}: {} rules, {} bytes a stream of Hyperscan", rules.len(), database.stream_bytes());
    println!("{:25} {:>6} {:>10}{names}", "", "chunk", "Hyperscan");
    for chunk in CHUNKS {
        let mut mix = vec![0.0; sets.len() + 1];
        for (name, body) in parts {
            let mut best = vec![0.0f64; sets.len() + 1];
            let mut rest = 0;
            for _ in 0..rounds {
                best[0] = best[0].max(rate(body.len(), || {
                    std::hint::black_box(database.scan(body, chunk));
                }));
                for (set, best) in sets.iter().zip(&mut best[1..]) {
                    *best = best.max(rate(body.len(), || rest = scan(set, &selection, body, chunk).1));
                }
            }
            print_line(name, chunk, &best);
            if MIX.contains(&name.as_str()) {
                mix.iter_mut().zip(&best).for_each(|(mix, best)| *mix += 1.0 / best / MIX.len() as f64);
            }
            assert!(rest < 512 || name.starts_with("hostile"), "a stream at rest takes {rest} bytes");
        }
        let mix: Vec<f64> = mix.into_iter().map(|time| 1.0 / time).collect();
        print_line("the mix", chunk, &mix);
    }
}

fn print_line(name: &str, chunk: usize, rates: &[f64]) {
    let ours: String =
        rates[1..].iter().map(|rate| format!("{rate:10.0} {:6.2}x", rate / rates[0])).collect();
    println!("{name:25} {chunk:6} {:10.0}{ours}", rates[0]);
}

fn main() {
    let options = options();
    println!("Hyperscan {}; MB/s, best of {}", hyperscan::version(), options.rounds);
    let (tokens, others) = rules();
    let all = build(&tokens, StageKind::Best).expect("each rule of them builds");
    let mut parts = corpus::parts(&all);
    for file in &options.files {
        parts.push((file.clone(), std::fs::read(file).expect("a readable file")));
    }
    let half = |which: usize| -> Vec<Rule> {
        // Neighbours in the pack are of one kind; a step that is no divisor of their number mixes them.
        let mixed = (0..tokens.len()).map(|at| &tokens[at * 101 % tokens.len()]);
        mixed.skip(which * (tokens.len() / 2)).take(tokens.len() / 2).cloned().collect()
    };
    compare("with a literal", &tokens, &parts, options.rounds);
    compare("one half of them", &half(0), &parts, options.rounds);
    compare("the other half", &half(1), &parts, options.rounds);
    let both = [tokens.as_slice(), &others].concat();
    compare("with and without", &both, &parts, options.rounds);
}
