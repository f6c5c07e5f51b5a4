//! Where the bytes of a view came from: offsets of what was decoded, and of the bytes it was decoded from.
//!
//! Invariant: the start of a decoded byte is never placed later than it is, its end never earlier. Past a cap of
//! segments those behind the first few are one lump that grows: coarser in that direction, and never without a step that
//! made part of it. What came last, and what the oldest of what is undecided begins with, is always exact.

use std::collections::VecDeque;

use super::ViewStep;

/// Segments kept at most.
const SEGMENTS_MAX: usize = 512;

/// How many of the first stay out of the lump: what lies before the oldest of what is undecided, what is unseen in front
/// of that, and its beginning.
const FRONT: usize = 4;

/// The decoded bytes of a unit that is not told apart.
const LUMP: u32 = u32::MAX;

/// A stretch in which every `unit.0` decoded bytes came from `unit.1` bytes.
#[derive(Clone, Copy, Debug)]
struct Segment {
    decoded: u64,
    source: u64,
    unit: (u32, u32),
    step: Option<ViewStep>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Map {
    segments: VecDeque<Segment>,
    /// Segments that were added since the last [`forget`](Self::forget).
    fresh: usize,
    decoded: u64,
    source: u64,
}

impl Map {
    /// A map that begins where these two offsets are the same place.
    pub(super) fn new(decoded: u64, source: u64) -> Self {
        Self { segments: VecDeque::new(), fresh: 0, decoded, source }
    }

    /// Adds `decoded` bytes that came from the next `source` ones, in units of `unit`, by `step` if they differ.
    pub(super) fn add(&mut self, decoded: u64, source: u64, unit: (u32, u32), step: Option<ViewStep>) {
        let is_seen = decoded > 0 || step.is_some();
        let goes_on = self.segments.back().is_some_and(|last| {
            if last.unit.0 != unit.0 || last.step != step {
                return false;
            }
            let (units, rest) = match unit.0 {
                // Between the same two bytes.
                0 => return last.decoded == self.decoded,
                _ if last.unit != unit => return false,
                LUMP => return false,
                1 => (self.decoded - last.decoded, 0),
                _ => (
                    (self.decoded - last.decoded) / u64::from(unit.0),
                    (self.decoded - last.decoded) % u64::from(unit.0),
                ),
            };
            rest == 0 && last.source + units * u64::from(unit.1) == self.source
        });
        if is_seen && !goes_on {
            self.segments.push_back(Segment { decoded: self.decoded, source: self.source, unit, step });
            self.fresh += 1;
            if self.segments.len() > SEGMENTS_MAX {
                self.grow_lump();
            }
        }
        self.decoded += decoded;
        self.source += source;
    }

    /// Makes the segment behind the first few and the next one a lump.
    fn grow_lump(&mut self) {
        let end = self.segments.get(FRONT + 2).map_or(self.source, |behind| behind.source);
        let Some(next) = self.segments.remove(FRONT + 1) else { return };
        let lump = &mut self.segments[FRONT];
        lump.unit = (LUMP, u32::try_from(end - lump.source).unwrap_or(u32::MAX));
        lump.step = next.step.or(lump.step);
    }

    /// Adds `source` bytes that nothing came from.
    pub(super) fn skip(&mut self, source: u64) {
        self.add(0, source, (0, 1), None);
    }

    /// Adds `decoded` bytes that came from the next `source` ones in some way: all are placed at their start.
    pub(super) fn add_lump(&mut self, decoded: u64, source: u64) {
        self.add(decoded, source, (LUMP, u32::try_from(source).unwrap_or(u32::MAX)), None);
    }

    /// Where the byte at `decoded` begins in the source.
    pub(super) fn start(&self, decoded: u64) -> u64 {
        let Some(segment) = self.segments.get(self.behind(decoded)) else {
            return self.source - self.decoded.saturating_sub(decoded).min(self.source);
        };
        match decoded.checked_sub(segment.decoded) {
            None => segment.source.saturating_sub(segment.decoded - decoded),
            Some(_) if segment.unit.0 == LUMP && decoded >= self.decoded => self.source,
            Some(_) if segment.unit.0 == LUMP => segment.source,
            Some(distance) => {
                segment.source + scale(distance, segment.unit.0, segment.unit.1, u64::div_euclid)
            }
        }
    }

    /// Where the bytes before `decoded` end in the source.
    pub(super) fn end(&self, decoded: u64) -> u64 {
        let Some(segment) = self.segments.get(self.behind(decoded.saturating_sub(1))) else {
            return self.source - self.decoded.saturating_sub(decoded).min(self.source);
        };
        match decoded.checked_sub(segment.decoded) {
            None => segment.source.saturating_sub(segment.decoded - decoded),
            Some(_) if segment.unit == (LUMP, u32::MAX) => self.source,
            Some(_) if segment.unit.0 == LUMP => segment.source + u64::from(segment.unit.1),
            Some(distance) => segment.source + scale(distance, segment.unit.0, segment.unit.1, u64::div_ceil),
        }
    }

