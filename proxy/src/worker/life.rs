//! What makes a process a worker: whom it dies with, who may look into it, what is left of a panic.

use std::fs;
use std::panic;

use rustix::process::{
    DumpableBehavior, Pid, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
};

use crate::journal::Journal;

/// How much sooner than others the kernel kills this process for want of memory (proc_pid_oom_score_adj(5)): first of
/// all. The supervisor starts another one.
const OOM_SCORE_ADJUSTMENT: &str = "1000";

/// Binds this process to its supervisor.
///
/// # Errors
/// In words: the supervisor is gone already, or the kernel refuses.
pub(super) fn settle(supervisor: u32) -> Result<(), String> {
    // Raising is always allowed; where /proc is not writable the kernel decides without it.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT);
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("the worker cannot be bound to its supervisor: {error}"))?;
    // A supervisor that died before that would have gone unnoticed.
    let parent = getppid().map(Pid::as_raw_pid);
    if parent != i32::try_from(supervisor).ok() {
        return Err("the supervisor is gone".to_owned());
    }
    // Its memory holds keys and what bottles send: no core dump, no ptrace(2) by other processes of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("the worker cannot be kept from being dumped: {error}"))
}

/// Has panics logged, and noted in the journal. The message is a string of this program's own code.
pub(super) fn note_panics(journal: Journal) {
    panic::set_hook(Box::new(move |info| {
        let words = info.payload_as_str().unwrap_or("a panic without words");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let words = crate::cli::printable(words);
        journal.panicked(&format!("{words} at {place}"));
        tracing::error!(panic = words, place, "a task panicked; its exchange ends");
    }));
}
