//! The log: what is written to stderr, and how.
//!
//! Invariants: an event is one line, whatever stands in it, since every control character is escaped; a line that
//! cannot be written is counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use decant_config::{LogFormat, LogLevel};
use serde::Serialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Lines that could not be written since the process began.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Starts the log on stderr, as `log` asks for. Called once, by the process that runs the gateway.
pub(crate) fn init_log(log: &decant_config::Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Other crates' lines can carry heads and addresses; only warnings of theirs are let through.
    let filter = Targets::new()
        .with_target("decant", level)
        .with_target("decant_proxy", level)
        .with_default(LevelFilter::WARN);
    let registry = tracing_subscriber::registry().with(filter);
    let output = fmt::layer().with_writer(stderr);
    let begun = match log.format {
        LogFormat::Json => registry.with(output.json().flatten_event(true)).try_init(),
        LogFormat::Text => registry.with(output.with_ansi(false)).try_init(),
    };
    if let Err(error) = begun {
        eprintln!("decant: the log could not be started: {error}");
    }
}

/// Writes `record` as one JSON line, whatever the log's level and form.
pub(crate) fn write_line(record: &impl Serialize) {
    let Ok(mut line) = serde_json::to_vec(record) else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    };
    line.push(b'\n');
    // It is counted there.
    let _ = stderr().write_all(&line);
}

/// Lines that could not be written so far.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

fn stderr() -> Lines<io::StderrLock<'static>> {
    Lines(io::stderr().lock())
}

/// Writes whole lines, control characters escaped. What is given to one `write` is one line.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.0.write_all(escaped(line).as_bytes());
        if written.is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// `line` with every control character but the newline at its end escaped, in a form that JSON reads back.
fn escaped(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let (text, end) = match text.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (&*text, ""),
    };
    let mut shown = String::with_capacity(line.len());
    for character in text.chars() {
        // The separators end lines for some readers, and the marks turn the direction of what follows.
        let steers =
            matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || steers {
            shown.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    shown + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_stands_in_it() {
        for (line, shown) in [
            ("plain ä\n", "plain ä\n"),
            ("two\nlines\r\n", "two\\u000alines\\u000d\n"),
            ("\u{1b}[31mred\u{7f}\u{9b}0m", "\\u001b[31mred\\u007f\\u009b0m"),
            ("a\u{2028}b\u{202e}c", "a\\u2028b\\u202ec"),
        ] {
            assert_eq!(escaped(line.as_bytes()), shown);
        }
    }

    #[test]
    fn json_reads_back_what_was_escaped() {
        let text = "a\u{7f}b\nc\u{85}d";
        let line = serde_json::to_string(text).expect("JSON");
        let read: String = serde_json::from_str(&escaped(line.as_bytes())).expect("JSON");
        assert_eq!(read, text);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let before = lost();
        assert!(Lines(Full).write(b"a line\n").is_err());
        assert!(lost() > before);
    }
}
