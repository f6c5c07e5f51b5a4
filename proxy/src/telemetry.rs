//! Metrics: every series the gateway exports, by name.
//!
//! Owns the registry. Invariant: label values are bounded. Bottles beyond `metrics.bottles`, and those that have ended, fold
//! into `other`, detectors and reasons come from closed sets, and nothing is labelled by host, path or value. Series are
//! touched at message ends or batched per poll, never per byte.

mod bottles;
mod log;

use std::sync::Arc;

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use self::bottles::{BottleCounters, ByBottle, Collecting};
pub(crate) use self::log::{init_log, write_line};
use crate::http::refusal::Reason;
use crate::identity::{Bottle, BottleKey};

/// Buckets of request and upstream durations, in seconds: from a cached answer to a long model reply.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

/// Findings that could not be written, each of which blocked.
pub(crate) const FINDINGS_LOG: &str = "findings";

/// Findings beyond a bottle's quota, each judged like any other.
pub(crate) const FINDINGS_QUOTA: &str = "findings_quota";

/// Lines that could not be written to stderr.
const STDERR_LOG: &str = "stderr";

/// A series by its name, what is said of it, and its labels.
struct Series {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
}

/// The counters that name a bottle, by index.
const BY_BOTTLE: &[ByBottle] = &[
    ByBottle {
        name: "decant_exchanges_total",
        help: "Exchanges, by verdict.",
        labels: &["policy", "verdict"],
    },
    ByBottle { name: "decant_blocks_total", help: "Refusals, by reason.", labels: &["reason"] },
    ByBottle {
        name: "decant_secret_cut_offs_total",
        help: "Times that a bottle was cut off because it hit known values again and again.",
        labels: &[],
    },
];
const EXCHANGES: usize = 0;
const BLOCKS: usize = 1;
const CUT_OFFS: usize = 2;

const EXCHANGES_OPEN: Series =
    Series { name: "decant_exchanges_open", help: "Exchanges that have begun and not ended.", labels: &[] };
const EXCHANGE_SECONDS: Series =
    Series { name: "decant_exchange_seconds", help: "Request head to last byte of the answer.", labels: &[] };
const UPSTREAM_SECONDS: Series = Series {
    name: "decant_upstream_seconds",
    help: "Request sent upstream to its answer's head.",
    labels: &[],
};
const BODY_BYTES: Series = Series {
    name: "decant_body_bytes_total",
    help: "Body bytes, by what happened to them.",
    labels: &["direction", "state"],
};
const HELD_BYTES: Series =
    Series { name: "decant_held_bytes", help: "Body bytes held back now.", labels: &["direction"] };
const FINDINGS: Series = Series {
    name: "decant_findings_total",
    help: "Findings, by action.",
    labels: &["detector", "direction", "action"],
};
const CONNECTIONS: Series =
    Series { name: "decant_connections", help: "Open connections.", labels: &["side"] };
const UPSTREAM_ERRORS: Series =
    Series { name: "decant_upstream_errors_total", help: "Upstream failures.", labels: &["cause"] };
const SHED: Series = Series {
    name: "decant_memory_shed_total",
    help: "Turned away because a limit was reached.",
    labels: &["limit"],
};
const BUDGET: Series =
    Series { name: "decant_memory_budget_bytes", help: "Memory that the worker may use.", labels: &[] };
const RESERVED: Series = Series {
    name: "decant_memory_reserved_bytes",
    help: "Memory that is reserved now, by what for.",
    labels: &["kind"],
};
const ADMISSION_WAIT: Series = Series {
    name: "decant_admission_wait_seconds",
    help: "Time that exchanges waited for memory.",
    labels: &[],
};
const LEAVES: Series = Series {
    name: "decant_leaf_certificates_total",
    help: "Leaf certificates asked for.",
    labels: &["result"],
};
const LOG_DROPPED: Series =
    Series { name: "decant_log_dropped_total", help: "Lines that could not be written.", labels: &["log"] };
const RELOADS: Series =
    Series { name: "decant_config_reloads_total", help: "Configuration reloads.", labels: &["result"] };
const CONFIG_INFO: Series =
    Series { name: "decant_config_info", help: "The configuration in force.", labels: &["sha256"] };
const WATCH: Series = Series {
    name: "decant_allocator_watch_connected",
    help: "Whether the allocator's leases are followed.",
    labels: &[],
};
const RESIDENT: Series =
    Series { name: "decant_memory_resident_bytes", help: "Resident memory of the worker.", labels: &[] };
const CA_NOT_AFTER: Series =
    Series { name: "decant_ca_not_after_seconds", help: "When the CA ends, in Unix time.", labels: &[] };
const EXCEPTIONS: Series =
    Series { name: "decant_exceptions", help: "Exceptions, by whether they still hold.", labels: &["state"] };
const BUILD_INFO: Series =
    Series { name: "decant_build_info", help: "Version and rule pack.", labels: &["version", "pack"] };

