//! From a place where a probe may stand to the needles that do stand there.
//!
//! The fixed bytes of a probe are a key of a hash table; which bytes of it are fixed is its *shape*, of
//! which there are few. Probes of classes have a bit each in four tables by byte instead.

use super::windows::{PROBE, Probe};
use super::{CLASSES_MAX, Needle, Text as NeedleText};
use crate::byteset::ByteSet;

/// Slots of the hash table, as a power of two.
const SLOT_BITS: u32 = 12;

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
    shapes: Vec<Shape>,
    /// By hash: one more than the index of the first entry, or 0.
    slots: Box<[u16; 1 << SLOT_BITS]>,
    entries: Vec<Entry>,
    /// By position in the probe and byte: the probes of classes that allow it there.
    classes: Box<[[u32; 256]; PROBE]>,
    class_entries: Vec<ClassEntry>,
}

/// Which bytes of a probe are fixed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    mask: u32,
}

struct Entry {
    shape: usize,
    key: u32,
    /// As in `slots`.
    next: u16,
    needle: Literal,
}

struct Literal {
    anchor: u32,
    offset: isize,
    text: Box<[u8]>,
    before: ByteSet,
}

struct ClassEntry {
    anchor: u32,
    offset: isize,
    sets: Vec<ByteSet>,
    before: ByteSet,
}

impl Confirm {
    /// Fails with words when there are too many needles.
    pub(super) fn new(needles: &[Needle], probes: &[Probe]) -> Result<Self, String> {
        let mut all = Self {
            shapes: Vec::new(),
            slots: Box::new([0; 1 << SLOT_BITS]),
            entries: Vec::new(),
            classes: Box::new([[0; 256]; PROBE]),
            class_entries: Vec::new(),
        };
        for ((needle, probe), anchor) in needles.iter().zip(probes).zip(0..) {
            match &needle.text {
                NeedleText::Literal(text) => {
                    let text = text.clone().into_boxed_slice();
                    all.add_literal(
                        Literal { anchor, offset: probe.offset, text, before: needle.before },
                        probe,
                    )?;
                }
                NeedleText::Classes(sets) => {
                    let sets = sets.clone();
                    all.add_classes(
                        ClassEntry { anchor, offset: probe.offset, sets, before: needle.before },
                        probe,
                    )?;
                }
            }
        }
        Ok(all)
    }

    fn add_literal(&mut self, needle: Literal, probe: &Probe) -> Result<(), String> {
        let (mut mask, mut key) = ([0; PROBE], [0; PROBE]);
        for (position, set) in probe.sets.iter().enumerate() {
            if let Some(byte) = set.only() {
                (mask[position], key[position]) = (u8::MAX, byte);
            }
        }
        let shape = Shape { mask: u32::from_le_bytes(mask) };
        let key = u32::from_le_bytes(key);
        let index = self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        let slot = &mut self.slots[shape.slot(key)];
        self.entries.push(Entry { shape: index, key, next: *slot, needle });
        *slot = u16::try_from(self.entries.len()).map_err(|_| "more than 65,535 literals".to_owned())?;
        Ok(())
    }

    fn add_classes(&mut self, needle: ClassEntry, probe: &Probe) -> Result<(), String> {
        if self.class_entries.len() == CLASSES_MAX {
            return Err(format!("more than {CLASSES_MAX} anchors of byte classes"));
        }
        let bit = 1 << self.class_entries.len();
        for (set, allowed) in probe.sets.iter().zip(self.classes.iter_mut()) {
            set.iter().for_each(|byte| allowed[usize::from(byte)] |= bit);
        }
        self.class_entries.push(needle);
        Ok(())
    }

    /// Hands every needle with its probe at `text[at..]` to `found`. `word` is the text there.
    /// The byte before a needle must be in the text too.
    #[inline(always)]
    pub(super) fn at(&self, text: Text<'_>, at: usize, word: [u8; PROBE], mut found: impl FnMut(Found)) {
        let number = u32::from_le_bytes(word);
        for (index, shape) in self.shapes.iter().enumerate() {
            let key = number & shape.mask;
            let mut next = self.slots[shape.slot(key)];
            while let Some(entry) = usize::from(next).checked_sub(1).map(|at| &self.entries[at]) {
                if entry.key == key && entry.shape == index {
                    entry.needle.stands(text, at).into_iter().for_each(&mut found);
                }
                next = entry.next;
            }
        }
        let mut classes = (0..PROBE).fold(u32::MAX, |all, p| all & self.classes[p][usize::from(word[p])]);
        while classes != 0 {
            let entry = &self.class_entries[classes.trailing_zeros() as usize];
            entry.stands(text, at).into_iter().for_each(&mut found);
            classes &= classes - 1;
        }
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        let literals: usize = self.entries.iter().map(|entry| entry.needle.text.len()).sum();
        let sets: usize = self.class_entries.iter().map(|entry| size_of_val(entry.sets.as_slice())).sum();
        size_of_val(&*self.slots)
            + size_of_val(&*self.classes)
            + size_of_val(self.entries.as_slice())
            + size_of_val(self.class_entries.as_slice())
            + size_of_val(self.shapes.as_slice())
            + literals
            + sets
    }
}

impl Shape {
    #[inline(always)]
    fn slot(self, key: u32) -> usize {
        (key.wrapping_add(self.mask).wrapping_mul(0x9e37_79b1) >> (32 - SLOT_BITS)) as usize
    }
}

impl Literal {
    #[inline(always)]
    fn stands(&self, text: Text<'_>, at: usize) -> Option<Found> {
        let start = at.checked_add_signed(-self.offset)?;
        let end = start + self.text.len();
        let text = text.behind(&self.before, start, end)?;
        (text == &*self.text).then_some(Found { anchor: self.anchor, start, end })
    }
}

impl ClassEntry {
    #[inline(always)]
    fn stands(&self, text: Text<'_>, at: usize) -> Option<Found> {
        let start = at.checked_add_signed(-self.offset)?;
        let end = start + self.sets.len();
        let text = text.behind(&self.before, start, end)?;
        let fits = |(&byte, set): (&u8, &ByteSet)| set.contains(byte);
        text.iter().zip(&self.sets).all(fits).then_some(Found { anchor: self.anchor, start, end })
    }
}
