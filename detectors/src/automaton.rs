//! Anchored automata: one dense DFA for the tail of a rule, two reverse ones for its head.
//!
//! A DFA reports a match one byte late, so that look-around at its end has been seen; the step at the
//! end of input makes up for the last byte. States are carried over chunk borders by the caller.

use std::collections::HashSet;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::Hir;

use crate::byteset::ByteSet;
use crate::error::Reason;
use crate::limits::BuildLimits;

/// Which way an automaton reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// From the anchor on.
    Forward,
    /// From the anchor (or the end of the text) back.
    Backward,
}

/// What one byte, or the end, did to an automaton.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on.
    On,
    /// It goes on, and a match ended before the byte.
    Matched,
    /// No longer match is possible.
    Dead,
}

/// A dense DFA that starts at a given place.
pub(crate) struct Automaton(dense::DFA<Vec<u32>>);

impl Automaton {
    pub(crate) fn new(
        what: &'static str,
        hir: &Hir,
        reads: Reads,
        limits: &BuildLimits,
    ) -> Result<Self, Reason> {
        let nfa = nfa(what, std::slice::from_ref(hir), reads, limits)?;
        dense(what, &nfa, StartKind::Anchored, limits).map(Self)
    }

    /// The state before the first byte. `neighbour` is the byte on the other side of the starting
    /// point, `None` at the very start of the stream.
    #[inline]
    pub(crate) fn start(&self, neighbour: Option<u8>) -> StateID {
        let config = start::Config::new().anchored(Anchored::Yes).look_behind(neighbour);
        self.0.start_state(&config).expect("anchored start states are built and no byte makes it quit")
    }

    #[inline(always)]
    pub(crate) fn step(&self, state: &mut StateID, byte: u8) -> Step {
        *state = self.0.next_state(*state, byte);
        if !self.0.is_special_state(*state) {
            Step::On
        } else if self.0.is_match_state(*state) {
            Step::Matched
        } else if self.0.is_dead_state(*state) {
            Step::Dead
        } else {
            Step::On
        }
    }

    /// Whether a match ends where the input ends.
    pub(crate) fn matches_at_end(&self, state: StateID) -> bool {
        self.0.is_match_state(self.0.next_eoi_state(state))
    }

    #[inline]
    pub(crate) fn is_dead(&self, state: StateID) -> bool {
        self.0.is_dead_state(state)
    }

    /// Every byte that takes it on from some state, begun next to any of `neighbours`.
    pub(crate) fn bytes(&self, neighbours: &[Option<u8>]) -> ByteSet {
        let mut open: Vec<StateID> = neighbours.iter().map(|&neighbour| self.start(neighbour)).collect();
        let mut known: HashSet<StateID> = open.iter().copied().collect();
        let mut bytes = ByteSet::default();
        while let Some(state) = open.pop() {
            for byte in 0..=u8::MAX {
                let next = self.0.next_state(state, byte);
                // A match shows one byte late: a state from which nothing goes on says nothing of the byte.
                let goes_on = !self.0.is_dead_state(next) && !self.0.is_match_state(next);
                if goes_on || self.takes(next) {
                    bytes.insert_range(byte, byte);
                }
                if known.insert(next) {
                    open.push(next);
                }
            }
        }
        bytes
    }

    /// Whether a match may end behind the next byte, or the automaton may go on.
    fn takes(&self, state: StateID) -> bool {
        self.matches_at_end(state) || (0..=u8::MAX).any(|byte| !self.0.is_dead_state(self.0.next_state(state, byte)))
    }

    pub(crate) fn memory_usage(&self) -> usize {
        self.0.memory_usage()
    }
}

/// Several patterns, searched anywhere in a text: a rule's ignore patterns.
pub(crate) struct Searcher(dense::DFA<Vec<u32>>);

impl Searcher {
    pub(crate) fn new(what: &'static str, hirs: &[Hir], limits: &BuildLimits) -> Result<Self, Reason> {
        let nfa = nfa(what, hirs, Reads::Forward, limits)?;
        dense(what, &nfa, StartKind::Unanchored, limits).map(Self)
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        let input = Input::new(text).earliest(true);
        matches!(self.0.try_search_fwd(&input), Ok(Some(_)))
    }

    pub(crate) fn memory_usage(&self) -> usize {
        self.0.memory_usage()
    }
}

fn nfa(
    what: &'static str,
    hirs: &[Hir],
    reads: Reads,
    limits: &BuildLimits,
) -> Result<thompson::NFA, Reason> {
    let config = thompson::Config::new()
        .utf8(false)
        .reverse(reads == Reads::Backward)
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(limits.automaton_bytes));
    thompson::Compiler::new().configure(config).build_many_from_hir(hirs).map_err(|error| {
        match error.size_limit() {
            Some(limit) => Reason::AutomatonSize { what, limit },
            None => Reason::Automaton { what, message: error.to_string() },
        }
    })
}

fn dense(
    what: &'static str,
    nfa: &thompson::NFA,
    starts: StartKind,
    limits: &BuildLimits,
) -> Result<dense::DFA<Vec<u32>>, Reason> {
    let limit = limits.automaton_bytes;
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(starts)
        .accelerate(false)
        .minimize(false)
        .dfa_size_limit(Some(limit))
        .determinize_size_limit(Some(limit.saturating_mul(4)));
    dense::Builder::new().configure(config).build_from_nfa(nfa).map_err(|error| {
        if error.is_size_limit_exceeded() {
            Reason::AutomatonSize { what, limit }
        } else {
            Reason::Automaton { what, message: error.to_string() }
        }
    })
}
