//! Isolation: what the network of the gateway's host (or container) must guarantee so that a source address is proof.
//!
//! A host that forwards would route between bottles, and one without reverse-path filtering takes packets with any
//! source. Invariant: with `listen.isolation: required` the gateway does not start where either is so, nor where it
//! cannot tell.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What is wrong with the network.
#[derive(Debug)]
pub(crate) enum Violation {
    /// The kernel's setting cannot be read.
    Unknown(PathBuf, std::io::Error),
    /// Packets are forwarded.
    Forwards(PathBuf),
    /// Sources are not checked against routes.
    Spoofable(PathBuf),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Forwards(path) => write!(
                f,
                "{} is on: bottles could reach each other through this host; set it to 0",
                path.display()
            ),
            Self::Spoofable(path) => {
                write!(f, "{} is not strict: sources could be spoofed; set it to 1", path.display())
            }
        }
    }
}

/// Checks the settings below `net` (`/proc/sys/net`; the kernel's `ip-sysctl`).
pub(crate) fn check(net: &Path) -> Result<(), Violation> {
    for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let path = net.join(file);
        match read(&path) {
            // A kernel without IPv6 forwards none of it.
            Err(Violation::Unknown(_, error))
                if error.kind() == std::io::ErrorKind::NotFound && file.starts_with("ipv6") => {}
            other => {
                if other? != "0" {
                    return Err(Violation::Forwards(path));
                }
            }
        }
    }
    check_filters(&net.join("ipv4/conf"))
}

/// For each interface the larger of its own value and that of `all` applies, and 2 is the loose one: all must be 1, and
/// no interface 2.
fn check_filters(interfaces: &Path) -> Result<(), Violation> {
    let unknown = |error| Violation::Unknown(interfaces.to_path_buf(), error);
    for entry in fs::read_dir(interfaces).map_err(unknown)? {
        let path = entry.map_err(unknown)?.path().join("rp_filter");
        let value = read(&path)?;
        let is_all = path.parent().is_some_and(|interface| interface.ends_with("all"));
        if (is_all && value != "1") || !matches!(value.as_str(), "0" | "1") {
            return Err(Violation::Spoofable(path));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Violation> {
    let text = fs::read_to_string(path).map_err(|error| Violation::Unknown(path.to_path_buf(), error))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_network_that_keeps_bottles_apart_passes() {
        let cases = [
            ("0", Some("0"), "1", true),
            ("1", Some("0"), "1", false),
            ("0", Some("1"), "1", false),
            ("0", None, "1", true),
            ("0", Some("0"), "2", false),
            ("0", Some("0"), "0", false),
        ];
        for (forward, forward6, filter, fine) in cases {
            let dir = tempfile::tempdir().unwrap();
            let put = |file: &str, value: &str| {
                let path = dir.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{value}\n")).unwrap();
            };
            put("ipv4/ip_forward", forward);
            put("ipv4/conf/all/rp_filter", filter);
            put("ipv4/conf/eth0/rp_filter", "0");
            if let Some(value) = forward6 {
                put("ipv6/conf/all/forwarding", value);
            }
            assert_eq!(check(dir.path()).is_ok(), fine, "{forward} {forward6:?} {filter}");
        }
        assert!(
            check(tempfile::tempdir().unwrap().path()).is_err(),
            "what cannot be read is not taken for fine"
        );
    }
}