    /// The last step that made one of the bytes from `start` to `end`, or nothing between two of them.
    pub(super) fn step_within(&self, start: u64, end: u64) -> Option<ViewStep> {
        let count = self.segments.partition_point(|segment| segment.decoded < end);
        let mut stretch_end = self.segments.get(count).map_or(self.decoded, |next| next.decoded);
        for segment in self.segments.range(..count).rev() {
            let is_within = if segment.unit.0 == 0 { start < segment.decoded } else { start < stretch_end };
            if !is_within {
                return None;
            }
            if segment.step.is_some() {
                return segment.step;
            }
            stretch_end = segment.decoded;
        }
        None
    }

    /// Forgets what lies before `decoded`.
    pub(super) fn forget(&mut self, decoded: u64) {
        while self.segments.get(1).is_some_and(|next| next.decoded < decoded) {
            self.segments.pop_front();
        }
        self.fresh = 0;
    }

    /// Whether so much was added that what is decided of it should be forgotten, before the lump takes what is not.
    pub(super) fn is_due(&self) -> bool {
        self.fresh >= SEGMENTS_MAX / 2
    }

    /// Offset behind the last decoded byte.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Offset behind the last byte of the source.
    pub(super) fn source(&self) -> u64 {
        self.source
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>()
    }

    /// The last segment that begins at `decoded` or before.
    fn behind(&self, decoded: u64) -> usize {
        self.segments.partition_point(|segment| segment.decoded <= decoded).saturating_sub(1)
    }
}

fn scale(distance: u64, unit: u32, by: u32, divide: impl Fn(u64, u64) -> u64) -> u64 {
    if unit == 0 { 0 } else { divide(distance * u64::from(by), u64::from(unit)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_exact_in_every_kind_of_segment() {
        let mut map = Map::new(10, 10);
        map.add(5, 5, (1, 1), None); // 10..15 from 10..15
        map.add(1, 3, (1, 3), Some(ViewStep::Percent)); // 15 from 15..18
        map.add(1, 3, (1, 3), Some(ViewStep::Percent)); // 16 from 18..21
        map.add(0, 2, (0, 2), Some(ViewStep::Invisible)); // nothing from 21..23
        map.add(4, 4, (1, 1), None); // 17..21 from 23..27
        let cases =
            [(9, 9, 9), (10, 10, 10), (12, 12, 12), (15, 15, 15), (16, 18, 18), (17, 23, 21), (18, 24, 24)];
        for (decoded, start, end) in cases {
            assert_eq!((map.start(decoded), map.end(decoded)), (start, end), "{decoded}");
        }
        assert_eq!(map.step_within(10, 15), None);
        assert_eq!(map.step_within(14, 16), Some(ViewStep::Percent));
        assert_eq!(map.step_within(16, 18), Some(ViewStep::Invisible));
        assert_eq!(map.step_within(17, 20), None);
    }

    #[test]
    fn past_its_cap_a_map_is_coarse_and_never_wrong() {
        let mut map = Map::new(0, 0);
        for _ in 0..2 * SEGMENTS_MAX {
            map.add(1, 1, (1, 1), None);
            map.add(1, 6, (1, 6), Some(ViewStep::Json));
        }
        for decoded in 0..map.decoded() {
            let exact = decoded / 2 * 7 + decoded % 2;
            assert!(map.start(decoded) <= exact && map.end(decoded) >= exact, "{decoded}");
        }
        let end = map.decoded();
        assert_eq!(map.step_within(20, 22), Some(ViewStep::Json), "a lump is never without its steps");
        map.forget(end);
        assert_eq!(map.start(end), map.source);
    }

    #[test]
    fn past_its_cap_a_map_is_exact_where_it_begins_and_where_it_ends() {
        let mut map = Map::new(0, 0);
        for _ in 0..2 * SEGMENTS_MAX as u64 {
            map.add(20, 20, (1, 1), None);
            map.add(0, 1, (0, 1), Some(ViewStep::Utf16));
        }
        assert!(map.segments.len() <= SEGMENTS_MAX);
        let end = map.decoded();
        for decoded in (0..40).chain(end - 1000..end - 1) {
            let exact = decoded + decoded / 20;
            assert_eq!((map.start(decoded), map.end(decoded + 1)), (exact, exact + 1), "{decoded}");
            let is_split = decoded % 20 == 19;
            assert_eq!(map.step_within(decoded, decoded + 2).is_some(), is_split, "{decoded}");
        }
    }

    #[test]
    fn what_is_unseen_in_a_row_takes_one_segment() {
        let mut map = Map::new(0, 0);
        map.add(5, 5, (1, 1), None);
        for _ in 0..2 * SEGMENTS_MAX {
            map.add(0, 1, (0, 1), Some(ViewStep::Utf16));
        }
        map.add(5, 5, (1, 1), None);
        assert_eq!(map.segments.len(), 3);
        assert_eq!((map.start(4), map.end(5), map.start(5)), (4, 5, 5 + 2 * SEGMENTS_MAX as u64));
    }

    #[test]
    fn a_map_is_exact_again_once_its_beginning_is_forgotten() {
        let mut map = Map::new(0, 0);
        for unit in 0..20 * SEGMENTS_MAX as u64 {
            map.add(15, 15, (1, 1), None);
            map.add(0, 1, (0, 1), Some(ViewStep::Invisible));
            // Some ten units are always undecided.
            map.forget((unit * 15).saturating_sub(150));
            assert!(map.start(unit * 15) >= (unit * 16).saturating_sub(1), "{unit}");
        }
    }
}
