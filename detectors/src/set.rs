//! Rule sets: building them, and choosing among their rules.

use std::collections::{BTreeMap, HashMap};

use regex_automata::util::primitives::StateID;

use crate::anchor::Anchor;
use crate::byteset::{ByteSet, Frequencies};
use crate::compiled::{Compiled, NEIGHBOURS};
use crate::error::{BuildError, Reason};
use crate::known::{Known, KnownSet};
use crate::limits::BuildLimits;
use crate::rule::{Rule, RuleId, RuleInfo};
use crate::seams::Seams;
use crate::spelling::Spelling;
use crate::stage::{self, CLASSES_MAX, Lookup, Needle, PairFlags, Stage, StageKind, Text};
use crate::view;
use crate::window::Window;

/// Gathers rules and builds them.
pub struct RuleSetBuilder {
    limits: BuildLimits,
    rules: Vec<Rule>,
    known: Vec<Known>,
    stage: StageKind,
}

impl RuleSetBuilder {
    /// An empty builder.
    pub fn new(limits: BuildLimits) -> Self {
        Self { limits, rules: Vec::new(), known: Vec::new(), stage: StageKind::Best }
    }

    /// Adds a rule. Its id must be its own.
    pub fn rule(&mut self, rule: Rule) -> &mut Self {
        self.rules.push(rule);
        self
    }

    /// Adds a known value, which is found in any disguise. Its rule comes behind all others; its id must be its own.
    pub fn known(&mut self, known: Known) -> &mut Self {
        self.known.push(known);
        self
    }

    /// Names the first stage; its choice changes nothing but speed.
    #[doc(hidden)]
    pub fn stage(&mut self, stage: StageKind) -> &mut Self {
        self.stage = stage;
        self
    }

    /// Builds the set.
    ///
    /// # Errors
    /// Every problem of every rule at once, in the order of the rules.
    pub fn build(&self) -> Result<RuleSet, Vec<BuildError>> {
        let frequencies = Frequencies::of_traffic();
        let mut build = Build::new(&self.limits);
        for rule in &self.rules {
            build.add(rule, &frequencies);
        }
        build.add_known(&self.known);
        build.finish(self.stage)
    }
}

struct Build<'a> {
    limits: &'a BuildLimits,
    rules: Vec<Compiled>,
    known: KnownSet,
    ids: HashMap<String, RuleId>,
    automata_bytes: usize,
    classes: usize,
    errors: Vec<BuildError>,
}

impl<'a> Build<'a> {
    fn new(limits: &'a BuildLimits) -> Self {
        Self {
            limits,
            rules: Vec::new(),
            known: KnownSet::default(),
            ids: HashMap::new(),
            automata_bytes: 0,
            classes: 0,
            errors: Vec::new(),
        }
    }

    fn add(&mut self, rule: &Rule, frequencies: &Frequencies) {
        if let Err(reason) = self.try_add(rule, frequencies) {
            self.errors.push(BuildError::new(&rule.id, reason));
        }
    }

    fn try_add(&mut self, rule: &Rule, frequencies: &Frequencies) -> Result<(), Reason> {
        if rule.id.is_empty() {
            return Err(Reason::Empty { what: "`id`" });
        }
        if self.ids.contains_key(&rule.id) {
            return Err(Reason::Duplicate);
        }
        let id = self.next_id()?;
        let compiled = Compiled::new(rule, frequencies, self.limits)?;
        self.automata_bytes += compiled.automaton_bytes();
        if self.automata_bytes > self.limits.automata_bytes {
            return Err(Reason::AutomataSize { limit: self.limits.automata_bytes });
        }
        self.classes += usize::from(matches!(compiled.anchor, Anchor::Classes(_)));
        let classes_limit = self.limits.classes.min(CLASSES_MAX);
        if self.classes > classes_limit {
            return Err(Reason::TooMany { what: "rules without a literal", limit: classes_limit });
        }
        self.ids.insert(rule.id.clone(), id);
        self.rules.push(compiled);
        Ok(())
    }

    /// Adds the known values, behind all rules.
    fn add_known(&mut self, known: &[Known]) {
        let first = self.rules.len();
        for (at, one) in known.iter().enumerate() {
            match u16::try_from(first + at) {
                Ok(id) if self.ids.insert(one.id.clone(), RuleId(id)).is_none() => {}
                _ => self.errors.push(BuildError::new(&one.id, Reason::Duplicate)),
            }
        }
        match KnownSet::new(known, first, self.limits) {
            Ok(set) => self.known = set,
            Err(errors) => {
                let named = |(at, reason): (usize, Reason)| BuildError::new(&known[at].id, reason);
                self.errors.extend(errors.into_iter().map(named));
            }
        }
    }

    fn next_id(&self) -> Result<RuleId, Reason> {
        let limit = self.limits.rules.min(usize::from(u16::MAX) + 1);
        match u16::try_from(self.rules.len()) {
            Ok(id) if self.rules.len() < limit => Ok(RuleId(id)),
            _ => Err(Reason::TooMany { what: "rules", limit }),
        }
    }

