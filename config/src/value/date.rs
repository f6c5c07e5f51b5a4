//! Dates of the Gregorian calendar, in UTC: `2027-01-31`.

use std::fmt;
use std::str::FromStr;

use super::digits;
use crate::problem::quoted;

const SECONDS_PER_DAY: u64 = 86_400;

/// A day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day; `None` where the calendar has no such day, or it lies before 1970.
    #[must_use]
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let exists = (1970..=9999).contains(&year) && day >= 1 && day <= days_in(year, month)?;
        exists.then_some(Self { year, month, day })
    }

    /// The day in which a moment lies, given in seconds since the Unix epoch.
    #[must_use]
    pub fn from_unix_seconds(seconds: u64) -> Self {
        let mut days = seconds / SECONDS_PER_DAY;
        let mut year = 1970;
        while year < 9999 && days >= u64::from(days_of_year(year)) {
            days -= u64::from(days_of_year(year));
            year += 1;
        }
        for month in 1..=12 {
            let length = u64::from(days_in(year, month).expect("a month from 1 to 12"));
            if days < length {
                let day = u8::try_from(days + 1).expect("a day within its month");
                return Self { year, month, day };
            }
            days -= length;
        }
        Self { year: 9999, month: 12, day: 31 }
    }

    /// The first second after this day, since the Unix epoch.
    #[must_use]
    pub fn end_unix_seconds(self) -> u64 {
        let years: u64 = (1970..self.year).map(|year| u64::from(days_of_year(year))).sum();
        let months: u64 = (1..self.month).filter_map(|month| days_in(self.year, month)).map(u64::from).sum();
        (years + months + u64::from(self.day)) * SECONDS_PER_DAY
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shaped = text.len() == 10
            && text.bytes().enumerate().all(|(at, byte)| matches!(at, 4 | 7) == (byte == b'-'));
        let number = |range: std::ops::Range<usize>| digits(text.get(range)?);
        let parts = || Some((number(0..4)?, number(5..7)?, number(8..10)?));
        let date = shaped.then(parts).flatten().and_then(|(year, month, day)| {
            Self::new(u16::try_from(year).ok()?, u8::try_from(month).ok()?, u8::try_from(day).ok()?)
        });
        date.ok_or_else(|| format!("{} is not a date: write one that exists, as in 2027-01-31", quoted(text)))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn days_of_year(year: u16) -> u16 {
    if is_leap(year) { 366 } else { 365 }
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u16, month: u8) -> Option<u8> {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if is_leap(year) { 29 } else { 28 }),
        _ => None,
    }
}
