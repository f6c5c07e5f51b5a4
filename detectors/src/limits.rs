//! Every limit of the engine, by name and unit.
//!
//! All of them are checked when a rule set is built, except [`BuildLimits::attempts`], which bounds
//! a stream while it runs and ends in a [`Crowded`](crate::Event::Crowded) verdict.

/// The longest literal, in bytes, that the first stage knows of a rule; the automaton checks the rest.
pub(crate) const ANCHOR_BYTES: usize = 24;

/// The longest run of byte classes that starts an attempt of a rule without a literal.
pub(crate) const WINDOW_BYTES: usize = 8;

/// Live attempts are merged and counted at every multiple of this stream offset, so that the outcome
/// depends on bytes and never on where a chunk ends. At least [`ANCHOR_BYTES`], see `attempt`.
pub(crate) const CHECKPOINT_BYTES: u64 = 64;

/// Caps on what rules may cost.
#[derive(Clone, Debug)]
pub struct BuildLimits {
    /// Rules in a set. At most 65,536.
    pub rules: usize,
    /// Bytes of a pattern's text, ignore patterns included.
    pub pattern_bytes: usize,
    /// Bytes of memory of one automaton.
    pub automaton_bytes: usize,
    /// Bytes of memory of all automata of a set together.
    pub automata_bytes: usize,
    /// Bytes of a match; the largest `max_length`.
    pub match_bytes: usize,
    /// Bytes of a match that may stand before its literal.
    pub look_behind_bytes: usize,
    /// Bytes to either side of a match in which context is looked for.
    pub context_bytes: usize,
    /// Words in a rule's context.
    pub context_words: usize,
    /// Alternative literals of one rule.
    pub literals: usize,
    /// Rules without a literal.
    pub classes: usize,
    /// Ignore patterns of one rule.
    pub ignore_patterns: usize,
    /// Known values. At most 16,000.
    pub known_values: usize,
    /// Bytes of one known value. At most 65,535.
    pub known_bytes: usize,
    /// Attempts that one stream keeps alive between two checkpoints (every 64 bytes).
    pub attempts: usize,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self {
            rules: 4096,
            pattern_bytes: 4096,
            automaton_bytes: 2 << 20,
            automata_bytes: 64 << 20,
            match_bytes: 16 << 10,
            look_behind_bytes: 128,
            context_bytes: 256,
            context_words: 64,
            literals: 64,
            classes: 32,
            ignore_patterns: 64,
            known_values: 10_000,
            known_bytes: 4096,
            attempts: 128,
        }
    }
}