/// All metrics of one worker.
pub(crate) struct Metrics {
    registry: Registry,
    by_bottle: Arc<BottleCounters>,
    /// Exchanges that have begun and not ended.
    pub(crate) exchanges_open: IntGauge,
    /// From the request's head to the last byte of the answer.
    pub(crate) exchange_seconds: Histogram,
    /// From the request's head sent upstream to the answer's head.
    pub(crate) upstream_seconds: Histogram,
    /// Body bytes by direction and state.
    pub(crate) body_bytes: IntCounterVec,
    /// Bytes held back now, by direction.
    pub(crate) held_bytes: IntGaugeVec,
    /// Findings by detector, direction and action.
    pub(crate) findings: IntCounterVec,
    /// Open connections by side.
    pub(crate) connections: IntGaugeVec,
    /// Upstream failures by cause.
    pub(crate) upstream_errors: IntCounterVec,
    /// Connections and requests turned away by limit.
    pub(crate) shed: IntCounterVec,
    /// How long exchanges waited for memory.
    pub(crate) admission_wait_seconds: Histogram,
    budget: IntGauge,
    reserved: IntGaugeVec,
    /// Leaf certificates by result.
    pub(crate) leaves: IntCounterVec,
    /// Log lines that could not be written.
    pub(crate) log_dropped: IntCounterVec,
    /// Configuration reloads by result.
    pub(crate) reloads: IntCounterVec,
    resident: IntGauge,
    watch: IntGauge,
    config_info: IntGaugeVec,
    ca_not_after: IntGauge,
    exceptions: IntGaugeVec,
}

impl Metrics {
    /// Registers every series; those with a closed label set start at zero.
    pub(crate) fn new(bottles_max: usize, pack: &str) -> Result<Self, prometheus::Error> {
        let r = Registry::new();
        let by_bottle = Arc::new(BottleCounters::new(BY_BOTTLE, bottles_max)?);
        r.register(Box::new(Collecting(by_bottle.clone())))?;
        let metrics = Self {
            exceptions: gauges(&r, &EXCEPTIONS)?,
            ca_not_after: gauge(&r, &CA_NOT_AFTER)?,
            resident: gauge(&r, &RESIDENT)?,
            exchanges_open: gauge(&r, &EXCHANGES_OPEN)?,
            exchange_seconds: histogram(&r, &EXCHANGE_SECONDS)?,
            upstream_seconds: histogram(&r, &UPSTREAM_SECONDS)?,
            body_bytes: counters(&r, &BODY_BYTES)?,
            held_bytes: gauges(&r, &HELD_BYTES)?,
            findings: counters(&r, &FINDINGS)?,
            connections: gauges(&r, &CONNECTIONS)?,
            upstream_errors: counters(&r, &UPSTREAM_ERRORS)?,
            shed: counters(&r, &SHED)?,
            admission_wait_seconds: histogram(&r, &ADMISSION_WAIT)?,
            budget: gauge(&r, &BUDGET)?,
            reserved: gauges(&r, &RESERVED)?,
            leaves: counters(&r, &LEAVES)?,
            log_dropped: counters(&r, &LOG_DROPPED)?,
            reloads: counters(&r, &RELOADS)?,
            config_info: gauges(&r, &CONFIG_INFO)?,
            watch: gauge(&r, &WATCH)?,
            by_bottle,
            registry: r,
        };
        metrics.start_at_zero();
        let build = gauges(&metrics.registry, &BUILD_INFO)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), pack]).set(1);
        Ok(metrics)
    }

    fn start_at_zero(&self) {
        for direction in ["request", "response"] {
            for state in ["received", "scanned", "released", "skipped"] {
                self.body_bytes.with_label_values(&[direction, state]).inc_by(0);
            }
            self.held_bytes.with_label_values(&[direction]).set(0);
        }
        for side in ["downstream", "upstream"] {
            self.connections.with_label_values(&[side]).set(0);
        }
        for result in ["minted", "cached"] {
            self.leaves.with_label_values(&[result]).inc_by(0);
        }
        // An increase is seen only of what was there before.
        for result in ["ok", "refused"] {
            self.reloads.with_label_values(&[result]).inc_by(0);
        }
        for log in [FINDINGS_LOG, FINDINGS_QUOTA, STDERR_LOG] {
            self.log_dropped.with_label_values(&[log]).inc_by(0);
        }
        for action in ["live", "expired"] {
            self.exceptions.with_label_values(&[action]).set(0);
        }
    }

    /// Which configuration is in force.
    pub(crate) fn set_config(&self, sha256: &str) {
        self.config_info.reset();
        self.config_info.with_label_values(&[sha256]).set(1);
    }

    /// How many connections to upstreams are open.
    pub(crate) fn set_upstream_connections(&self, open: usize) {
        self.connections.with_label_values(&["upstream"]).set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// How many leaf certificates were signed, and how many came out of the cache.
    pub(crate) fn set_leaves(&self, (minted, cached): (u64, u64)) {
        for (result, count) in [("minted", minted), ("cached", cached)] {
            let counter = self.leaves.with_label_values(&[result]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// How many exceptions hold, and how many no longer do.
    pub(crate) fn set_exceptions(&self, (live, expired): (usize, usize)) {
        for (state, count) in [("live", live), ("expired", expired)] {
            self.exceptions.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Whether the allocator's leases are followed.
    pub(crate) fn watch_connected(&self, connected: bool) {
        self.watch.set(i64::from(connected));
    }

    /// How much memory there is, and what is reserved of it.
    pub(crate) fn set_memory<'a>(&self, budget: u64, reserved: impl IntoIterator<Item = (&'a str, u64)>) {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.budget.set(signed(budget));
        for (kind, bytes) in reserved {
            self.reserved.with_label_values(&[kind]).set(signed(bytes));
        }
    }

    /// When the signing CA ends, in seconds of Unix time.
    pub(crate) fn set_ca_not_after(&self, unix: i64) {
        self.ca_not_after.set(unix);
    }

    /// Counts one exchange of `bottle`.
    pub(crate) fn exchanged(&self, bottle: &Bottle, policy: &str, verdict: &str) {
        self.by_bottle.count(EXCHANGES, Some(bottle), &[policy, verdict]);
    }

    /// Counts one refusal; `bottle` is none where the client is no bottle's.
    pub(crate) fn blocked(&self, bottle: Option<&Bottle>, reason: Reason) {
        self.by_bottle.count(BLOCKS, bottle, &[reason.as_str()]);
    }

    /// Counts that `bottle` was cut off.
    pub(crate) fn cut_off(&self, bottle: &Bottle) {
        self.by_bottle.count(CUT_OFFS, Some(bottle), &[]);
    }

    /// Folds the series of a bottle that has ended into those of `other`.
    pub(crate) fn fold(&self, bottle: &BottleKey) {
        self.by_bottle.fold(bottle);
    }

    /// The exposition text (Prometheus text format 0.0.4).
    pub(crate) fn render(&self) -> Vec<u8> {
        self.resident.set(resident_bytes().unwrap_or(0));
        let lost = self.log_dropped.with_label_values(&[STDERR_LOG]);
        lost.inc_by(log::lost().saturating_sub(lost.get()));
        let mut text = Vec::new();
        // Encoding into a Vec fails only for a family without metrics, and those are left out below.
        let families: Vec<_> =
            self.registry.gather().into_iter().filter(|family| !family.get_metric().is_empty()).collect();
        if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
            tracing::error!(%error, "metrics could not be rendered");
        }
        text
    }
}

/// Resident memory of this process in bytes, where the kernel tells (proc(5), `statm`).
pub(crate) fn resident_bytes() -> Option<i64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * i64::try_from(rustix::param::page_size()).ok()?)
}

