//! Every limit of the gateway by name: what it bounds, its unit, its default and what may be set.
//!
//! Invariant: one table defines the fields, their defaults, their ranges, the keys that configuration accepts and the
//! reference that documents them, so none can be without the others. No library default stands in for any of these.

mod read;
pub(crate) use read::limits;

use std::time::Duration;

use crate::value::size::{GIB, KIB, MIB};

use read::{LimitKind, bytes, count, time};

const MS: u64 = 1;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident($type:ty) = $default:expr, in $least:expr, to $most:expr;)*) => {
        /// The limits in effect. Sizes are bytes; times are [`Duration`]s.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[doc = $doc])+ pub $name: $type,)* }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: <$kind as LimitKind<$type>>::from_raw($default),)* }
            }
        }

        /// One row a limit.
        pub(crate) static ROWS: &[read::Row] = &[$(read::Row {
            key: stringify!($name),
            words: &[$($doc),+],
            kind: <$kind as LimitKind<$type>>::WORDS,
            show: <$kind as LimitKind<$type>>::show,
            parse: <$kind as LimitKind<$type>>::parse,
            default: $default,
            least: $least,
            most: $most,
            set: |limits, raw| limits.$name = <$kind as LimitKind<$type>>::from_raw(raw),
            get: |limits| <$kind as LimitKind<$type>>::to_raw(limits.$name),
        },)*];
    };
}

