//! From a place where a probe may stand to the needles that do stand there.
//!
//! Tables by byte say exactly which buckets the place fits, mostly none or one; the fixed bytes of the
//! bucket's probes are the key of a hash table of its literals. Literals of one length that share a key
//! (the ways to write a word in either case do) have their last bytes for a second key. Probes of
//! classes have a bit each.

use std::collections::BTreeMap;

use super::windows::{BUCKETS_MAX, PROBE, Probe};
use super::{CLASSES_MAX, Needle, Text as NeedleText};
use crate::byteset::ByteSet;

/// Slots of the hash table, as a power of two.
const SLOT_BITS: u32 = 12;

/// Literals with one key that have none of their own last bytes.
const ALIKE_MAX: usize = 2;

const _: () = assert!(PROBE <= 6, "bucket and mask stand above the key; a bucket has fewer than 256 masks");
const _: () = assert!(BUCKETS_MAX + CLASSES_MAX <= 64, "a bit for each");

/// What needles are looked for in.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the first byte stands for the start of the stream, before its first byte.
    pub(super) is_start: bool,
}

impl Text<'_> {
    /// The bytes from `start` to `end`, if they are all there and stand behind one of `before`.
    #[inline(always)]
    fn behind(&self, before: &ByteSet, start: usize, end: usize) -> Option<&[u8]> {
        let byte_before = *self.bytes.get(start.checked_sub(1)?)?;
        let fits = before.contains(byte_before) || (self.is_start && start == 1);
        if fits { self.bytes.get(start..end) } else { None }
    }
}

/// A needle that stands at a place of a text.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) anchor: u32,
    /// Index of its first byte.
    pub(super) start: usize,
    /// Index after its last byte.
    pub(super) end: usize,
}

/// Needles by their probes.
pub(super) struct Confirm {
    /// By position in the probe and byte: the buckets of literals that allow it there, and above them
    /// the probes of classes, one bit each.
    allowed: Box<[[u64; 256]; PROBE]>,
    /// By bucket: which bytes of a probe its literals fix, each way once. Those bytes are a key.
    masks: [Vec<u64>; BUCKETS_MAX],
    /// By hash: one more than the index of the first link, or 0.
    slots: Box<[u16; 1 << SLOT_BITS]>,
    links: Vec<Link>,
    /// By link.
    targets: Vec<Target>,
    classes: Vec<Classes>,
}

/// A link of a chain of literals with one slot.
struct Link {
    /// See [`identity`].
    identity: u64,
    /// As in `slots`.
    next: u16,
}

/// What has a key.
enum Target {
    Literal(Literal),
    /// Literals that have a second key.
    Alike(Alike),
}

/// Literals that have a key in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    identity: u64,
    offset: isize,
    length: usize,
}

struct Literal {
    anchor: u32,
    offset: isize,
    /// The first bytes of the text, and a mask of them.
    head: [u64; 2],
    text: Box<[u8]>,
    before: ByteSet,
}

struct Classes {
    anchor: u32,
    offset: isize,
    sets: Vec<ByteSet>,
    before: ByteSet,
}

