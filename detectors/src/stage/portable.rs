//! The portable stage: an Aho-Corasick automaton for literals and a shift-and automaton for classes,
//! one step of each per byte. It is also what every other stage is tested against.

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, MatchKind, StartKind};

use super::{CLASS_WORDS, Hit, Needle, Stage, StageState, Text};
use crate::byteset::ByteSet;
use crate::limits::WINDOW_BYTES;
use crate::window::Bytes;

/// See the module.
pub(crate) struct Portable {
    literals: Option<Literals>,
    classes: Option<Box<Classes>>,
    /// By anchor: the bytes that it may stand behind.
    before: Vec<ByteSet>,
}

impl Portable {
    /// A stage for `needles`. Fails with words when they are too many.
    pub(crate) fn new(needles: &[Needle]) -> Result<Self, String> {
        let mut literals = Vec::new();
        let mut classes = Vec::new();
        for (anchor, needle) in (0u32..).zip(needles) {
            match &needle.text {
                Text::Literal(literal) => literals.push((anchor, literal.as_slice())),
                Text::Classes(sets) => classes.push((anchor, sets.as_slice())),
            }
        }
        let literals = if literals.is_empty() { None } else { Some(Literals::new(&literals)?) };
        let classes = if classes.is_empty() { None } else { Some(Box::new(Classes::new(&classes)?)) };
        Ok(Self { literals, classes, before: needles.iter().map(|needle| needle.before).collect() })
    }

    fn stands(&self, hit: Hit, bytes: Bytes<'_>) -> bool {
        let byte_before = hit.at.checked_sub(1).and_then(|before| bytes.get(before));
        byte_before.is_none_or(|byte| self.before[hit.anchor as usize].contains(byte))
    }
}

impl Stage for Portable {
    fn start(&self) -> StageState {
        let literal = self.literals.as_ref().map_or(StateID::ZERO, |literals| literals.start);
        StageState { literal, classes: [0; CLASS_WORDS] }
    }

    fn scan(&self, state: &mut StageState, bytes: Bytes<'_>, found: &mut dyn FnMut(Hit)) {
        let found = &mut |hit| {
            if self.stands(hit, bytes) {
                found(hit);
            }
        };
        match (&self.literals, &self.classes) {
            (Some(literals), Some(classes)) => {
                for (&byte, seen) in bytes.chunk().iter().zip(bytes.chunk_start() + 1..) {
                    literals.step(&mut state.literal, byte, seen, found);
                    classes.step(&mut state.classes, byte, seen, found);
                }
            }
            (Some(literals), None) => {
                for (&byte, seen) in bytes.chunk().iter().zip(bytes.chunk_start() + 1..) {
                    literals.step(&mut state.literal, byte, seen, found);
                }
            }
            (None, Some(classes)) => {
                for (&byte, seen) in bytes.chunk().iter().zip(bytes.chunk_start() + 1..) {
                    classes.step(&mut state.classes, byte, seen, found);
                }
            }
            (None, None) => {}
        }
    }

    fn pass_over(&self, state: &mut StageState, bytes: Bytes<'_>) {
        self.scan(state, bytes, &mut |_| {});
    }

    fn unfinished(&self, state: &StageState, _: Bytes<'_>) -> usize {
        let literal = self.literals.as_ref().map_or(0, |literals| literals.depth(state.literal));
        let classes = self.classes.as_ref().map_or(0, |classes| classes.depth(&state.classes));
        literal.max(classes)
    }

    fn memory_usage(&self) -> usize {
        let literals = self.literals.as_ref().map_or(0, Literals::memory_usage);
        let classes = self.classes.as_ref().map_or(0, |classes| classes.memory_usage());
        literals + classes + self.before.len() * size_of::<ByteSet>()
    }

    fn name(&self) -> &'static str {
        "portable"
    }
}

struct Literals {
    automaton: DFA,
    start: StateID,
    /// By pattern: its anchor.
    anchors: Vec<u32>,
    depths: Depths,
}

impl Literals {
    fn new(literals: &[(u32, &[u8])]) -> Result<Self, String> {
        let automaton = DFA::builder()
            .match_kind(MatchKind::Standard)
            .start_kind(StartKind::Unanchored)
            .prefilter(false)
            .build(literals.iter().map(|(_, literal)| literal))
            .map_err(|error| error.to_string())?;
        let start = automaton.start_state(Anchored::No).map_err(|error| error.to_string())?;
        let depths = Depths::new(&automaton, start);
        Ok(Self { automaton, start, anchors: literals.iter().map(|(anchor, _)| *anchor).collect(), depths })
    }

    #[inline(always)]
    fn step(&self, state: &mut StateID, byte: u8, seen: u64, found: &mut dyn FnMut(Hit)) {
        *state = self.automaton.next_state(Anchored::No, *state, byte);
        if self.automaton.is_special(*state) && self.automaton.is_match(*state) {
            self.report(*state, seen, found);
        }
    }

    #[cold]
    fn report(&self, state: StateID, seen: u64, found: &mut dyn FnMut(Hit)) {
        for index in 0..self.automaton.match_len(state) {
            let pattern = self.automaton.match_pattern(state, index);
            let at = seen - self.automaton.pattern_len(pattern) as u64;
            found(Hit { anchor: self.anchors[pattern.as_usize()], at, seen });
        }
    }

    fn depth(&self, state: StateID) -> usize {
        self.depths.of(state)
    }