limits! {
    // Messages.
    /// Bytes of a message's head on HTTP/1.1, request line and all fields together.
    header_bytes: bytes(usize) = 64 * KIB, in 8 * KIB, to MIB;
    /// Fields in a message's head, and in its trailers.
    header_count: count(usize) = 256, in 16, to 4096;
    /// Bytes that an HTTP/1.1 connection reads ahead; at least a whole head.
    h1_buffer_bytes: bytes(usize) = 64 * KIB, in 8 * KIB, to MIB;
    /// Bytes of trailers.
    trailer_bytes: bytes(usize) = 16 * KIB, in KIB, to MIB;
    /// HTTP/2: bytes that a peer may send on one stream before we read them; over a distance a stream is no faster than
    /// this for each round trip.
    h2_stream_window_bytes: bytes(u32) = 512 * KIB, in 16 * KIB, to 16 * MIB;
    /// HTTP/2: bytes that a peer may send on one connection before we read them; small windows end connections that
    /// carry many tiny frames.
    h2_connection_window_bytes: bytes(u32) = 8 * MIB, in 64 * KIB, to 64 * MIB;
    /// HTTP/2: streams open at once on a connection.
    h2_streams: count(u32) = 128, in 1, to 1024;
    /// HTTP/2: bytes of the largest frame we accept.
    h2_frame_bytes: bytes(u32) = 16 * KIB, in 16 * KIB, to MIB;
    /// HTTP/2: bytes of a decoded field list.
    h2_header_list_bytes: bytes(u32) = 64 * KIB, in 8 * KIB, to MIB;
    /// HTTP/2: bytes queued to send on one stream.
    h2_send_buffer_bytes: bytes(usize) = 64 * KIB, in 16 * KIB, to MIB;
    /// HTTP/2: streams that a peer resets before we answered, until the connection ends.
    h2_pending_resets: count(usize) = 20, in 1, to 1024;
    /// HTTP/2: streams that we reset and still remember, so that late frames for them are no error.
    h2_remembered_resets: count(usize) = 32, in 1, to 1024;

    // Memory. What a budget is too small for is lowered to a part of it: `check --memory` prints what is in effect.
    /// Time that a connection, an exchange or a decoder waits for memory; then it is refused.
    admission_timeout: time(Duration) = 30 * SECOND, in 100 * MS, to 10 * MINUTE;
    /// Bytes that a client has to take or to send in `slow_peer_time` while its exchange waits for nothing else, once
    /// others wait for memory; else its connection is closed.
    slow_peer_bytes: bytes(u64) = 16 * KIB, in 1, to 16 * MIB;
    /// Time for that.
    slow_peer_time: time(Duration) = 20 * SECOND, in 100 * MS, to HOUR;
    /// Memory that one bottle may hold, at most all that the budget leaves.
    memory_per_bottle: bytes(u64) = 64 * GIB, in MIB, to 64 * GIB;
    /// Exchanges of one bottle at once.
    exchanges_per_bottle: count(usize) = 4096, in 1, to 1_000_000;
    /// Bytes of a body that are read at once on an HTTP/1.1 connection.
    h1_read_bytes: bytes(usize) = 64 * KIB, in 4 * KIB, to MIB;
    /// Bytes of a body that wait to be written on an HTTP/1.1 connection.
    write_queue_bytes: bytes(usize) = 64 * KIB, in 4 * KIB, to MIB;
    /// Bytes that a connection's socket takes and has not sent.
    socket_unsent_bytes: bytes(u32) = MIB, in 4 * KIB, to 16 * MIB;
    /// Bytes that a connection's socket has received and nobody has read, once memory is short; before, the kernel
    /// decides.
    socket_receive_bytes: bytes(usize) = 32 * KIB, in 4 * KIB, to 16 * MIB;

    // TLS.
    /// Bytes that a TLS session buffers in each direction.
    tls_buffer_bytes: bytes(usize) = 64 * KIB, in 4 * KIB, to MIB;
    /// Bytes of a ClientHello.
    client_hello_bytes: bytes(usize) = 16 * KIB, in 4 * KIB, to 64 * KIB;
    /// Time for a TLS handshake, on either side.
    tls_handshake_timeout: time(Duration) = 10 * SECOND, in 100 * MS, to 5 * MINUTE;
    /// Leaf certificates kept.
    leaf_cache_entries: count(usize) = 1024, in 16, to 65_536;
    /// Leaf certificates kept for one bottle.
    leaf_cache_entries_per_bottle: count(usize) = 256, in 8, to 65_536;
    /// How long a leaf certificate is valid.
    leaf_validity: time(Duration) = 7 * DAY, in HOUR, to 90 * DAY;
    /// How far before now a certificate's validity begins, for clocks that run behind.
    leaf_backdate: time(Duration) = DAY, in MINUTE, to 7 * DAY;
    /// How long a certificate authority that is made here is valid.
    ca_validity: time(Duration) = 3650 * DAY, in DAY, to 7300 * DAY;

    /// How long clients have to fetch a new certificate authority before it signs.
    ca_overlap: time(Duration) = 14 * DAY, in MINUTE, to 365 * DAY;

    // Connections.
    /// Time for a request's head to arrive, from its first byte.
    header_read_timeout: time(Duration) = 30 * SECOND, in 100 * MS, to 10 * MINUTE;
    /// Time to wait in a fresh tunnel for the first bytes that tell TLS from HTTP.
    sniff_timeout: time(Duration) = 5 * SECOND, in 50 * MS, to MINUTE;
    /// Time that a bottle's connection may stand without an exchange.
    keep_alive_timeout: time(Duration) = 75 * SECOND, in SECOND, to HOUR;
    /// Time in a running exchange without a byte in either direction.
    exchange_idle_timeout: time(Duration) = 10 * MINUTE, in SECOND, to DAY;
    /// Connections of all bottles.
    connections: count(usize) = 8192, in 16, to 1_000_000;
    /// Connections of one bottle.
    connections_per_bottle: count(usize) = 2048, in 1, to 1_000_000;

    // Origins.
    /// Time to resolve a name.
    resolve_timeout: time(Duration) = 5 * SECOND, in 50 * MS, to MINUTE;
    /// Answers of the resolver kept.
    resolver_cache_entries: count(usize) = 1024, in 16, to 1_000_000;
    /// The longest time that a resolver's answer is kept, whatever it says itself.
    resolver_cache_ttl: time(Duration) = MINUTE, in SECOND, to DAY;
    /// Time to connect to an origin, over all its addresses.
    connect_timeout: time(Duration) = 10 * SECOND, in 50 * MS, to 5 * MINUTE;
    /// Time after which the next address of an origin is tried beside the one under way.
    connect_attempt_delay: time(Duration) = 250 * MS, in 10 * MS, to 2 * SECOND;
    /// Time for one attempt to connect to one address.
    connect_attempt_timeout: time(Duration) = 5 * SECOND, in 50 * MS, to 5 * MINUTE;
    /// Addresses of a name that are considered.
    connect_addresses: count(usize) = 16, in 1, to 64;
    /// Time that a connection to an origin is kept without use.
    upstream_idle_timeout: time(Duration) = 30 * SECOND, in SECOND, to HOUR;
    /// Connections to one origin for one bottle.
    upstream_connections_per_target: count(usize) = 64, in 1, to 4096;
    /// Connections to origins kept without use.
    upstream_idle_connections: count(usize) = 256, in 1, to 65_536;

    /// TLS sessions with origins that are kept for resumption, for one bottle.
    tls_sessions_per_bottle: count(usize) = 64, in 1, to 4096;
    /// Bytes of each of the two buffers of a tunnel that is passed through.
    splice_buffer_bytes: bytes(usize) = 16 * KIB, in 4 * KIB, to MIB;
    /// Time without a byte, once a client has finished sending, or one side of a tunnel that is passed through: it is
    /// then taken for gone.
    half_closed_timeout: time(Duration) = 10 * SECOND, in 100 * MS, to HOUR;

    // Inspection.
    /// Bytes of a request body that are scanned whole before the origin hears of the request.
    prime_bytes: bytes(usize) = 64 * KIB, in KIB, to MIB;
    /// Time to wait for a body that is scanned whole first.
    prime_timeout: time(Duration) = 2 * SECOND, in 10 * MS, to MINUTE;
    /// Time after which a byte may leave that is held only as an incomplete public beginning of a match.
    hold_deadline: time(Duration) = 50 * MS, in MS, to 10 * SECOND;
    /// Bytes of one body that are held at most while a match is undecided; beyond, the match counts as overlong.
    hold_bytes: bytes(usize) = 256 * KIB, in 16 * KIB, to 16 * MIB;
    /// Matches overwritten in one body by `redact`; a body with more is refused.
    redactions: count(usize) = 1000, in 1, to 100_000;
    /// Content codings applied one over the other.
    coding_layers: count(usize) = 3, in 1, to 8;
    /// Decoded bytes for each received byte, beyond `decode_ratio_floor_bytes`.
    decode_ratio: count(u64) = 100, in 2, to 10_000;
    /// Decoded bytes of a body from which on `decode_ratio` is judged.
    decode_ratio_floor_bytes: bytes(u64) = 64 * MIB, in MIB, to 64 * GIB;
    /// Bytes decoded and scanned before other exchanges get their turn.
    decode_output_per_poll_bytes: bytes(usize) = 256 * KIB, in 16 * KIB, to 4 * MIB;
    /// The largest window that a zstd stream may ask for.
    zstd_window_bytes: bytes(u64) = 8 * MIB, in MIB, to 128 * MIB;
    /// The largest window that a brotli stream may ask for.
    brotli_window_bytes: bytes(u64) = 16 * MIB, in MIB, to 16 * MIB;
    /// Bytes of a compressed stream that no decoder shows: extra fields, names, comments, skippable frames.
    hidden_room_bytes: bytes(usize) = 256, in 0, to 64 * KIB;
    /// Encodings inside a body or a field that are undone one inside the other: escapes, base64, hex, archives.
    view_depth: count(usize) = 6, in 0, to 8;
    /// Compressed streams inside one body that are inflated at once.
    view_streams: count(usize) = 8, in 0, to 64;
    /// The largest window that a zstd stream inside a body may ask for.
    view_window_bytes: bytes(u64) = MIB, in KIB, to 128 * MIB;
    /// Bytes of one detector's compiled automaton.
    detector_automaton_bytes: bytes(usize) = 2 * MIB, in 64 * KIB, to 64 * MIB;
    /// Bytes of all detectors' compiled automata.
    detectors_bytes: bytes(usize) = 32 * MIB, in MIB, to GIB;

    /// Known values of all `secrets` together.
    secrets: count(usize) = 10_000, in 1, to 16_000;
    /// Bytes of one known value.
    secret_bytes: bytes(usize) = 4 * KIB, in 64, to 32 * KIB;
    /// Refusals for known values of one bottle in `secret_hits_window` after which it is cut off.
    secret_hits: count(usize) = 5, in 1, to 1000;
    /// The time in which they are counted.
    secret_hits_window: time(Duration) = 10 * MINUTE, in SECOND, to DAY;
    /// How long a bottle is cut off that hits known values again and again: every request of it is answered with 429.
    secret_cut_off: time(Duration) = 10 * MINUTE, in SECOND, to 7 * DAY;

    // Refusals.
    /// Requests a second of one bottle; those beyond are answered with 429.
    requests_per_second: count(u32) = 100_000, in 1, to 10_000_000;
    /// Bytes of an upload that are read and dropped after an early refusal, so that the client reads the answer.
    refusal_drain_bytes: bytes(u64) = 64 * MIB, in 0, to 4 * GIB;
    /// Time for that.
    refusal_drain_timeout: time(Duration) = 30 * SECOND, in 100 * MS, to 10 * MINUTE;
    /// Refusals a second that a bottle is answered inside the tunnel; beyond, the tunnel itself is refused.
    refusals_per_second: count(u32) = 20, in 1, to 10_000;
    /// Names a second for which a bottle's tunnels need a new certificate; those beyond are answered with 429.
    new_names_per_second: count(u32) = 1000, in 1, to 1_000_000;
    /// Refusals that a bottle can look up afterwards.
    blocks_remembered: count(usize) = 50, in 1, to 1000;

    // Operation.
    /// Time for running exchanges to end when the gateway is told to stop.
    shutdown_grace: time(Duration) = 30 * SECOND, in 0, to HOUR;
    /// Time that a tunnel has to end once a new configuration no longer allows it.
    reload_grace: time(Duration) = MINUTE, in 0, to DAY;
    /// Time between two looks at whether a file of the configuration has changed.
    reload_poll: time(Duration) = 2 * SECOND, in 100 * MS, to DAY;
    /// Bytes of the findings file before it is rotated.
    findings_file_bytes: bytes(u64) = 16 * MIB, in 64 * KIB, to 4 * GIB;
    /// Findings files kept, the one in use included.
    findings_files: count(usize) = 4, in 2, to 100;
    /// Findings of one bottle that are written down in a minute; further ones are judged and counted alike.
    findings_per_minute: count(u32) = 600, in 1, to 1_000_000;
    /// Connections to the admin address.
    admin_connections: count(usize) = 64, in 4, to 4096;
}
