//! Where the bytes of a view came from: offsets of what was decoded, and of the bytes it was decoded from.
//!
//! Invariant: the start of a decoded byte is never placed later than it is, its end never earlier. Past a cap of
//! segments the last one is a lump that grows, until earlier ones are forgotten: coarser in that direction, and never
//! without a step that made part of it.

use std::collections::VecDeque;

use super::ViewStep;

/// Segments kept at most; past them everything is part of the last one.
const SEGMENTS_MAX: usize = 512;

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
    decoded: u64,
    source: u64,
}

impl Map {
    /// A map that begins where these two offsets are the same place.
    pub(super) fn new(decoded: u64, source: u64) -> Self {
        Self { segments: VecDeque::new(), decoded, source }
    }

    /// Adds `decoded` bytes that came from the next `source` ones, in units of `unit`, by `step` if they differ.
    pub(super) fn add(&mut self, decoded: u64, source: u64, unit: (u32, u32), step: Option<ViewStep>) {
        let is_seen = decoded > 0 || step.is_some();
        let goes_on = self.segments.back().is_some_and(|last| {
            if last.unit != unit || last.step != step {
                return false;
            }
            let (units, rest) = match unit.0 {
                0 | LUMP => return false,
                1 => (self.decoded - last.decoded, 0),
                _ => (
                    (self.decoded - last.decoded) / u64::from(unit.0),
                    (self.decoded - last.decoded) % u64::from(unit.0),
                ),
            };
            rest == 0 && last.source + units * u64::from(unit.1) == self.source
        });
        if is_seen && !goes_on {
            let segment = Segment { decoded: self.decoded, source: self.source, unit, step };
            let is_full = self.segments.len() >= SEGMENTS_MAX;
            match self.segments.back_mut() {
                Some(last) if is_full => last.grow(self.source + source, step),
                _ => self.segments.push_back(segment),
            }
        }
        self.decoded += decoded;
        self.source += source;
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

    /// The first step that made one of the bytes from `start` to `end`, or nothing between two of them.
    pub(super) fn step_within(&self, start: u64, end: u64) -> Option<ViewStep> {
        let first = self.behind(start.saturating_sub(1));
        let ends = self.segments.iter().skip(first + 1).map(|next| next.decoded).chain([self.decoded]);
        let stretches = self.segments.iter().skip(first).zip(ends);
        stretches
            .take_while(|(segment, _)| segment.decoded <= end)
            .find(|(segment, stretch_end)| match segment.unit.0 {
                0 => segment.step.is_some() && start < segment.decoded && segment.decoded < end,
                _ => segment.step.is_some() && segment.decoded < end && *stretch_end > start,
            })
            .and_then(|(segment, _)| segment.step)
    }

    /// Forgets what lies before `decoded`.
    pub(super) fn forget(&mut self, decoded: u64) {
        while self.segments.get(1).is_some_and(|next| next.decoded < decoded) {
            self.segments.pop_front();
        }
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

impl Segment {
    /// Makes the segment a lump that ends at `end` in the source.
    fn grow(&mut self, end: u64, step: Option<ViewStep>) {
        self.unit = (LUMP, u32::try_from(end - self.source).unwrap_or(u32::MAX));
        self.step = self.step.or(step);
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
        assert_eq!(map.step_within(16, 18), Some(ViewStep::Percent));
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
        assert_eq!(map.step_within(end - 2, end), Some(ViewStep::Json), "a lump is never without its steps");
        map.forget(end);
        assert_eq!(map.start(end), map.source);
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