    fn memory_usage(&self) -> usize {
        self.automaton.memory_usage() + self.anchors.len() * size_of::<u32>() + self.depths.by_state.len()
    }
}

/// By state: bytes of the longest beginning of a literal that the text ends with.
///
/// A state's shortest distance from the start is the length of the longest prefix that the text ends
/// with, since the prefix itself is a way to it. A whole literal is no beginning: what counts is how far
/// one more byte could lead.
struct Depths {
    /// State ids are multiples of a power of two; this many low bits are zero in all of them.
    shift: u32,
    by_state: Vec<u8>,
}

impl Depths {
    fn new(automaton: &DFA, start: StateID) -> Self {
        let mut known = std::collections::BTreeMap::from([(start, 0u8)]);
        let mut queue = std::collections::VecDeque::from([(start, 0u8)]);
        while let Some((state, depth)) = queue.pop_front() {
            for byte in 0..=u8::MAX {
                let next = automaton.next_state(Anchored::No, state, byte);
                known.entry(next).or_insert_with(|| {
                    queue.push_back((next, depth.saturating_add(1)));
                    depth.saturating_add(1)
                });
            }
        }
        let shift = known.keys().filter(|id| id.as_u32() != 0).map(|id| id.as_u32().trailing_zeros()).min();
        let shift = shift.unwrap_or(0);
        let states = known.keys().map(|id| id.as_usize() >> shift).max().map_or(0, |last| last + 1);
        let mut by_state = vec![0; states];
        for &id in known.keys() {
            let deepest =
                (0..=u8::MAX).map(|byte| known[&automaton.next_state(Anchored::No, id, byte)]).max();
            by_state[id.as_usize() >> shift] = deepest.unwrap_or(0).saturating_sub(1);
        }
        Self { shift, by_state }
    }

    fn of(&self, state: StateID) -> usize {
        self.by_state.get(state.as_usize() >> self.shift).copied().map_or(0, usize::from)
    }
}

/// Each anchor has a run of bits in one word, one for each of its bytes; a bit is set while the text
/// ends with that many of them.
struct Classes {
    words: usize,
    /// By word and byte: the bits that this byte lets stand.
    allowed: [[u64; 256]; CLASS_WORDS],
    /// By word: first and last bit of each anchor.
    first: [u64; CLASS_WORDS],
    last: [u64; CLASS_WORDS],
    /// By length and word: the bits that say "this many bytes of an unfinished anchor".
    partial: [[u64; CLASS_WORDS]; WINDOW_BYTES],
    /// By word and bit: the anchor that ends there, and its length.
    anchors: Vec<[(u32, u8); 64]>,
}

impl Classes {
    fn new(classes: &[(u32, &[ByteSet])]) -> Result<Self, String> {
        let mut all = Self {
            words: 1,
            allowed: [[0; 256]; CLASS_WORDS],
            first: [0; CLASS_WORDS],
            last: [0; CLASS_WORDS],
            partial: [[0; CLASS_WORDS]; WINDOW_BYTES],
            anchors: vec![[(0, 0); 64]],
        };
        let mut used = 0;
        for &(anchor, sets) in classes {
            if used + sets.len() > 64 {
                all.words += 1;
                all.anchors.push([(0, 0); 64]);
                used = 0;
            }
            if all.words > CLASS_WORDS {
                return Err(format!("more than {CLASS_WORDS} words of byte classes"));
            }
            all.add(all.words - 1, used, anchor, sets);
            used += sets.len();
        }
        Ok(all)
    }

    fn add(&mut self, word: usize, from: usize, anchor: u32, sets: &[ByteSet]) {
        for (position, set) in sets.iter().enumerate() {
            let bit = 1 << (from + position);
            set.iter().for_each(|byte| self.allowed[word][usize::from(byte)] |= bit);
            if position + 1 < sets.len() {
                self.partial[position + 1][word] |= bit;
            }
        }
        let last = from + sets.len() - 1;
        self.first[word] |= 1 << from;
        self.last[word] |= 1 << last;
        self.anchors[word][last] = (anchor, u8::try_from(sets.len()).expect("a window is short"));
    }

    #[inline(always)]
    fn step(&self, state: &mut [u64; CLASS_WORDS], byte: u8, seen: u64, found: &mut dyn FnMut(Hit)) {
        for (word, state) in state.iter_mut().enumerate().take(self.words) {
            // A shift moves an anchor's last bit onto the next anchor's first, which may always be set.
            let bits = ((*state << 1) | self.first[word]) & self.allowed[word][usize::from(byte)];
            *state = bits;
            if bits & self.last[word] != 0 {
                self.report(word, bits & self.last[word], seen, found);
            }
        }
    }

    fn report(&self, word: usize, mut ended: u64, seen: u64, found: &mut dyn FnMut(Hit)) {
        while ended != 0 {
            let (anchor, length) = self.anchors[word][ended.trailing_zeros() as usize];
            found(Hit { anchor, at: seen - u64::from(length), seen });
            ended &= ended - 1;
        }
    }

    fn depth(&self, state: &[u64; CLASS_WORDS]) -> usize {
        let stands = |length: &usize| (0..self.words).any(|w| state[w] & self.partial[*length][w] != 0);
        (1..WINDOW_BYTES).rev().find(stands).unwrap_or(0)
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.anchors.len() * size_of::<[(u32, u8); 64]>()
    }
}
