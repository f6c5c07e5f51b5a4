//! How much memory this process may have, as the kernel says.
//!
//! Owns the reading of control groups, both versions, nested. Invariant: the smallest limit on the path from the
//! process's own group to the root counts, as far as this process can see it; what cannot be read or parsed is no limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Above this a group's limit stands for none: version 1 writes the largest multiple of a page instead of a word.
const UNLIMITED_FROM: u64 = 1 << 62;

/// The files that bound a group of version 2. Above `memory.high` processes are slowed down until nothing works.
const V2_FILES: [&str; 2] = ["memory.max", "memory.high"];

/// The file that bounds a group of version 1.
const V1_FILES: [&str; 1] = ["memory.limit_in_bytes"];

/// What the control groups of a process allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Limit {
    pub(crate) bytes: u64,
    /// Whether the kernel charges the memory of sockets to it: version 2 does.
    pub(crate) counts_sockets: bool,
}

/// The smallest memory limit of the control groups that this process is in. `root` is `/`, or a picture of it.
pub(crate) fn of_control_groups(root: &Path) -> Option<Limit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    mounts.lines().filter_map(Mount::parse).filter_map(|mount| mount.limit(root, &groups)).min()
}

/// A mounted hierarchy of control groups that counts memory.
struct Mount<'a> {
    /// Which group of the hierarchy is mounted.
    group: &'a str,
    point: &'a str,
    v2: bool,
}

impl<'a> Mount<'a> {
    /// Reads a line of `mountinfo` (proc(5)); `None` if it is something else.
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (group, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.next_back()?);
        let v2 = kind == "cgroup2";
        let counts = v2 || kind == "cgroup" && options.split(',').any(|option| option == "memory");
        counts.then_some(Self { group, point, v2 })
    }

    /// The group of this process below the mount point: the mount point itself where the group lies outside of what is
    /// mounted, as in a container that sees its own group alone.
    fn own_group(&self, groups: &'a str) -> Option<&'a str> {
        let group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let ours = if self.v2 {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|one| one == "memory")
            };
            ours.then_some(group)
        })?;
        let below = group.strip_prefix(self.group.trim_end_matches('/')).unwrap_or("");
        Some(if below.contains("..") { "" } else { below.trim_matches('/') })
    }

    fn limit(&self, root: &Path, groups: &str) -> Option<Limit> {
        let point = root.join(self.point.trim_start_matches('/'));
        let own = point.join(self.own_group(groups)?);
        let files: &[&str] = if self.v2 { &V2_FILES } else { &V1_FILES };
        let path = own.ancestors().take_while(|group| group.starts_with(&point));
        let on_path = path.flat_map(|group| files.iter().filter_map(|file| number(&group.join(file))));
        // Version 1 also says what groups above the mount point allow.
        let smallest = on_path.chain(hierarchical(&own)).filter(|bytes| *bytes < UNLIMITED_FROM).min();
        smallest.map(|bytes| Limit { bytes, counts_sockets: self.v2 })
    }
}

fn number(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn hierarchical(group: &Path) -> Option<u64> {
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNT: &str = "36 35 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    const V2_MOUNT: &str = "36 35 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    fn limit(mounts: &str, groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("a folder");
        let all = [("proc/self/mountinfo", mounts), ("proc/self/cgroup", groups)];
        for (path, text) in all.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("it is writable");
            fs::write(path, text).expect("it is writable");
        }
        of_control_groups(root.path()).map(|limit| limit.bytes)
    }

    #[test]
    fn the_smallest_limit_on_the_path_counts() {
        let (v1, v2) = ("3:cpu:/x\n2:hugetlb,memory:/a/b\n", "0::/a/b\n");
        let docker = "1 2 0:3 /docker/7f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Option<u64>);
        let cases: [Case<'_>; 9] = [
            (V2_MOUNT, v2, &[("sys/fs/cgroup/a/b/memory.max", "64\n")], Some(64)),
            (
                V2_MOUNT,
                v2,
                &[("sys/fs/cgroup/a/b/memory.max", "max\n"), ("sys/fs/cgroup/a/memory.max", "9")],
                Some(9),
            ),
            (
                V2_MOUNT,
                v2,
                &[("sys/fs/cgroup/a/memory.max", "9"), ("sys/fs/cgroup/a/memory.high", "7")],
                Some(7),
            ),
            (V2_MOUNT, v2, &[("sys/fs/cgroup/c/memory.max", "9")], None),
            (V2_MOUNT, "0::/../../x\n", &[("sys/fs/cgroup/memory.max", "5")], Some(5)),
            (V1_MOUNT, v1, &[("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "12")], Some(12)),
            (
                V1_MOUNT,
                v1,
                &[("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712")],
                None,
            ),
            (
                V1_MOUNT,
                v1,
                &[("sys/fs/cgroup/memory/a/b/memory.stat", "cache 0\nhierarchical_memory_limit 8\n")],
                Some(8),
            ),
            (
                docker,
                "4:memory:/docker/7f\n",
                &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "77")],
                Some(77),
            ),
        ];
        for (mounts, groups, files, expected) in cases {
            assert_eq!(limit(mounts, groups, files), expected, "{mounts} {groups} {files:?}");
        }
    }

    #[test]
    fn no_control_groups_are_no_limit() {
        assert_eq!(limit("1 2 0:3 / / rw - ext4 /dev/vda rw", "0::/\n", &[]), None);
    }
}
