//! Where attempts lived in a chunk: what an escape in the middle of a match may have cut short.
//!
//! Invariant: every attempt that lived on to a byte where an escape may stand is covered there by a span that begins no
//! later. Spans that touch are one.

/// Stretches of the stream, each from an attempt's start to the byte that ended it.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    spans: Vec<(u64, u64)>,
    /// Where the chunk begins.
    start: u64,
    /// By byte of the chunk, one bit each: where an escape may stand.
    escapes: Vec<u64>,
}

impl Spans {
    /// No spans yet, of a chunk with escapes at these bits from `start` on.
    pub(crate) fn new(start: u64, escapes: Vec<u64>) -> Self {
        Self { spans: Vec::new(), start, escapes }
    }

    /// Adds an attempt that began at `start` and was ended by the byte at `end`, or is about to read it, if it may have
    /// met an escape.
    pub(crate) fn note(&mut self, start: u64, end: u64) {
        if !self.may_meet(start, end) {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if start <= last.1 && last.0 <= end => *last = (last.0.min(start), last.1.max(end)),
            _ => self.spans.push((start, end)),
        }
    }

    /// Whether an escape may stand behind `start`, up to `end`. Of what lies before the chunk nothing is known here.
    pub(crate) fn may_meet(&self, start: u64, end: u64) -> bool {
        let Some(first) = (start + 1).checked_sub(self.start) else { return true };
        let Some(last) = end.checked_sub(self.start).filter(|last| first <= *last) else { return false };
        let block = |at: u64| usize::try_from(at / 64).unwrap_or(usize::MAX);
        let blocks = self.escapes.get(block(first)..).unwrap_or_default();
        blocks.iter().take(block(last) - block(first) + 1).zip((first / 64 * 64..).step_by(64)).any(
            |(mask, base)| {
                let from = first.saturating_sub(base);
                let to = (last - base).min(63);
                mask & u64::MAX << from & u64::MAX >> (63 - to) != 0
            },
        )
    }

    /// Puts the spans in order; before the first [`cover`](Self::cover).
    pub(crate) fn settle(&mut self) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
    }

    /// The spans; after [`settle`](Self::settle) in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.spans.iter().copied()
    }

    /// The start of the span that reaches to the byte at `at` from before it.
    pub(crate) fn cover(&self, at: u64) -> Option<u64> {
        let behind = self.spans.partition_point(|(start, _)| *start < at);
        let (start, end) = *self.spans.get(behind.checked_sub(1)?)?;
        (end >= at).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_kept_where_it_meets_an_escape() {
        for escape in [0u64, 1, 62, 63, 64, 65, 127, 128, 200] {
            let mut escapes = vec![0; 4];
            escapes[usize::try_from(escape / 64).expect("small")] = 1 << (escape % 64);
            let spans = Spans::new(1000, escapes);
            for start in 990..1260u64 {
                for end in start..1260 {
                    let meets = start < 999 || (start < 1000 + escape && 1000 + escape <= end);
                    assert_eq!(spans.may_meet(start, end), meets, "{escape} in {start}-{end}");
                }
            }
        }
    }
}
