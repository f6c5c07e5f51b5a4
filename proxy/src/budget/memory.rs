//! The memory of one worker: how much there is, what is taken before anybody is served, what things cost, and what fits.
//!
//! Owns every cost in bytes that the ledger charges. The costs are measured (`tests/e2e/memory.rs` holds them to the
//! resident memory of a release build); their sizes follow from the limits in effect, which a small budget lowers.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::LazyLock;

use decant_config::{Config, Limits};

use super::ledger::Terms;
use super::limit;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The budget where neither the configuration nor a control group says.
const BUDGET_DEFAULT: u64 = 64 * MIB;

/// Of the budget, this part is left to what no ledger sees: holes in the heap, page tables, thread stacks.
const SLACK_PART: u64 = 16;

/// What the process beside the worker takes, which supervises it and shares its control group.
const SUPERVISOR_BYTES: u64 = 2 * MIB;

/// What grows after the start and is bounded by counts: leaf certificates, resolver answers, sessions, series.
const POOLS_BYTES: u64 = MIB;

/// Connections to origins that are kept for later may take this part of the budget, at so much each.
const IDLE_PART: u64 = 32;
const IDLE_BYTES: u64 = 40 * KIB;

/// Buffers are this part of the budget, between the two bounds, and never above their own limits.
const BUFFER_PART: u64 = 4096;
const BUFFER_LEAST: u64 = 16 * KIB;
const BUFFER_MOST: u64 = 64 * KIB;

/// An HTTP/2 stream's window, in buffers.
const WINDOW_BUFFERS: u64 = 4;

/// A connection at rest: its tasks, its TLS session, HTTP's own state, its socket in the kernel.
const CONNECTION_BYTES: u64 = 52 * KIB;

/// An exchange besides its buffers: the connection to the origin with its TLS session and task, and the scan of both
/// directions.
const EXCHANGE_BYTES: u64 = 64 * KIB;

/// Buffers of an exchange that may be full at once: read from the origin and not taken, taken and not encrypted,
/// encrypted and not sent, in the kernel.
const EXCHANGE_BUFFERS: u64 = 4;

/// Of the budget, this part of the slack may be filled by what HTTP/2 streams send while they wait for memory.
const WAITING_PART: u64 = 32;

/// Decoders leave their windows apart: the smallest part of the budget that is kept for them, and the least of it.
const DECODERS_PART: u64 = 16;
const DECODERS_LEAST: u64 = 4 * MIB + WINDOW_TABLES_BYTES;

/// What a decoder with a window takes besides it: tables, and room for a block.
pub(crate) const WINDOW_TABLES_BYTES: u64 = 256 * KIB;

/// What an inflate stream takes, window, output and the scan of it.
pub(crate) const INFLATE_BYTES: u64 = 56 * KIB;

/// Where the budget comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Configured,
    ControlGroup { counts_sockets: bool },
    Default,
}

/// How much memory there is, and what things cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// All of it, in bytes.
    pub(crate) budget: u64,
    pub(crate) source: Source,
    /// Taken before anybody is served.
    pub(crate) shared: u64,
    buffer: u64,
    window: u64,
    /// What the kernel queues for an exchange's two sockets, where that counts.
    sockets: u64,
    bottles: u64,
    share: u64,
    exchanges: usize,
}

/// The budget does not hold what has to be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLittle {
    budget: u64,
    shared: u64,
    decoders: u64,
    bottles: u64,
    each: u64,
}

impl Memory {
    /// The memory of a worker that runs `config` and has `resident` bytes of its own already.
    ///
    /// # Errors
    /// The sum of what has to fit, where it does not.
    pub(crate) fn of(config: &Config, resident: u64) -> Result<Self, TooLittle> {
        let (budget, source) = match (config.memory_budget, limit::of_control_groups(Path::new("/"))) {
            (Some(bytes), _) => (bytes, Source::Configured),
            (None, Some(limit)) => {
                (limit.bytes, Source::ControlGroup { counts_sockets: limit.counts_sockets })
            }
            (None, None) => (BUDGET_DEFAULT, Source::Default),
        };
        Self::with(config, budget, source, resident)
    }

