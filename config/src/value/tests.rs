use std::fmt::Debug;
use std::time::Duration;

use super::date::Date;
use super::duration::{parse_duration, show_duration};
use super::network::{parse_address, parse_network, parse_socket_address};
use super::port::parse_ports;
use super::size::{GIB, MIB, parse_size, show_size};

/// Reads each text and compares; `None` is a refusal.
fn check<T: PartialEq + Debug>(read: impl Fn(&str) -> Result<T, String>, cases: &[(&str, Option<T>)]) {
    for (text, wanted) in cases {
        assert_eq!(read(text).ok().as_ref(), wanted.as_ref(), "{text:?}");
    }
}

#[test]
fn sizes() {
    check(
        parse_size,
        &[
            ("0", Some(0)),
            ("65536", Some(65_536)),
            ("512B", Some(512)),
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("48MiB", Some(48 * MIB)),
            ("2GiB", Some(2 * GIB)),
            ("16777216GiB", Some(1 << 54)),
            ("17179869184GiB", None),
            ("99999999999999999999", None),
            ("64K", None),
            ("64KB", None),
            ("64kib", None),
            ("1.5MiB", None),
            ("-1", None),
            ("+1", None),
            ("1_000", None),
            ("0x10", None),
            ("MiB", None),
            ("", None),
            ("64KiB ", None),
        ],
    );
}

#[test]
fn durations() {
    let millis = |number| Some(Duration::from_millis(number));
    check(
        parse_duration,
        &[
            ("0s", millis(0)),
            ("250ms", millis(250)),
            ("30s", millis(30_000)),
            ("10m", millis(600_000)),
            ("2h", millis(7_200_000)),
            ("7d", millis(604_800_000)),
            ("1h30m", millis(5_400_000)),
            ("1m500ms", millis(60_500)),
            ("30m1h", None),
            ("1s1s", None),
            ("30", None),
            ("0", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("1 s", None),
            ("1min", None),
            ("99999999999999999999s", None),
            ("999999999999999999d", None),
        ],
    );
}

#[test]
fn what_is_shown_reads_back() {
    for bytes in [0, 1, 1000, 1024, 65_536, 48 * MIB, 3 * GIB, 1025, u64::MAX] {
        assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
    }
    for millis in [0, 1, 50, 250, 999, 1000, 60_000, 90_000, 604_800_000, 315_360_000_000] {
        let duration = Duration::from_millis(millis);
        assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
    }
}

#[test]
fn ports() {
    check(
        parse_ports,
        &[
            ("443", Some(443..=443)),
            ("8000-8100", Some(8000..=8100)),
            ("1-65535", Some(1..=65_535)),
            ("8000 - 8100", Some(8000..=8100)),
            ("0", None),
            ("0-10", None),
            ("65536", None),
            ("8100-8000", None),
            ("80,443", None),
            ("http", None),
            ("", None),
            ("-", None),
            ("80-", None),
            ("1-2-3", None),
        ],
    );
    assert_eq!(parse_ports("9-8"), Err("`9-8` is an empty range: write 8-9".into()));
}

#[test]
fn dates() {
    let date = Date::new;
    check(
        str::parse::<Date>,
        &[
            ("2027-01-31", date(2027, 1, 31)),
            ("2028-02-29", date(2028, 2, 29)),
            ("2000-02-29", date(2000, 2, 29)),
            ("1970-01-01", date(1970, 1, 1)),
            ("9999-12-31", date(9999, 12, 31)),
            ("2027-02-29", None),
            ("2100-02-29", None),
            ("2027-04-31", None),
            ("2027-00-10", None),
            ("2027-13-10", None),
            ("2027-01-00", None),
            ("1969-12-31", None),
            ("2027-1-31", None),
            ("31-01-2027", None),
            ("2027-01-31T00:00:00Z", None),
            ("20270131", None),
            ("２027-01-1", None),
            ("", None),
        ],
    );
}

#[test]
fn days_are_counted_in_utc() {
    let last_second = |text: &str| text.parse::<Date>().unwrap().end_unix_seconds() - 1;
    assert_eq!(last_second("1970-01-01"), 86_399);
    assert_eq!(last_second("2026-11-30"), 1_796_083_199);
    for text in ["1970-01-01", "1999-12-31", "2000-02-29", "2024-12-31", "2027-01-31", "2100-03-01"] {
        let day: Date = text.parse().unwrap();
        assert_eq!(Date::from_unix_seconds(last_second(text)), day);
        assert!(Date::from_unix_seconds(day.end_unix_seconds()) > day, "{text}");
    }
    assert_eq!(Date::from_unix_seconds(u64::MAX).to_string(), "9999-12-31");
}

#[test]
fn networks() {
    let net = |text: &str| Some(text.parse().unwrap());
    check(
        parse_network,
        &[
            ("10.0.0.0/8", net("10.0.0.0/8")),
            ("0.0.0.0/0", net("0.0.0.0/0")),
            ("192.0.2.1", net("192.0.2.1/32")),
            ("::1", net("::1/128")),
            ("2001:db8::/32", net("2001:db8::/32")),
            ("10.0.0.1/8", None),
            ("2001:db8::1/32", None),
            ("::ffff:10.0.0.0/104", None),
            ("::ffff:10.0.0.1", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/", None),
            ("10.0.0/8", None),
            ("010.0.0.0/8", None),
            ("example.org", None),
            ("", None),
        ],
    );
    assert_eq!(
        parse_network("10.0.0.1/8"),
        Err("`10.0.0.1/8` has bits set beyond its prefix: write 10.0.0.0/8".into())
    );
    assert!(parse_address("::ffff:1.2.3.4").unwrap_err().ends_with("write 1.2.3.4"));
    assert!(parse_socket_address("localhost:80").is_err());
    assert!(parse_socket_address("[::1]:80").is_ok());
}