fn counters(r: &Registry, series: &Series) -> Result<IntCounterVec, prometheus::Error> {
    let vec = IntCounterVec::new(Opts::new(series.name, series.help), series.labels)?;
    r.register(Box::new(vec.clone()))?;
    Ok(vec)
}

fn gauges(r: &Registry, series: &Series) -> Result<IntGaugeVec, prometheus::Error> {
    let vec = IntGaugeVec::new(Opts::new(series.name, series.help), series.labels)?;
    r.register(Box::new(vec.clone()))?;
    Ok(vec)
}

fn gauge(r: &Registry, series: &Series) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(series.name, series.help)?;
    r.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn histogram(r: &Registry, series: &Series) -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts::new(series.name, series.help).buckets(SECONDS.to_vec());
    let histogram = Histogram::with_opts(options)?;
    r.register(Box::new(histogram.clone()))?;
    Ok(histogram)
}

/// A gauge held up by one for as long as this lives.
pub(crate) struct Up(IntGauge);

impl Up {
    /// Raises `gauge` by one until dropped.
    pub(crate) fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Body counters of one direction, resolved once so that the byte path touches plain atomics.
#[derive(Clone)]
pub(crate) struct BodyCounters {
    /// Wire bytes read.
    pub(crate) received: IntCounter,
    /// Wire bytes that were scanned, in every layer.
    pub(crate) scanned: IntCounter,
    /// Wire bytes let through.
    pub(crate) released: IntCounter,
    /// Wire bytes let through without a look, by policy.
    pub(crate) skipped: IntCounter,
}

impl BodyCounters {
    /// The counters of `direction` (`request` or `response`).
    pub(crate) fn new(metrics: &Metrics, direction: &str) -> Self {
        let state = |state| metrics.body_bytes.with_label_values(&[direction, state]);
        Self {
            received: state("received"),
            scanned: state("scanned"),
            released: state("released"),
            skipped: state("skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposition_names_what_was_counted() {
        let metrics = Metrics::new(2, "1").unwrap();
        metrics.blocked(None, Reason::Policy);
        let text = String::from_utf8(metrics.render()).unwrap();
        assert!(text.contains("decant_blocks_total{bottle=\"unknown\",reason=\"policy\"} 1"), "{text}");
        assert!(text.contains("# TYPE decant_blocks_total counter"), "{text}");
        assert!(text.contains("decant_memory_resident_bytes "));
    }
}
