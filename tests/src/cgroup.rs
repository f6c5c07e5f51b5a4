//! Control groups with a memory limit, to start a gateway in as a container engine would.
//!
//! Invariant: a group is made empty, holds what was started in it and nothing else, and is removed when dropped. Its
//! counters are the kernel's own. Both versions of cgroups are spoken; which one counts memory here, the host decides.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tools::skip;

/// Where the memory controller of version 1 is mounted.
const V1_ROOT: &str = "/sys/fs/cgroup/memory";

/// Where version 2 is mounted.
const V2_ROOT: &str = "/sys/fs/cgroup";

/// The files of one version by what they say.
#[derive(Clone, Copy, Debug)]
struct Files {
    limit: &'static str,
    /// The limit of memory and swap together (version 1) or of swap alone (version 2), and what it is set to.
    swap: (&'static str, Swap),
    usage: &'static str,
    peak: &'static str,
    events: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Swap {
    AsMemory,
    None,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    swap: ("memory.memsw.limit_in_bytes", Swap::AsMemory),
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};

const V2: Files = Files {
    limit: "memory.max",
    swap: ("memory.swap.max", Swap::None),
    usage: "memory.current",
    peak: "memory.peak",
    events: "memory.events",
};

/// A control group with a memory limit.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    files: Files,
    /// Somebody else made it, and removes it.
    is_foreign: bool,
}

impl Cgroup {
    /// A group of at most `bytes`; `None`, and a word about it, where this process may not make one.
    #[must_use]
    pub fn limited_to(bytes: u64) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (root, files) =
            if Path::new(V1_ROOT).join(V1.limit).exists() { (V1_ROOT, V1) } else { (V2_ROOT, V2) };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(root).join(format!("decant-test-{}-{number}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            skip(&format!("needs to make a cgroup below {root}: {error}"));
            return None;
        }
        let group = Self { folder, files, is_foreign: false };
        if let Err(error) = fs::write(group.path(files.limit), bytes.to_string()) {
            skip(&format!("needs the memory controller below {root}: {error}"));
            return None;
        }
        let swap = match files.swap.1 {
            Swap::AsMemory => bytes,
            Swap::None => 0,
        };
        // Kernels without swap accounting have no such file.
        let _absent = fs::write(group.path(files.swap.0), swap.to_string());
        Some(group)
    }

    /// The group that a container's engine has put the process `pid` in.
    ///
    /// # Panics
    /// Where it is in none that counts memory.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process lives");
        let group = |controller: &str| {
            groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|one| one == controller).then(|| path.trim_start_matches('/'))
            })
        };
        let (root, files, path) = match group("memory") {
            Some(path) => (V1_ROOT, V1, path),
            None => (V2_ROOT, V2, group("").expect("a group of version 2")),
        };
        Self { folder: Path::new(root).join(path), files, is_foreign: true }
    }

    /// A command that starts `program` in the group.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ >"$0" && exec "$@""#]).arg(self.path("cgroup.procs")).arg(program);
        command
    }

    /// Bytes that the kernel charges to it now.
    #[must_use]
    pub fn usage(&self) -> u64 {
        self.number(self.files.usage)
    }

    /// The most that it was charged at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.number(self.files.peak)
    }

    /// Bytes charged to it now that the kernel could not take back: all but the pages of files.
    #[must_use]
    pub fn unreclaimable(&self) -> u64 {
        let files = if self.counts_sockets() { "file" } else { "cache" };
        self.usage().saturating_sub(self.stat(files))
    }

    /// Processes of it that the kernel killed for want of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.field(self.files.events, "oom_kill")
    }

    /// A field of `memory.stat`, in bytes.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        self.field("memory.stat", name)
    }

    /// Whether the kernel charges it the memory of its sockets: version 2 does.
    #[must_use]
    pub fn counts_sockets(&self) -> bool {
        self.files.limit == V2.limit
    }

    fn field(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.path(file)).expect("the group is there");
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or(0)
    }

    fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.path(file)).expect("the group is there");
        text.trim().parse().expect("a number")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.is_foreign {
            let _still_used = fs::remove_dir(&self.folder);
        }
    }
}
