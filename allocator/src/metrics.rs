//! The metrics, by enumerated names; every label's values are known in advance.
//!
//! Gauges are set from the book when they are asked for, so that they cannot drift from it.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::engine::refusal::PortTrouble;
use crate::error::{Pool, PoolCounts};
use crate::lease::State;
use crate::service::pools::Pools;
use crate::watch::Standing;

/// Seconds.
const ACQUIRE_BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// What a reconciliation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// Nothing was left to do.
    Done,
    /// A step failed; it is tried again.
    Failed,
    /// The engine or the host could not be looked at.
    Blind,
}

impl Reconciled {
    pub(crate) const ALL: [Self; 3] = [Self::Done, Self::Failed, Self::Blind];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Blind => "blind",
        }
    }
}

/// All of them.
pub(crate) struct Metrics {
    registry: Registry,
    leases: IntGaugeVec,
    ports: IntGaugeVec,
    subnets: IntGaugeVec,
    exhausted: IntCounterVec,
    conflicts: IntCounterVec,
    reconciles: IntCounterVec,
    acquire: Histogram,
    watchers: IntGauge,
    behind: IntGauge,
    warnings: IntGauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let gauges = |name: &str, help: &str, label: &str| {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &[label]).expect("the name is valid");
            registry.register(Box::new(gauges.clone())).expect("the name is its own");
            gauges
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help).expect("the name is valid");
            registry.register(Box::new(gauge.clone())).expect("the name is its own");
            gauge
        };
        let counters = |name: &str, help: &str, label: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &[label]).expect("the name is valid");
            registry.register(Box::new(counters.clone())).expect("the name is its own");
            counters
        };
        let options = HistogramOpts::new(
            "decant_allocator_acquire_seconds",
            "Time from a request to its granted lease.",
        );
        let acquire =
            Histogram::with_opts(options.buckets(ACQUIRE_BUCKETS.to_vec())).expect("the buckets ascend");
        registry.register(Box::new(acquire.clone())).expect("the name is its own");
        let build =
            gauges("decant_allocator_build_info", "Always 1; the version stands in the label.", "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let metrics = Self {
            leases: gauges("decant_allocator_leases", "Leases that are not ended, by state.", "state"),
            ports: gauges("decant_allocator_ports", "Numbers of the port range, by state (TCP).", "state"),
            subnets: gauges("decant_allocator_subnets", "Subnets of the pool, by state.", "state"),
            exhausted: counters(
                "decant_allocator_exhausted_total",
                "Requests refused because a pool was empty.",
                "pool",
            ),
            conflicts: counters(
                "decant_allocator_conflicts_total",
                "Things leased that somebody else turned out to hold.",
                "kind",
            ),
            reconciles: counters(
                "decant_allocator_reconciles_total",
                "Reconciliations, by result.",
                "result",
            ),
            acquire,
            watchers: gauge("decant_allocator_watchers", "Open watch streams of gateways."),
            behind: gauge(
                "decant_allocator_watch_unacknowledged",
                "Changes that no gateway has acknowledged.",
            ),
            warnings: gauge("decant_allocator_warnings", "Warnings that the status shows."),
            registry,
        };
        metrics.preset();
        metrics
    }

    /// A counter that exists from the start can be watched for its first increase.
    fn preset(&self) {
        for pool in [Pool::Ports, Pool::Subnets, Pool::Leases] {
            self.exhausted.with_label_values(&[pool.as_str()]);
        }
        for kind in PortTrouble::ALL.map(PortTrouble::as_str).into_iter().chain(["subnet", "lease"]) {
            self.conflicts.with_label_values(&[kind]);
        }
        for result in Reconciled::ALL {
            self.reconciles.with_label_values(&[result.as_str()]);
        }
    }

    pub(crate) fn exhausted(&self, pool: Pool) {
        self.exhausted.with_label_values(&[pool.as_str()]).inc();
    }

    /// `kind`: a [`PortTrouble`]'s word, `subnet` (the engine refused one) or `lease` (something overlaps a live lease).
    pub(crate) fn conflict(&self, kind: &str) {
        self.conflicts.with_label_values(&[kind]).inc();
    }

    pub(crate) fn acquired(&self, took: Duration) {
        self.acquire.observe(took.as_secs_f64());
    }

    pub(crate) fn reconciled(&self, result: Reconciled) {
        self.reconciles.with_label_values(&[result.as_str()]).inc();
    }

    /// Sets every gauge.
    pub(crate) fn set(&self, leases: &[(State, usize)], pools: &Pools, standing: Standing, warnings: usize) {
        for (state, count) in leases {
            self.leases.with_label_values(&[state.as_str()]).set(int(*count));
        }
        set_pool(&self.ports, &pools.tcp);
        set_pool(&self.subnets, &pools.subnets);
        self.watchers.set(int(standing.watchers));
        self.behind
            .set(i64::try_from(standing.generation.saturating_sub(standing.acked)).unwrap_or(i64::MAX));
        self.warnings.set(int(warnings));
    }

    /// In Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

fn set_pool(gauges: &IntGaugeVec, counts: &PoolCounts) {
    for (state, count) in counts.by_state() {
        gauges.with_label_values(&[state]).set(int(count));
    }
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
