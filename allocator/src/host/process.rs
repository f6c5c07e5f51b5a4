//! Processes: whether an owner still lives, and which process a peer on the socket is.
//!
//! A process is its number and its start time, so the number's next bearer is not taken for it; a boot is its random ID.

use std::fs;

/// Clock ticks after boot at which the process started; none if there is no such process (or it is a zombie).
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in parentheses and may hold any character, so count from the last one.
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The present boot.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// The process that a client on the socket calls `pid`, as this process would call it.
///
/// A client may live in another PID namespace, where the number means another process. Then only the client itself can be named: its
/// own number inside is known to the kernel.
pub(crate) fn resolve(pid: i32, peer: Option<i32>) -> Result<i32, &'static str> {
    let peer = peer
        .filter(|peer| *peer > 0)
        .ok_or("the client's process is not visible from here; name labels instead")?;
    let own = fs::read_link("/proc/self/ns/pid").ok();
    if own.is_some() && fs::read_link(format!("/proc/{peer}/ns/pid")).ok() == own {
        return Ok(pid);
    }
    if inner_pid(peer) == Some(pid) {
        return Ok(peer);
    }
    Err(
        "the process lives in another PID namespace than the allocator; name the client's own process, or labels",
    )
}

/// The number that a process has in its own namespace.
fn inner_pid(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).expect("a PID fits")
    }

    #[test]
    fn this_process_lives_and_has_one_start() {
        let start = start_time(own_pid());
        assert!(start.is_some());
        assert_eq!(start, start_time(own_pid()));
        assert_eq!(start_time(i32::MAX), None);
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().expect("true exists");
        let pid = i32::try_from(child.id()).expect("a PID fits");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while start_time(pid).is_some() {
            assert!(std::time::Instant::now() < deadline, "the child never ended");
            std::thread::yield_now();
        }
        child.wait().expect("it can be reaped");
    }

    #[test]
    fn a_peer_of_this_namespace_may_name_any_process() {
        assert_eq!(resolve(1, Some(own_pid())), Ok(1));
        assert!(resolve(1, None).is_err());
        assert!(resolve(1, Some(0)).is_err());
    }

    #[test]
    fn a_boot_has_a_name() {
        assert_eq!(boot_id().len(), 36);
    }
}