    /// The same with a budget that is given.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn with(
        config: &Config,
        budget: u64,
        source: Source,
        resident: u64,
    ) -> Result<Self, TooLittle> {
        let buffer = (budget / BUFFER_PART).clamp(BUFFER_LEAST, BUFFER_MOST);
        let memory = Self {
            budget,
            source,
            shared: resident + SUPERVISOR_BYTES + POOLS_BYTES + budget / SLACK_PART + budget / IDLE_PART,
            buffer: buffer.min(config.limits.write_queue_bytes as u64),
            window: (buffer * WINDOW_BUFFERS).min(u64::from(config.limits.h2_stream_window_bytes)),
            sockets: sockets_of(&config.limits, source, buffer),
            // The probe is one more.
            bottles: config.bottles.len() as u64 + 1,
            share: config.limits.memory_per_bottle,
            exchanges: config.limits.exchanges_per_bottle,
        };
        let terms = memory.terms();
        let each = terms.each();
        if terms.decoders + memory.bottles * each > terms.capacity {
            let (shared, bottles) = (memory.shared, memory.bottles);
            return Err(TooLittle { budget, shared, decoders: terms.decoders, bottles, each });
        }
        Ok(memory)
    }

    /// The limits in effect: those of `limits`, as far as the budget lets them be.
    pub(crate) fn lowered(&self, limits: &Limits) -> Limits {
        let buffer = usize::try_from(self.buffer).unwrap_or(usize::MAX);
        let mut lowered = limits.clone();
        lowered.tls_buffer_bytes = limits.tls_buffer_bytes.min(buffer);
        lowered.write_queue_bytes = limits.write_queue_bytes.min(buffer);
        // One less than a power of two: a read that fills hyper's buffer would double it.
        lowered.h1_read_bytes = limits.h1_read_bytes.min(buffer / 2 - 1);
        lowered.socket_unsent_bytes =
            limits.socket_unsent_bytes.min(u32::try_from(buffer).unwrap_or(u32::MAX));
        lowered.h2_send_buffer_bytes = limits.h2_send_buffer_bytes.min(buffer);
        let window = u32::try_from(self.window).unwrap_or(u32::MAX);
        lowered.h2_stream_window_bytes = window;
        lowered.h2_connection_window_bytes =
            limits.h2_connection_window_bytes.min(window.saturating_mul(limits.h2_streams));
        let idle = usize::try_from(self.budget / IDLE_PART / IDLE_BYTES).unwrap_or(usize::MAX);
        lowered.upstream_idle_connections = limits.upstream_idle_connections.min(idle);
        // Those that wait for the ones that fit are not free either.
        let fit = usize::try_from(self.terms().capacity / self.connection()).unwrap_or(usize::MAX);
        lowered.connections_per_bottle = limits.connections_per_bottle.min(2 * fit);
        lowered.connections = limits.connections.min(8 * fit);
        lowered.memory_per_bottle = limits.memory_per_bottle.min(self.terms().capacity);
        lowered
    }

    /// What the ledger keeps to.
    pub(crate) fn terms(&self) -> Terms {
        let capacity = self.budget.saturating_sub(self.shared);
        Terms {
            capacity,
            connection: self.connection(),
            exchange: self.exchange(),
            stream: self.stream(),
            decoders: (self.budget / DECODERS_PART).max(DECODERS_LEAST),
            bottle: self.share.min(capacity),
            exchanges: self.exchanges,
        }
    }

    /// A connection at rest.
    pub(crate) fn connection(&self) -> u64 {
        CONNECTION_BYTES
    }

    /// An exchange, whatever the origin speaks.
    pub(crate) fn exchange(&self) -> u64 {
        EXCHANGE_BYTES + EXCHANGE_BUFFERS * self.buffer + self.sockets
    }

    /// What an HTTP/2 stream may send before anybody reads it. Frames are kept one by one, but h2 ends a connection
    /// that has sent many tiny ones.
    pub(crate) fn stream(&self) -> u64 {
        self.window
    }

    /// How many streams may wait for memory while they can send.
    pub(crate) fn waiting_streams(&self) -> usize {
        usize::try_from((self.budget / WAITING_PART / self.window.max(1)).max(1)).unwrap_or(usize::MAX)
    }

    /// What fits, as a table for people.
    pub(crate) fn table(&self) -> String {
        let terms = self.terms();
        let most = terms.capacity - terms.left_for_small();
        let free = most.saturating_sub(terms.decoders);
        let source = match self.source {
            Source::Configured => "configured",
            Source::ControlGroup { counts_sockets: false } => "the control group's limit",
            Source::ControlGroup { counts_sockets: true } => {
                "the control group's limit, which counts sockets"
            }
            Source::Default => "the default: no control group has a limit",
        };
        let each = |cost: u64| free / cost.max(1);
        let windows = |bytes: u64| most / (bytes + WINDOW_TABLES_BYTES);
        let rows = [
            ("budget".to_owned(), mib(self.budget), source.to_owned()),
            (
                "shared".to_owned(),
                mib(self.shared),
                "rules, known values, pools, the supervisor, slack".to_owned(),
            ),
            ("kept for decoders".to_owned(), mib(terms.decoders), "more where others leave it".to_owned()),
            (
                "kept for bottles".to_owned(),
                mib(self.bottles * terms.each()),
                format!("a connection and an exchange for each of {} and the probe", self.bottles - 1),
            ),
            (
                "for small bottles".to_owned(),
                mib(terms.left_for_small()),
                "where there are several; a bottle that is alone has it, too".to_owned(),
            ),
            ("idle connections".to_owned(), each(terms.connection).to_string(), kib(terms.connection)),
            (
                "inspected exchanges".to_owned(),
                each(terms.connection + terms.exchange).to_string(),
                format!("{} and a connection each", kib(terms.exchange)),
            ),
            (
                "of them in gzip".to_owned(),
                ((free + terms.decoders) / (terms.connection + terms.exchange + INFLATE_BYTES)).to_string(),
                format!("{} more", kib(INFLATE_BYTES)),
            ),
            ("bodies in br or zstd".to_owned(), windows(MIB).to_string(), "with windows of 1MiB".to_owned()),
            (
                String::new(),
                windows(8 * MIB).to_string(),
                "with windows of 8MiB; further ones wait".to_owned(),
            ),
            ("buffers".to_owned(), kib(self.buffer), "write queue, TLS, HTTP/2 send buffer".to_owned()),
            ("HTTP/2 window".to_owned(), kib(self.window), "for each stream".to_owned()),
        ];
        rows.iter().fold(String::new(), |text, (what, amount, note)| {
            text + &format!("{what:20} {amount:>9}  {note}\n")
        })
    }
}

