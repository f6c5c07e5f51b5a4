//! Where attempts lived in a chunk: what an escape in the middle of a match may have cut short.
//!
//! Invariant: every attempt that lived on to a byte is covered there by a span that begins no later. Spans that touch
//! are one.

/// Stretches of the stream, each from an attempt's start to the byte that ended it.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Adds an attempt that began at `start` and was ended by the byte at `end`, or is about to read it.
    pub(crate) fn note(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if start <= last.1 && last.0 <= end => *last = (last.0.min(start), last.1.max(end)),
            _ => self.0.push((start, end)),
        }
    }

    /// Puts the spans in order; before the first [`cover`](Self::cover).
    pub(crate) fn settle(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
    }

    /// The spans; after [`settle`](Self::settle) in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// The start of the span that reaches to the byte at `at` from before it.
    pub(crate) fn cover(&self, at: u64) -> Option<u64> {
        let behind = self.0.partition_point(|(start, _)| *start < at);
        let (start, end) = *self.0.get(behind.checked_sub(1)?)?;
        (end >= at).then_some(start)
    }
}
