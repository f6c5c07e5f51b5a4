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
    let status = fs::read_to_string(format!("/proc/{peer}/status"))
        .map_err(|_| "the client's process cannot be read in /proc; name labels instead")?;
    translate(pid, peer, &pids_of(&status))
}

/// `pids`: the numbers of `peer` from this namespace down to its own.
///
/// One number alone: the client's namespace is this one, and so are its names for processes. That is read from its status, which is
/// open to everybody; its namespace links are open only to its own user and to capabilities that an allocator need not have.
fn translate(pid: i32, peer: i32, pids: &[i32]) -> Result<i32, &'static str> {
    match pids {
        // A /proc of another namespace than ours would speak of other processes.
        [outer, ..] if *outer != peer => {
            Err("/proc is of another PID namespace than the allocator; name labels instead")
        }
        [_] => Ok(pid),
        [.., inner] if *inner == pid => Ok(peer),
        _ => Err(
            "the process lives in another PID namespace than the allocator; name the client's own process, or labels",
        ),
    }
}

/// The numbers that a process has, from the reader's namespace down to its own.
fn pids_of(status: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect()
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
        assert!(resolve(1, Some(i32::MAX)).is_err(), "there is no such client");
    }

    #[test]
    fn a_peer_of_an_inner_namespace_may_name_itself_alone() {
        let cases: [(i32, &str, Option<i32>); 7] = [
            (77, "NSpid:\t900", Some(77)),
            (900, "NSpid:\t900", Some(900)),
            (1, "NSpid:\t900\t1", Some(900)),
            (2, "NSpid:\t900\t1", None),
            (7, "NSpid:\t900\t12\t7", Some(900)),
            (77, "NSpid:\t901", None),
            (77, "Name:\tx", None),
        ];
        for (pid, line, resolved) in cases {
            let status = format!("Name:\tx\nPid:\t900\n{line}\nThreads:\t1\n");
            assert_eq!(translate(pid, 900, &pids_of(&status)).ok(), resolved, "{pid} in {line:?}");
        }
    }

    #[test]
    fn a_boot_has_a_name() {
        assert_eq!(boot_id().len(), 36);
    }
}