/// What the kernel queues for the two sockets of an exchange; nothing where nobody counts it.
fn sockets_of(limits: &Limits, source: Source, buffer: u64) -> u64 {
    let each = u64::from(limits.socket_unsent_bytes).min(buffer) + limits.socket_receive_bytes as u64;
    if matches!(source, Source::ControlGroup { counts_sockets: true }) { 2 * each } else { 0 }
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, shared, decoders, bottles, each } = *self;
        let sum = shared + decoders + bottles * each;
        write!(
            f,
            "{} is too little: shared parts take {}, decoders {}, {bottles} bottles with the probe {} each, {} in all",
            mib(budget),
            mib(shared),
            mib(decoders),
            kib(each),
            mib(sum)
        )
    }
}

impl std::error::Error for TooLittle {}

fn mib(bytes: u64) -> String {
    format!("{}.{}MiB", bytes / MIB, bytes % MIB * 10 / MIB)
}

fn kib(bytes: u64) -> String {
    format!("{}KiB", bytes / KIB)
}

/// Resident memory of this process that is no page of a file, in bytes (proc(5), `statm`); 0 where the kernel does not
/// tell. It is asked for many times a second, so the file stays open.
pub(crate) fn resident_own() -> u64 {
    static STATM: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/statm").ok());
    let mut text = [0; STATM_BYTES];
    let read = STATM.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    own_pages(&text[..read])
}

