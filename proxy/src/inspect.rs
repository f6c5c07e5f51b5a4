//! Inspection: every byte of a message is scanned before it leaves, in constant memory.
//!
//! Invariant: a byte leaves only as [`hold::Cleared`], and only when nothing that a receiver could decode from the
//! bytes up to it is still undecided. No sockets, no tasks, no channels; the one timer is the hold's deadline.
//!
//! Place in the path: the exchange scans the head with [`HeadScan`], makes a [`BodyPlan`] for the body and hands
//! [`InspectBody`] to the side that sends it on. What was found goes to the exchange's [`Judge`].

mod body;
mod coding;
mod decode;
mod head;
mod hold;
mod inspector;
mod layer;
mod links;
mod seam;
mod signed;
mod verdict;
mod windows;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod throughput;

use std::sync::Arc;
use std::time::Duration;

use decant_config::Limits;
use decant_detectors::{RuleSet, Selection, ViewLimits};

pub(crate) use self::body::InspectBody;
pub(crate) use self::coding::{Coding, codings_of_body, parse_codings};
pub(crate) use self::head::{HeadScan, is_extension};
pub(crate) use self::inspector::Inspector;
pub(crate) use self::verdict::{
    Blocked, BodyError, Counts, Direction, Fixed, Hit, Judge, Place, Ruling, Surface, Trouble, TroubleKind,
};
pub(crate) use self::windows::Windows;
use crate::turns::Seat;

/// The limits of inspection, from the configuration's `limits`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectLimits {
    /// A body may expand this many times …
    pub(crate) decode_ratio: u64,
    /// … which is judged once it has expanded to more than this many bytes.
    pub(crate) decode_ratio_floor_bytes: u64,
    /// Bytes scanned in one poll, all layers together; then other exchanges get their turn.
    pub(crate) decode_output_per_poll_bytes: usize,
    /// The largest zstd window, in bytes.
    pub(crate) zstd_window_bytes: u64,
    /// The largest brotli window, in bytes.
    pub(crate) brotli_window_bytes: u64,
    /// Bytes in a header or frame of a coded body that no decoder shows.
    pub(crate) hidden_room_bytes: usize,
    /// Matches overwritten in one body.
    pub(crate) redactions: usize,
    /// Bytes of all trailer fields, names and values.
    pub(crate) trailer_bytes: usize,
    /// Wire bytes of one body that may wait for their verdict, beyond the chunk that is being scanned.
    pub(crate) hold_bytes: usize,
    /// A body announced to be this short is scanned to its end before its head is sent on.
    pub(crate) prime_bytes: usize,
    /// How long to wait for such a body to arrive.
    pub(crate) prime_timeout: Duration,
    /// How long bytes are held while their sender is silent.
    pub(crate) hold_deadline: Duration,
    /// What is undone inside a body, beside its content codings.
    pub(crate) views: ViewLimits,
}

impl From<&Limits> for InspectLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            decode_ratio: limits.decode_ratio,
            decode_ratio_floor_bytes: limits.decode_ratio_floor_bytes,
            decode_output_per_poll_bytes: limits.decode_output_per_poll_bytes,
            zstd_window_bytes: limits.zstd_window_bytes,
            brotli_window_bytes: limits.brotli_window_bytes,
            hidden_room_bytes: limits.hidden_room_bytes,
            redactions: limits.redactions,
            trailer_bytes: limits.trailer_bytes,
            hold_bytes: limits.hold_bytes,
            prime_bytes: limits.prime_bytes,
            prime_timeout: limits.prime_timeout,
            hold_deadline: limits.hold_deadline,
            views: ViewLimits {
                depth: limits.view_depth,
                streams: limits.view_streams,
                window_bytes: limits.view_window_bytes,
                ratio: limits.decode_ratio,
                ..ViewLimits::default()
            },
        }
    }
}

/// How to inspect one body.
#[derive(Clone)]
pub(crate) struct BodyPlan {
    /// The compiled detectors.
    pub(crate) rules: Arc<RuleSet>,
    /// Which of them look at this body.
    pub(crate) selection: Arc<Selection>,
    /// Whose body it is.
    pub(crate) direction: Direction,
    /// The content codings to undo, outermost first, as [`parse_codings`] returns them.
    pub(crate) codings: Vec<Coding>,
    /// Whether bytes of a match that is still undecided are held past the deadline. Requests always are.
    pub(crate) strict: bool,
    /// Why no match of the message may be overwritten, if so.
    pub(crate) fixed: Option<Fixed>,
    /// The limits.
    pub(crate) limits: InspectLimits,
    /// The memory of the exchange's decoders.
    pub(crate) windows: Windows,
    /// Where it asks for its turns on the CPU; `None` where nobody else wants any.
    pub(crate) seat: Option<Seat>,
    /// Who decides.
    pub(crate) judge: Arc<dyn Judge>,
}

impl BodyPlan {
    /// Why no match in the body may be overwritten, if so: overwriting coded bytes would break their coding.
    fn fixed(&self) -> Option<Fixed> {
        self.fixed.or((!self.codings.is_empty()).then_some(Fixed::Surface))
    }
}