    fn finish(mut self, kind: StageKind) -> Result<RuleSet, Vec<BuildError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let (needles, anchors) = needles(&self.rules);
        let seams = Seams::new(&needles, &self.rules, &self.known);
        match stage::build(kind, &needles) {
            Ok(stage) => Ok(RuleSet {
                marks: Box::new(view::flags(seams.hideable())),
                seams,
                spelling: Spelling::new(needles.iter().filter_map(|needle| match &needle.text {
                    Text::Literal(literal) => Some(&literal[..]),
                    Text::Classes(_) => None,
                })),
                lookup: Lookup::best(),
                look_behind: self.rules.iter().map(Compiled::look_behind).max().unwrap_or(0),
                reach: self.rules.iter().map(Compiled::reach).chain([self.known.reach()]).max().unwrap_or(0),
                longest: self
                    .rules
                    .iter()
                    .map(|rule| rule.max_length as usize)
                    .chain([self.known.longest()])
                    .max()
                    .unwrap_or(0),
                heads: heads(&self.rules),
                rules: self.rules,
                known: self.known,
                ids: self.ids,
                stage,
                anchors,
                attempts: self.limits.attempts,
            }),
            Err(message) => {
                let what = "the literals of all rules";
                self.errors.push(BuildError::new("*", Reason::Automaton { what, message }));
                Err(self.errors)
            }
        }
    }
}

/// See [`RuleSet::heads`].
fn heads(rules: &[Compiled]) -> Box<[Vec<RuleId>]> {
    let ending_with = |byte: u8| {
        let rules = (0u16..).map(RuleId).zip(rules);
        let ends = rules.filter(|(_, rule)| rule.head.as_ref().is_some_and(|head| head.may_end_with(byte)));
        ends.map(|(id, _)| id).collect()
    };
    (0..=u8::MAX).map(ending_with).collect()
}

/// All anchors, each once, and by anchor the rules that start from it.
fn needles(rules: &[Compiled]) -> (Vec<Needle>, Vec<Starts>) {
    let mut literals: BTreeMap<&[u8], (ByteSet, Vec<Start>)> = BTreeMap::new();
    let mut needles = Vec::new();
    let mut anchors = Vec::new();
    for (id, rule) in (0u16..).map(RuleId).zip(rules) {
        match &rule.anchor {
            Anchor::Literals(all) => {
                for literal in all {
                    let (before, starts) = literals.entry(literal).or_default();
                    *before = before.union(&rule.before);
                    starts.push(Start { rule: id, after: rule.after(literal), behind: rule.behind(literal) });
                }
            }
            Anchor::Classes(sets) => {
                needles.push(Needle { text: Text::Classes(sets.clone()), before: rule.before });
                let start = Start { rule: id, after: ByteSet::ALL, behind: rule.behind(&[]) };
                anchors.push(Starts { length: sets.len(), read: 0, all: vec![start] });
            }
        }
    }
    for (literal, (before, all)) in literals {
        needles.push(Needle { text: Text::Literal(literal.to_vec()), before });
        anchors.push(Starts { length: literal.len(), read: literal.len(), all });
    }
    (needles, anchors)
}

/// What starts from an anchor.
pub(crate) struct Starts {
    /// Bytes of the anchor.
    pub(crate) length: usize,
    /// How many of them have been read for good; of classes none.
    pub(crate) read: usize,
    pub(crate) all: Vec<Start>,
}

/// A rule that starts from an anchor, unless what follows says that it would end at once.
pub(crate) struct Start {
    pub(crate) rule: RuleId,
    /// The bytes that may follow the anchor.
    pub(crate) after: ByteSet,
    /// The rule's state behind what has been read, by the kind of the byte before it.
    pub(crate) behind: [StateID; NEIGHBOURS.len()],
}

/// Rules made ready to scan any number of streams. Immutable; share it in an `Arc`.
pub struct RuleSet {
    rules: Vec<Compiled>,
    pub(crate) known: KnownSet,
    ids: HashMap<String, RuleId>,
    pub(crate) stage: Box<dyn Stage>,
    /// By anchor.
    anchors: Vec<Starts>,
    /// What a byte put in the place of others may mean.
    pub(crate) seams: Seams,
    /// How text without case may have been spelled.
    spelling: Spelling,
    /// How views look for where they open, and what they look for.
    pub(crate) lookup: Lookup,
    pub(crate) marks: Box<PairFlags>,
    /// By byte: the rules of which a head, or a head and part of an anchor, may end with it.
    heads: Box<[Vec<RuleId>]>,
    /// Bytes that a stream's window keeps at rest.
    pub(crate) reach: usize,
    /// Bytes of the longest match of any rule.
    longest: usize,
    /// Bytes of the longest match up to its anchor's end, and the one before it.
    pub(crate) look_behind: usize,
    /// Live attempts of a stream.
    pub(crate) attempts: usize,
}

