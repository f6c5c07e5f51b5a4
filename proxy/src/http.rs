//! HTTP, both ways: from the bottle's request to the answer it gets.

mod allowlist;
pub(crate) mod blocks;
pub(crate) mod cut_off;
pub(crate) mod exchange;
pub(crate) mod head;
pub(crate) mod holders;
pub(crate) mod internal;
pub(crate) mod presence;
pub(crate) mod rate;
pub(crate) mod refusal;
pub(crate) mod relief;
pub(crate) mod serve;
pub(crate) mod tunnel;
pub(crate) mod upload;
