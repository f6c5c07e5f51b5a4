//! What a worker died of.
//!
//! Invariant: the kernel's word decides: the wait status, and whether the cgroup counted a kill for want of memory
//! since the worker began. Place: asked once, when a worker is reaped.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use rustix::process::{Signal, WaitStatus};

/// The causes that the metrics tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A fault of the program: SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP.
    Crash,
    /// It ended by itself.
    Exit,
    /// It was killed because it did not answer.
    Hang,
    /// Somebody killed it.
    Killed,
    /// The kernel killed it for want of memory.
    Oom,
    /// It was killed because it was not ready in time.
    Start,
}

impl Cause {
    /// Every cause.
    pub(super) const ALL: [Self; 6] =
        [Self::Crash, Self::Exit, Self::Hang, Self::Killed, Self::Oom, Self::Start];

    /// The name in metrics and logs.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Exit => "exit",
            Self::Hang => "hang",
            Self::Killed => "killed",
            Self::Oom => "oom",
            Self::Start => "start",
        }
    }

    /// Whether a request can have caused it.
    pub(super) const fn may_be_a_request(self) -> bool {
        matches!(self, Self::Crash | Self::Hang | Self::Oom)
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) cause: Cause,
    status: WaitStatus,
}

impl Death {
    /// Judges a wait status. `ours` is why the supervisor killed it, if it did; `out_of_memory`, whether the kernel
    /// killed a process of the cgroup since the worker began.
    pub(super) fn new(status: WaitStatus, ours: Option<Cause>, out_of_memory: bool) -> Self {
        let signal = status.terminating_signal();
        let is = |one: Signal| signal == Some(one.as_raw());
        let faults =
            [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE, Signal::SYS, Signal::TRAP];
        let cause = match ours {
            Some(cause) if is(Signal::KILL) => cause,
            _ if faults.into_iter().any(is) => Cause::Crash,
            _ if is(Signal::KILL) && out_of_memory => Cause::Oom,
            _ if signal.is_some() => Cause::Killed,
            _ => Cause::Exit,
        };
        Self { cause, status }
    }

    /// Its exit code, where it ended by itself.
    pub(super) fn exit_code(self) -> Option<i32> {
        self.status.exit_status()
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cause, self.status.terminating_signal(), self.status.exit_status()) {
            (Cause::Hang, ..) => f.write_str("did not answer and was killed"),
            (Cause::Start, ..) => f.write_str("was not ready in time and was killed"),
            (Cause::Oom, ..) => f.write_str("was killed by the kernel for want of memory"),
            (_, Some(signal), _) => write!(f, "ended by signal {signal}"),
            (_, _, Some(code)) => write!(f, "ended with exit code {code}"),
            _ => f.write_str("ended"),
        }
    }
}

/// How many processes of this cgroup the kernel has killed for want of memory so far; 0 where it does not say
/// (cgroup v2: `memory.events`; v1: `memory.oom_control`).
pub(super) fn kills_for_memory() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = groups.lines().flat_map(counters);
    files.filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| count(&text)).unwrap_or(0)
}

/// The files in which the count of a line of `/proc/self/cgroup` may stand. In a container the path may be the host's,
/// while only the container's own group is mounted.
fn counters(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.events"),
        v1 if v1.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.oom_control"),
        _ => return Vec::new(),
    };
    let below = PathBuf::from(root).join(path.trim_start_matches('/')).join(file);
    vec![below, PathBuf::from(root).join(file)]
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, ExitStatus};

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    /// The wait status of a shell that runs `script`.
    #[expect(clippy::zombie_processes, reason = "waited for by its id")]
    fn status_of(script: &str) -> WaitStatus {
        let child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let pid = rustix::process::Pid::from_child(&child);
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).expect("a child").expect("it ended");
        assert_eq!(ExitStatus::from_raw(status.as_raw()).code(), status.exit_status());
        status
    }

    #[test]
    fn causes_follow_from_status_and_circumstance() {
        let cases = [
            ("kill -SEGV $$", None, false, Cause::Crash, "ended by signal 11"),
            ("kill -ABRT $$", None, true, Cause::Crash, "ended by signal 6"),
            ("kill -KILL $$", None, false, Cause::Killed, "ended by signal 9"),
            ("kill -KILL $$", None, true, Cause::Oom, "was killed by the kernel for want of memory"),
            ("kill -KILL $$", Some(Cause::Hang), true, Cause::Hang, "did not answer and was killed"),
            ("kill -TERM $$", None, true, Cause::Killed, "ended by signal 15"),
            ("exit 78", None, true, Cause::Exit, "ended with exit code 78"),
            ("exit 0", Some(Cause::Start), false, Cause::Exit, "ended with exit code 0"),
        ];
        for (script, ours, out_of_memory, cause, words) in cases {
            let death = Death::new(status_of(script), ours, out_of_memory);
            assert_eq!((death.cause, death.to_string().as_str()), (cause, words), "{script}");
        }
    }

    #[test]
    fn the_count_is_looked_for_where_each_version_keeps_it() {
        let paths = |line: &str| -> Vec<String> {
            counters(line).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(paths("0::/a/b"), ["/sys/fs/cgroup/a/b/memory.events", "/sys/fs/cgroup/memory.events"]);
        assert_eq!(
            paths("9:memory:/docker/x"),
            ["/sys/fs/cgroup/memory/docker/x/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"]
        );
        assert!(paths("3:cpu,cpuacct:/").is_empty() && paths("").is_empty());
        assert_eq!(count("low 0\noom 3\noom_kill 2\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
