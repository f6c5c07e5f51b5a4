//! Sizes: the one place of the gateway that names a byte limit.
//!
//! Owns the translation of the limits in effect into what each library and each module is told, and the sum of it all:
//! [`memory`] says how much there is and what things cost, [`ledger`] who holds it, [`admission`] who waits for it.
//! Invariant: no other file of this crate reads a size from the configuration or falls back on a library's default.

mod admission;
mod ledger;
mod limit;
mod memory;
mod sockets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use decant_config::{self as config, Config, Limits};
use decant_detectors::{BuildLimits, ViewLimits};

pub(crate) use self::admission::{Admission, NoMemory, Reservation};
pub(crate) use self::ledger::Kind;
#[cfg(test)]
pub(crate) use self::ledger::Terms;
pub(crate) use self::memory::{
    INFLATE_BYTES, Memory, Source, WINDOW_TABLES_BYTES, resident_of, resident_own,
};
pub(crate) use self::sockets::{Headroom, Room, Sizes, Sockets, Windows};
use crate::audit::AuditLimits;
use crate::http::cut_off;
use crate::http::holders::Pace;
use crate::http::upload::DrainLimits;
use crate::inspect::InspectLimits;
use crate::tls::{AuthoritySettings, HelloLimits, LeafSettings};
use crate::upstream::{
    AddressSettings, DialSettings, Http1Settings, Http2Settings, NameServers, PoolSettings, ResolverSettings,
    Roots, SpliceSettings, UpstreamSettings, UpstreamTlsSettings,
};

/// What an HTTP/1.1 server connection is told.
#[derive(Clone, Debug)]
pub(crate) struct H1 {
    pub(crate) header_bytes: usize,
    pub(crate) header_count: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) header_read_timeout: Duration,
}

/// What an HTTP/2 server connection is told.
#[derive(Clone, Debug)]
pub(crate) struct H2 {
    pub(crate) stream_window_bytes: u32,
    pub(crate) connection_window_bytes: u32,
    pub(crate) streams: u32,
    pub(crate) frame_bytes: u32,
    pub(crate) header_list_bytes: u32,
    pub(crate) pending_resets: usize,
    pub(crate) local_resets: usize,
    pub(crate) keep_alive: Duration,
}

/// What a TLS session with a client is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tls {
    pub(crate) handshake_timeout: Duration,
}

/// Every size, count and time, as its user wants it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) tls: Tls,
    pub(crate) hello: HelloLimits,
    pub(crate) authority: AuthoritySettings,
    pub(crate) ca_overlap: Duration,
    pub(crate) leaves: LeafSettings,
    pub(crate) splice: SpliceSettings,
    pub(crate) h1: H1,
    pub(crate) h2: H2,
    pub(crate) upload: DrainLimits,
    pub(crate) inspect: InspectLimits,
    pub(crate) coding_layers: usize,
    pub(crate) exchange_idle_timeout: Duration,
    pub(crate) half_closed_timeout: Duration,
    pub(crate) admin_connections: usize,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) connections_per_bottle: usize,
    pub(crate) requests_per_second: u32,
    pub(crate) refusals_per_second: u32,
    pub(crate) new_names_per_second: u32,
    pub(crate) blocks_remembered: usize,
    /// When bottles that hit known values are cut off.
    pub(crate) cut_off: cut_off::Terms,
    pub(crate) audit: AuditLimits,
    pub(crate) shutdown_grace: Duration,
    pub(crate) reload_grace: Duration,
    pub(crate) reload_poll: Duration,
}

impl Budget {
    /// Translates `limits`.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            tls: Tls { handshake_timeout: limits.tls_handshake_timeout },
            hello: HelloLimits {
                bytes: limits.client_hello_bytes,
                first_byte: limits.sniff_timeout,
                complete: limits.tls_handshake_timeout,
            },
            authority: AuthoritySettings { validity: limits.ca_validity, backdate: limits.leaf_backdate },
            ca_overlap: limits.ca_overlap,
            leaves: LeafSettings {
                validity: limits.leaf_validity,
                backdate: limits.leaf_backdate,
                entries: limits.leaf_cache_entries,
                entries_per_bottle: limits.leaf_cache_entries_per_bottle,
            },
            splice: SpliceSettings {
                buffer_bytes: limits.splice_buffer_bytes,
                idle_timeout: limits.exchange_idle_timeout,
                half_closed_timeout: limits.half_closed_timeout,
            },
            h1: h1(limits),
            h2: h2(limits),
            upload: DrainLimits { bytes: limits.refusal_drain_bytes, time: limits.refusal_drain_timeout },
            inspect: inspect(limits),
            coding_layers: limits.coding_layers,
            exchange_idle_timeout: limits.exchange_idle_timeout,
            half_closed_timeout: limits.half_closed_timeout,
            admin_connections: limits.admin_connections,
            pace: Pace { bytes: limits.slow_peer_bytes, time: limits.slow_peer_time },
            connections: limits.connections,
            connections_per_bottle: limits.connections_per_bottle,
            requests_per_second: limits.requests_per_second,
            refusals_per_second: limits.refusals_per_second,
            new_names_per_second: limits.new_names_per_second,
            blocks_remembered: limits.blocks_remembered,
            cut_off: cut_off::Terms {
                hits: limits.secret_hits,
                window: limits.secret_hits_window,
                cut_off: limits.secret_cut_off,
            },
            audit: AuditLimits {
                file_bytes: limits.findings_file_bytes,
                files: limits.findings_files,
                per_minute: limits.findings_per_minute,
            },
            shutdown_grace: limits.shutdown_grace,
            reload_grace: limits.reload_grace,
            reload_poll: limits.reload_poll,
        }
    }
}

