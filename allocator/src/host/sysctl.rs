//! The kernel settings that decide whether outgoing connections can take a leased port, and whether a bottle can send to the host.

use std::fs;
use std::ops::RangeInclusive;

use crate::pool::ports::PortSet;

/// Which ports the kernel picks by itself, and which of them it leaves alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ephemeral {
    pub(crate) range: RangeInclusive<u16>,
    pub(crate) reserved: PortSet,
}

impl Ephemeral {
    /// Reads both settings; none where they cannot be read.
    pub(crate) fn read() -> Option<Self> {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let reserved = fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
        Self::parse(&range, &reserved)
    }

    fn parse(range: &str, reserved: &str) -> Option<Self> {
        let mut bounds = range.split_ascii_whitespace().map(str::parse::<u16>);
        let (first, last) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
        let spans = reserved.trim().split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<u16>().ok()?..=last.trim().parse::<u16>().ok()?)
        });
        Some(Self { range: first..=last, reserved: spans.flatten().collect() })
    }

    /// The ports of `range` that an outgoing connection can be given.
    pub(crate) fn exposed(&self, range: &RangeInclusive<u16>) -> Option<RangeInclusive<u16>> {
        let open = |number: &u16| self.range.contains(number) && !self.reserved.contains(*number);
        let first = range.clone().find(open)?;
        let last = range.clone().rev().find(open)?;
        Some(first..=last)
    }

    /// The ports of `range` that the kernel leaves alone although its own range has them or not: `first-last` spans.
    pub(crate) fn protected(&self, range: &RangeInclusive<u16>) -> Vec<String> {
        let mut spans: Vec<(u16, u16)> = Vec::new();
        for number in range.clone().filter(|number| self.reserved.contains(*number)) {
            match spans.last_mut() {
                Some(span) if span.1.checked_add(1) == Some(number) => span.1 = number,
                _ => spans.push((number, number)),
            }
        }
        spans
            .into_iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect()
    }
}

/// Whether a bridge that is made now takes packets only from where it would send answers; none where that cannot be read. Without,
/// one that has no address takes every packet, and whoever sits on it can send to each of the host's addresses, unanswered.
pub(crate) fn bridges_check_sources() -> Option<bool> {
    let read = |which: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{which}/rp_filter")).ok();
    Some(["all", "default"].map(read).into_iter().collect::<Option<String>>()?.contains(['1', '2']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_is_what_the_kernel_may_pick() {
        let read = |range: &str, reserved: &str| Ephemeral::parse(range, reserved).expect("both parse");
        let pool = 20000..=29999;
        assert_eq!(read("32768\t60999\n", "\n").exposed(&pool), None);
        assert_eq!(read("1024 65535", "").exposed(&pool), Some(20000..=29999));
        assert_eq!(read("25000 60999", "").exposed(&pool), Some(25000..=29999));
        assert_eq!(read("25000 60999", "20000-29999").exposed(&pool), None);
        assert_eq!(read("25000 60999", "25000,25002-29999").exposed(&pool), Some(25001..=25001));
        assert_eq!(read("1 2", "8080,20000-20002,20005").protected(&pool), ["20000-20002", "20005"]);
        assert_eq!(Ephemeral::parse("", ""), None);
    }

    #[test]
    fn this_host_has_settings() {
        assert!(Ephemeral::read().is_some());
        assert!(bridges_check_sources().is_some());
    }
}