/// Bytes of `statm`: seven numbers, of 20 digits at most.
const STATM_BYTES: usize = 7 * 21;

/// The same of another process, by its number; 0 where there is none.
pub(crate) fn resident_of(process: u32) -> u64 {
    own_pages(&std::fs::read(format!("/proc/{process}/statm")).unwrap_or_default())
}

/// Bytes of a process's pages that are none of a file, by its `statm`.
fn own_pages(statm: &[u8]) -> u64 {
    let mut pages = statm.split(u8::is_ascii_whitespace).skip(1);
    let mut next = || pages.next().and_then(|field| str::from_utf8(field).ok()?.parse::<u64>().ok());
    let own = next().zip(next()).map_or(0, |(resident, shared)| resident.saturating_sub(shared));
    own * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use decant_config::{Overrides, parse};

    use super::*;

    #[test]
    fn resident_memory_is_told() {
        assert_eq!(own_pages(b"900 30 10 5 0 70 0\n"), 20 * rustix::param::page_size() as u64);
        assert_eq!(own_pages(b""), 0);
        let (own, same) = (resident_own(), resident_of(std::process::id()));
        assert!(own > 0 && own.abs_diff(same) < 64 * MIB, "{own} and {same}");
    }

    fn config(yaml: &str) -> Config {
        parse("a.yaml", &format!("version: 1\n{yaml}"), &Overrides::default()).expect("it is right")
    }

    #[test]
    fn a_budget_that_cannot_work_is_refused_with_the_sum() {
        let two = "bottles: [{name: a, sources: [10.0.0.0/29], policy: default}, {name: b, sources: [10.1.0.0/29], policy: default}]";
        let config = config(two);
        let error = Memory::with(&config, 18 * MIB, Source::Configured, 11 * MIB).expect_err("too little");
        assert_eq!(
            (error.bottles, error.shared),
            (3, 14 * MIB + 18 * MIB / SLACK_PART + 18 * MIB / IDLE_PART)
        );
        assert!(error.to_string().starts_with("18.0MiB is too little: shared parts take 15.6MiB"), "{error}");
        assert!(Memory::with(&config, 24 * MIB, Source::Configured, 11 * MIB).is_ok());
    }

    #[test]
    fn a_small_budget_lowers_limits_and_a_large_one_leaves_them() {
        let config = config("limits: {h2_stream_window_bytes: 96KiB}");
        let cases = [
            (64 * MIB, 16 * 1024, 64 * 1024),
            (128 * MIB, 32 * 1024, 96 * 1024),
            (4096 * MIB, 64 * 1024, 96 * 1024),
        ];
        for (budget, buffer, window) in cases {
            let memory = Memory::with(&config, budget, Source::Configured, 10 * MIB).expect("it is enough");
            let limits = memory.lowered(&config.limits);
            assert_eq!(
                (limits.tls_buffer_bytes, limits.h2_stream_window_bytes),
                (buffer, window),
                "{budget}"
            );
            let fit = usize::try_from(memory.terms().capacity / memory.connection()).expect("a count");
            assert_eq!(limits.connections_per_bottle, config.limits.connections_per_bottle.min(2 * fit));
            assert_eq!(limits.header_bytes, config.limits.header_bytes, "a head may be as long as ever");
        }
    }

    #[test]
    fn the_table_says_what_fits() {
        let memory =
            Memory::with(&config(""), 64 * MIB, Source::ControlGroup { counts_sockets: true }, 10 * MIB)
                .expect("it is enough");
        let table = memory.table();
        let terms = memory.terms();
        let free = terms.capacity - terms.decoders - terms.left_for_small();
        let exchanges = free / (terms.connection + terms.exchange);
        let line = table.lines().find(|line| line.starts_with("inspected exchanges")).expect("a line");
        assert!(line.contains(&format!(" {exchanges} ")), "{table}");
        assert!(table.starts_with("budget"), "{table}");
    }
}