impl RuleSet {
    /// The number of rules, known values among them.
    pub fn len(&self) -> usize {
        self.rules.len() + self.known.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rule of this name.
    pub fn rule_id(&self, id: &str) -> Option<RuleId> {
        self.ids.get(id).copied()
    }

    /// Every rule, in the order they were added.
    pub fn ids(&self) -> impl Iterator<Item = RuleId> + use<> {
        (0..=u16::MAX).map(RuleId).take(self.len())
    }

    /// A rule's name.
    ///
    /// # Panics
    /// When `rule` comes from a larger set.
    pub fn id(&self, rule: RuleId) -> &str {
        self.known.id(rule).unwrap_or_else(|| &self.compiled(rule).id)
    }

    /// What the engine made of a rule that is no known value.
    ///
    /// # Panics
    /// When `rule` comes from a larger set, or is a known value's.
    pub fn info(&self, rule: RuleId) -> RuleInfo {
        self.compiled(rule).info()
    }

    /// Bytes before an offset of a stream that can matter for what is found from there on: a match that began earlier,
    /// and what had to stand before it. A scan that begins so far back finds the same.
    pub fn look_back(&self) -> usize {
        self.longest + self.reach
    }

    /// Bytes before an offset that matter for what *begins* there or later.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// As [`reach`](Self::reach), for what is found in any view: one that opens looks a little further back.
    pub fn reach_of_views(&self) -> usize {
        self.reach + 2 * view::BACK
    }

    /// Texts that `text`, which has lost the case of its letters, may have been, besides all lower and all upper case: in
    /// each one literal of a rule is spelled as the rule has it.
    pub fn spellings(&self, text: &[u8]) -> Vec<Vec<u8>> {
        self.spelling.of(text)
    }

    /// Bytes of memory, shared by all streams.
    pub fn memory_usage(&self) -> usize {
        let automata: usize = self.rules.iter().map(Compiled::automaton_bytes).sum();
        let anchors: usize =
            self.anchors.iter().map(|starts| size_of_val(starts) + size_of_val(starts.all.as_slice())).sum();
        let rules = self.rules.len() * size_of::<Compiled>();
        automata + anchors + rules + self.stage.memory_usage() + self.known.memory_usage()
    }

    /// Bytes of memory of the known values, part of [`memory_usage`](Self::memory_usage).
    pub fn known_memory_usage(&self) -> usize {
        self.known.memory_usage()
    }

    /// The first stage's name.
    #[doc(hidden)]
    pub fn stage_name(&self) -> &'static str {
        self.stage.name()
    }

    /// The number of anchors in `body`, taken in chunks of `size` bytes: what the first stage costs.
    #[doc(hidden)]
    pub fn count_anchors(&self, body: &[u8], size: usize) -> usize {
        let (mut state, mut window, mut count) = (self.stage.start(), Window::default(), 0);
        for chunk in body.chunks(size.max(1)) {
            let bytes = window.with(chunk);
            self.stage.scan(&mut state, bytes, &mut |_| count += 1);
            let end = bytes.end();
            window.advance(chunk, end.saturating_sub(self.reach as u64));
        }
        count
    }

    pub(crate) fn compiled(&self, rule: RuleId) -> &Compiled {
        &self.rules[rule.index()]
    }

    /// The rules of which a head, or a head and part of an anchor, may end with this byte.
    pub(crate) fn heads_ending_with(&self, byte: u8) -> impl Iterator<Item = RuleId> + '_ {
        self.heads.get(usize::from(byte)).into_iter().flatten().copied()
    }

    pub(crate) fn starts(&self, anchor: u32) -> &Starts {
        &self.anchors[anchor as usize]
    }
}

impl std::fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleSet").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

/// The rules of a set that run on a stream. Small; share it in an `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    words: Box<[u64]>,
    any: bool,
    known: bool,
}

impl Selection {
    /// Every rule.
    pub fn all(rules: &RuleSet) -> Self {
        Self::from_ids(rules, rules.ids())
    }

    /// No rule: a scan that clears everything at once.
    pub fn none(rules: &RuleSet) -> Self {
        Self::from_ids(rules, [])
    }

    /// These rules; those that are not in the set are left out.
    pub fn from_ids(rules: &RuleSet, ids: impl IntoIterator<Item = RuleId>) -> Self {
        let mut words = vec![0u64; rules.len().div_ceil(64)].into_boxed_slice();
        let mut known = false;
        for id in ids {
            if id.index() < rules.len() {
                words[id.index() / 64] |= 1 << (id.index() % 64);
                known |= id.index() >= rules.rules.len();
            }
        }
        let any = words.iter().any(|&word| word != 0);
        Self { words, any, known }
    }

    /// Whether the rule runs.
    #[inline]
    pub fn contains(&self, rule: RuleId) -> bool {
        self.words.get(rule.index() / 64).is_some_and(|word| word >> (rule.index() % 64) & 1 == 1)
    }

    /// Whether any known value is looked for.
    pub(crate) fn has_known(&self) -> bool {
        self.known
    }

    /// Whether no rule runs.
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// Bytes of memory beside the struct itself.
    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.words)
    }
}