fn h1(limits: &Limits) -> H1 {
    H1 {
        header_bytes: limits.header_bytes,
        header_count: limits.header_count,
        buffer_bytes: limits.h1_buffer_bytes,
        header_read_timeout: limits.header_read_timeout,
    }
}

fn h2(limits: &Limits) -> H2 {
    H2 {
        stream_window_bytes: limits.h2_stream_window_bytes,
        connection_window_bytes: limits.h2_connection_window_bytes,
        streams: limits.h2_streams,
        frame_bytes: limits.h2_frame_bytes,
        header_list_bytes: limits.h2_header_list_bytes,
        pending_resets: limits.h2_pending_resets,
        local_resets: limits.h2_remembered_resets,
        keep_alive: limits.keep_alive_timeout,
    }
}

fn inspect(limits: &Limits) -> InspectLimits {
    InspectLimits {
        decode_ratio: limits.decode_ratio,
        decode_ratio_floor_bytes: limits.decode_ratio_floor_bytes,
        decode_output_per_poll_bytes: limits.decode_output_per_poll_bytes,
        zstd_window_bytes: limits.zstd_window_bytes,
        brotli_window_bytes: limits.brotli_window_bytes,
        hidden_room_bytes: limits.hidden_room_bytes,
        redactions: limits.redactions,
        trailer_bytes: limits.trailer_bytes,
        hold_bytes: limits.hold_bytes,
        prime_bytes: limits.prime_bytes,
        prime_timeout: limits.prime_timeout,
        hold_deadline: limits.hold_deadline,
        views: ViewLimits {
            depth: limits.view_depth,
            streams: limits.view_streams,
            window_bytes: limits.view_window_bytes,
            ratio: limits.decode_ratio,
            ..ViewLimits::default()
        },
    }
}

/// What connections are told, in a gateway with this ledger: `limits` as the budget lowers them, and as they stand.
pub(crate) fn sockets(
    limits: &Limits,
    unlowered: &Limits,
    admission: &Arc<Admission>,
    memory: &Memory,
) -> Sockets {
    Sockets {
        budget: memory.budget,
        tight: Sizes::of(limits),
        ample: Sizes::of(unlowered),
        narrow: Windows::of(limits),
        wide: Windows::wide(unlowered),
        receive_bytes: limits.socket_receive_bytes,
        admission: admission.clone(),
    }
}

/// What the scan engine is told when rules are compiled.
pub(crate) fn detectors(limits: &Limits) -> BuildLimits {
    BuildLimits {
        automaton_bytes: limits.detector_automaton_bytes,
        automata_bytes: limits.detectors_bytes,
        known_values: limits.secrets,
        known_bytes: limits.secret_bytes,
        ..BuildLimits::default()
    }
}

/// How upstreams are reached, by a gateway that listens on `listeners`.
pub(crate) fn upstream(config: &Config, listeners: &[SocketAddr], sockets: Sockets) -> UpstreamSettings {
    let limits = &config.limits;
    UpstreamSettings {
        resolver: resolver(config),
        addresses: AddressSettings {
            allow: config.upstream.allow_addresses.clone(),
            refuse: config.upstream.refuse_addresses.clone(),
            listeners: listeners.to_vec(),
        },
        dial: DialSettings {
            timeout: limits.connect_timeout,
            attempt_timeout: limits.connect_attempt_timeout,
            attempt_delay: limits.connect_attempt_delay,
            addresses: limits.connect_addresses,
        },
        tls: upstream_tls(config),
        http1: Http1Settings {
            buffer_bytes: limits.h1_buffer_bytes,
            header_bytes: limits.header_bytes,
            headers: limits.header_count,
        },
        http2: upstream_http2(limits),
        pool: PoolSettings {
            idle_timeout: limits.upstream_idle_timeout,
            idle_connections: limits.upstream_idle_connections,
            connections_per_target: limits.upstream_connections_per_target,
            wait_timeout: limits.connect_timeout,
        },
        sockets,
    }
}

fn resolver(config: &Config) -> ResolverSettings {
    let limits = &config.limits;
    let fixed =
        config.upstream.resolve.iter().map(|(name, addresses)| (name.as_str().into(), addresses.clone()));
    ResolverSettings {
        name_servers: match &config.upstream.resolvers {
            config::Resolvers::System => NameServers::System,
            config::Resolvers::Addresses(addresses) => NameServers::Addresses(addresses.clone()),
            config::Resolvers::File(path) => NameServers::File(path.clone()),
        },
        fixed: fixed.collect(),
        timeout: limits.resolve_timeout,
        cache_entries: limits.resolver_cache_entries,
        cache_ttl: limits.resolver_cache_ttl,
    }
}

fn upstream_tls(config: &Config) -> UpstreamTlsSettings {
    let limits = &config.limits;
    let roots = config.upstream.roots.iter().map(|roots| match roots {
        config::Roots::Bundled => Roots::Bundled,
        config::Roots::System => Roots::System,
        config::Roots::File(path) => Roots::File(path.clone()),
    });
    UpstreamTlsSettings {
        roots: roots.collect(),
        handshake_timeout: limits.tls_handshake_timeout,
        sessions_per_bottle: limits.tls_sessions_per_bottle,
        bottles: config.metrics.bottles,
    }
}

fn upstream_http2(limits: &Limits) -> Http2Settings {
    Http2Settings {
        streams: limits.h2_streams as usize,
        frame_bytes: limits.h2_frame_bytes,
        header_list_bytes: limits.h2_header_list_bytes,
        remembered_resets: limits.h2_remembered_resets,
        ping_interval: limits.upstream_idle_timeout,
        ping_timeout: limits.connect_timeout,
    }
}
