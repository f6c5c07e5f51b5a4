//! `decant finding`: what decided about one finding, and the narrowest exception that would accept it.
//!
//! Invariant: reads what the gateway wrote down, which holds no value; what it prints holds none either.

use std::fmt::Write as _;
use std::fs;

use decant_config::Date;
use serde_json::{Map, Value};

use super::args::FindingArgs;
use super::{Exit, Failure, load, print, printable};
use crate::audit::{self, FINDINGS_FILE};
use crate::exceptions::today;
use crate::secrets;

/// How long a suggested exception holds, in seconds.
const SUGGESTED_SECONDS: u64 = 30 * 86_400;

/// Runs the command.
pub(super) fn run(args: &FindingArgs) -> Result<Exit, Failure> {
    let config = load::config(&args.config)?;
    let mut found = Vec::new();
    for file in audit::findings_files(&config.state_dir, config.limits.findings_files) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        found.extend(
            text.lines().filter(|line| line.contains(&args.id)).filter_map(|line| parse(line, &args.id)),
        );
    }
    if found.is_empty() {
        return Err(Failure::usage(format!(
            "no finding or request `{}` in {}: what policy refused is no finding, its answer and the log say why",
            printable(&args.id),
            config.state_dir.join(FINDINGS_FILE).display()
        )));
    }
    print(&found.iter().map(|finding| shown(finding, today())).collect::<String>())
}

/// The finding of a line, if its own id or its request's is `id`.
fn parse(line: &str, id: &str) -> Option<Map<String, Value>> {
    let Value::Object(finding) = serde_json::from_str(line).ok()? else { return None };
    let is = |key: &str| finding.get(key).and_then(Value::as_str) == Some(id);
    (is("id") || is("request")).then_some(finding)
}

fn shown(finding: &Map<String, Value>, today: Date) -> String {
    let mut text = String::new();
    for (key, value) in finding {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        // A string takes all that is written to it.
        let _ = writeln!(text, "{key:<12} {}", printable(&value));
    }
    text + &exception(finding, today)
}

/// The narrowest exception, to paste.
fn exception(finding: &Map<String, Value>, today: Date) -> String {
    let detector = finding.get("detector").and_then(Value::as_str).unwrap_or_default();
    if let Some(name) = secrets::name_of(detector) {
        return format!(
            "\nno exception accepts a known value; if it may go there, name the host in `to` of the secret `{}`\n",
            printable(name)
        );
    }
    let word = |key: &str| finding.get(key).and_then(Value::as_str).map(quoted);
    let id = finding.get("id").and_then(Value::as_str).unwrap_or_default();
    let until = Date::from_unix_seconds(today.end_unix_seconds() - 1 + SUGGESTED_SECONDS);
    let mut text = format!("\nexceptions:\n  - name: accept-{}\n", printable(&id.to_ascii_lowercase()));
    let detector = word("detector").unwrap_or_default();
    let _ = writeln!(text, "    detector: {detector}");
    for (key, list) in
        [("bottle", "bottles"), ("host", "hosts"), ("surface", "surfaces"), ("fingerprint", "fingerprints")]
    {
        // A host that holds the value itself is masked: no pattern can name it.
        if let Some(value) = word(key).filter(|value| value != "\"(masked)\"") {
            let _ = writeln!(text, "    {list}: [{value}]");
        }
    }
    let _ = writeln!(text, "    action: alert\n    until: {until}\n    reason: \"why is this none?\"\n");
    text
}

/// As a YAML scalar: JSON's strings are some.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
