//! A process seen from outside: its memory, its CPU time, its descriptors, its children, through `/proc`.
//!
//! Invariant: reading never disturbs the process, except [`Observed::reset_peak`], which only sets the kernel's own
//! high-water mark back.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Clock ticks per second in `/proc/PID/stat`: fixed at 100 in the Linux user ABI.
const TICKS_PER_SECOND: u64 = 100;

/// A process watched through `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed(u32);

impl Observed {
    /// The process with this id.
    #[must_use]
    pub const fn new(pid: u32) -> Self {
        Self(pid)
    }

    /// Its process id.
    #[must_use]
    pub const fn pid(self) -> u32 {
        self.0
    }

    /// Its peak resident memory in bytes since its start or the last reset.
    #[must_use]
    pub fn peak_resident(self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    /// Its resident memory in bytes now.
    #[must_use]
    pub fn resident(self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// Sets the peak back to what is resident now.
    pub fn reset_peak(self) {
        fs::write(self.path("clear_refs"), "5").expect("the peak can be reset");
    }

    /// User and system CPU time it has spent so far.
    #[must_use]
    pub fn cpu(self) -> Duration {
        let stat = fs::read_to_string(self.path("stat")).expect("the process lives");
        // The second field is the command in parentheses and may hold spaces: count from behind it.
        let rest = stat.rsplit(") ").next().expect("a stat line");
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: u64 = [11, 12].iter().map(|index| fields[*index].parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// Bytes that the kernel holds for its TCP sockets, in queues and set aside for them; nothing where `ss` is missing.
    #[must_use]
    pub fn socket_memory(self) -> u64 {
        let Ok(listed) = Command::new("ss").args(["-H", "-tmnpO"]).output() else { return 0 };
        let owner = format!("pid={},", self.0);
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        text.lines().filter(|line| line.contains(&owner)).map(skmem).sum()
    }

    /// The number of its open descriptors.
    #[must_use]
    pub fn descriptors(self) -> usize {
        fs::read_dir(self.path("fd")).expect("the process lives").count()
    }

    /// Its direct children.
    #[must_use]
    pub fn children(self) -> Vec<Self> {
        let path = self.path(&format!("task/{}/children", self.0));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Self).collect()
    }

    /// Sends it a signal; a process that is gone already is fine.
    pub fn signal(self, signal: Signal) {
        let raw = i32::try_from(self.0).expect("a process id");
        let _gone = Pid::from_raw(raw).map(|pid| kill_process(pid, signal));
    }

    fn status_kib(self, field: &str) -> u64 {
        let status = fs::read_to_string(self.path("status")).expect("the process lives");
        let line = status.lines().find(|line| line.starts_with(field)).expect("a memory field");
        line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("KiB")
    }

    fn path(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.0))
    }
}

/// What a line of `ss -m` says of one socket's memory (ss(8), `skmem`): received and unread, sent or queued and not
/// acknowledged (the larger of the two counts, as one covers the other), and set aside.
fn skmem(line: &str) -> u64 {
    let fields = line.split("skmem:(").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or("");
    let field = |name: &str| {
        // `f` can be a little below zero, which `ss` prints as if it had no sign.
        let value =
            |field: &str| field.strip_prefix(name)?.parse::<u32>().ok().filter(|bytes| *bytes < 1 << 31);
        fields.split(',').find_map(value).map_or(0, u64::from)
    };
    field("r") + field("t").max(field("w")) + field("f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_memory_is_read_from_the_line_of_ss() {
        let line = "ESTAB 0 0 127.0.0.1:1 127.0.0.1:2 users:((\"decant\",pid=7,fd=9)) \
                    skmem:(r100,rb131072,t20,tb2626560,f3,w40,o0,bl0,d0)";
        assert_eq!(skmem(line), 143);
        assert_eq!(skmem("ESTAB 0 0"), 0);
    }
}