impl Confirm {
    /// Fails with words when there are too many needles.
    pub(super) fn new(needles: &[Needle], probes: &[Probe], buckets: &[usize]) -> Result<Self, String> {
        let mut all = Self {
            allowed: Box::new([[0; 256]; PROBE]),
            masks: [const { Vec::new() }; BUCKETS_MAX],
            slots: Box::new([0; 1 << SLOT_BITS]),
            links: Vec::new(),
            targets: Vec::new(),
            classes: Vec::new(),
        };
        let mut literals: BTreeMap<Alike, Vec<Literal>> = BTreeMap::new();
        for (((needle, probe), &bucket), anchor) in needles.iter().zip(probes).zip(buckets).zip(0..) {
            let (offset, before) = (probe.offset, needle.before);
            let bit = match &needle.text {
                NeedleText::Literal(text) => {
                    let (identity, length) = (all.identity(bucket, fixed(probe)), text.len());
                    let text = text.clone().into_boxed_slice();
                    let literal = Literal { anchor, offset, head: head(&text), text, before };
                    literals.entry(Alike { identity, offset, length }).or_default().push(literal);
                    bucket
                }
                NeedleText::Classes(_) if all.classes.len() == CLASSES_MAX => {
                    return Err(format!("more than {CLASSES_MAX} anchors of byte classes"));
                }
                NeedleText::Classes(sets) => {
                    all.classes.push(Classes { anchor, offset, sets: sets.clone(), before });
                    BUCKETS_MAX + all.classes.len() - 1
                }
            };
            for (set, allowed) in probe.sets.iter().zip(all.allowed.iter_mut()) {
                set.iter().for_each(|byte| allowed[usize::from(byte)] |= 1 << bit);
            }
        }
        for (alike, literals) in literals {
            all.add_alike(alike, literals)?;
        }
        Ok(all)
    }

    /// What literals of a bucket with these fixed bytes in their probes are found by.
    fn identity(&mut self, bucket: usize, (mask, key): (u64, u64)) -> u64 {
        let masks = &mut self.masks[bucket];
        let shape = masks.iter().position(|known| *known == mask).unwrap_or_else(|| {
            masks.push(mask);
            masks.len() - 1
        });
        identity(bucket, shape, key)
    }

    fn add_alike(&mut self, alike: Alike, literals: Vec<Literal>) -> Result<(), String> {
        let has_second = literals.len() > ALIKE_MAX && alike.length >= size_of::<u64>();
        if has_second {
            self.add(alike.identity, Target::Alike(alike))?;
        }
        for literal in literals {
            let identity = if has_second { alike.second(&literal.text) } else { Some(alike.identity) };
            self.add(identity.unwrap_or(alike.identity), Target::Literal(literal))?;
        }
        Ok(())
    }

    fn add(&mut self, identity: u64, target: Target) -> Result<(), String> {
        let slot = &mut self.slots[slot(identity)];
        self.links.push(Link { identity, next: *slot });
        self.targets.push(target);
        *slot = u16::try_from(self.links.len()).map_err(|_| "more than 65,535 literals".to_owned())?;
        Ok(())
    }

    /// Hands every needle with its probe at `text[at..]` to `found`. `word` is the text there, followed
    /// by zeros. The byte before a needle must be in the text too.
    #[inline(always)]
    pub(super) fn at(&self, text: Text<'_>, at: usize, word: [u8; 8], mut found: impl FnMut(Found)) {
        let mut bits = u64::MAX;
        for (allowed, byte) in self.allowed.iter().zip(word) {
            bits &= allowed[usize::from(byte)];
        }
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            match bit.checked_sub(BUCKETS_MAX) {
                None => self.literals(text, at, bit, u64::from_le_bytes(word), &mut found),
                Some(class) => self.classes[class].stands(text, at).into_iter().for_each(&mut found),
            }
        }
    }

    #[inline(always)]
    fn literals(&self, text: Text<'_>, at: usize, bucket: usize, word: u64, found: &mut impl FnMut(Found)) {
        for (shape, &mask) in self.masks[bucket].iter().enumerate() {
            self.chain(identity(bucket, shape, word & mask), |target| match target {
                Target::Literal(literal) => literal.stands(text, at).into_iter().for_each(&mut *found),
                Target::Alike(alike) => self.alike(text, at, *alike, found),
            });
        }
    }

    fn alike(&self, text: Text<'_>, at: usize, alike: Alike, found: &mut impl FnMut(Found)) {
        let start = at.checked_add_signed(-alike.offset);
        let stands = start.and_then(|start| text.bytes.get(start..start + alike.length));
        let Some(identity) = stands.and_then(|stands| alike.second(stands)) else { return };
        self.chain(identity, |target| {
            if let Target::Literal(literal) = target {
                literal.stands(text, at).into_iter().for_each(&mut *found);
            }
        });
    }

    #[inline(always)]
    fn chain(&self, identity: u64, mut each: impl FnMut(&Target)) {
        let mut next = usize::from(self.slots[slot(identity)]);
        while let Some(link) = next.checked_sub(1).map(|at| &self.links[at]) {
            if link.identity == identity {
                each(&self.targets[next - 1]);
            }
            next = usize::from(link.next);
        }
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        let text = |target: &Target| match target {
            Target::Literal(literal) => literal.text.len(),
            Target::Alike(_) => 0,
        };
        let literals: usize = self.targets.iter().map(text).sum();
        let sets: usize = self.classes.iter().map(|entry| size_of_val(entry.sets.as_slice())).sum();
        let masks: usize = self.masks.iter().map(|masks| size_of_val(masks.as_slice())).sum();
        size_of_val(&*self.slots)
            + masks
            + size_of_val(&*self.allowed)
            + size_of_val(self.links.as_slice())
            + size_of_val(self.targets.as_slice())
            + size_of_val(self.classes.as_slice())
            + literals
            + sets
    }
}

