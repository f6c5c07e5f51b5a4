//! The built-in rule pack: detector files embedded as text, one per family.
//!
//! This crate neither parses nor judges them; the configuration reads them as it reads an operator's
//! own files, so that an operator sees, overrides and replaces them in the same notation.
//!
//! How the files are written: patterns follow the formats that providers publish. A prefix that is
//! rare enough stands alone; a weak one has `\b{start-half}` before it (no word byte may precede).
//! Fixed lengths end in `\b{end-half}` (no word byte may follow), since a trailing `\b` would lose
//! tokens that end in `-`. Tokens with a checksum have neither: the checksum decides. A repeat in the
//! middle of a pattern is bounded; an open one at its end has a `max_length`.

/// The day of the newest change to the pack, as in a detector's `added` and the setting `pinned`.
pub const PACK_VERSION: &str = "2026-11-30";

/// Name and YAML text of each file.
pub const FILES: &[(&str, &str)] = &[
    ("ai.yaml", include_str!("../pack/ai.yaml")),
    ("chat.yaml", include_str!("../pack/chat.yaml")),
    ("ci.yaml", include_str!("../pack/ci.yaml")),
    ("cloud.yaml", include_str!("../pack/cloud.yaml")),
    ("code-hosting.yaml", include_str!("../pack/code-hosting.yaml")),
    ("database.yaml", include_str!("../pack/database.yaml")),
    ("generic.yaml", include_str!("../pack/generic.yaml")),
    ("inbound.yaml", include_str!("../pack/inbound.yaml")),
    ("keys.yaml", include_str!("../pack/keys.yaml")),
    ("packages.yaml", include_str!("../pack/packages.yaml")),
    ("payment.yaml", include_str!("../pack/payment.yaml")),
    ("personal.yaml", include_str!("../pack/personal.yaml")),
];