/// The fixed bytes of a probe, its bucket, and which of the bucket's masks they are under.
#[inline(always)]
fn identity(bucket: usize, shape: usize, key: u64) -> u64 {
    key | (bucket as u64) << (8 * PROBE) | (shape as u64) << (8 * PROBE + 8)
}

#[inline(always)]
fn slot(identity: u64) -> usize {
    (identity.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_BITS)) as usize
}

/// The first eight bytes, or as many as there are, and a mask of them.
fn head(text: &[u8]) -> [u64; 2] {
    let (mut head, mut mask) = ([0; 8], [0; 8]);
    for (at, &byte) in text.iter().take(8).enumerate() {
        (head[at], mask[at]) = (byte, u8::MAX);
    }
    [u64::from_le_bytes(head), u64::from_le_bytes(mask)]
}

/// Which bytes of a probe are fixed, and those bytes.
fn fixed(probe: &Probe) -> (u64, u64) {
    let (mut mask, mut key) = ([0; 8], [0; 8]);
    for (position, set) in probe.sets.iter().enumerate() {
        if let Some(byte) = set.only() {
            (mask[position], key[position]) = (u8::MAX, byte);
        }
    }
    (u64::from_le_bytes(mask), u64::from_le_bytes(key))
}

impl Alike {
    /// What the literal with this text is found by, of those that are alike.
    #[inline(always)]
    fn second(self, text: &[u8]) -> Option<u64> {
        let last = text.last_chunk().copied().map(u64::from_le_bytes)?;
        // Literals of any identity may share one: each is compared as a whole.
        Some(last.rotate_left(23) ^ self.identity.wrapping_mul(self.length as u64 | 1))
    }
}

impl Literal {
    #[inline(always)]
    fn stands(&self, text: Text<'_>, at: usize) -> Option<Found> {
        let start = at.checked_add_signed(-self.offset)?;
        let end = start + self.text.len();
        // Many literals may share a key; most differ soon.
        let head =
            text.bytes.get(start..).and_then(|rest| rest.first_chunk().copied().map(u64::from_le_bytes));
        if head.is_some_and(|head| (head ^ self.head[0]) & self.head[1] != 0) {
            return None;
        }
        let text = text.behind(&self.before, start, end)?;
        (text == &*self.text).then_some(Found { anchor: self.anchor, start, end })
    }
}

impl Classes {
    #[inline(always)]
    fn stands(&self, text: Text<'_>, at: usize) -> Option<Found> {
        let start = at.checked_add_signed(-self.offset)?;
        let end = start + self.sets.len();
        let text = text.behind(&self.before, start, end)?;
        let fits = |(&byte, set): (&u8, &ByteSet)| set.contains(byte);
        text.iter().zip(&self.sets).all(fits).then_some(Found { anchor: self.anchor, start, end })
    }
}
