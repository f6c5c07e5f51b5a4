//! The texts that credentials stand in: configuration, code, logs, pages, differences.
//!
//! Invariant: a text is one that a program would write or read, and says in which of its lines the credential stands.

use std::ops::RangeInclusive;

use super::Format;
use crate::seed::Seeded;

/// A text as a file would hold it.
#[derive(Clone, Debug)]
pub struct Text {
    /// Its name, which says of what kind it is.
    pub name: &'static str,
    /// What it says.
    pub content: String,
    /// The lines that the credential, or what looks like one, stands in, counted from 1.
    pub lines: RangeInclusive<usize>,
}

impl Text {
    pub(super) fn new(name: &'static str, before: &str, shown: &str, after: &str) -> Self {
        let first = before.matches('\n').count() + 1;
        let last = first + shown.trim_end_matches('\n').matches('\n').count();
        Self { name, content: format!("{before}{shown}{after}"), lines: first..=last }
    }
}

/// Names that say nothing.
const NEUTRAL: [&str; 4] = ["value", "credential", "k", "data"];

/// The text of turn `at` around `value`.
pub(super) fn text(seeded: &mut Seeded, at: usize, format: &Format, value: &str) -> Text {
    if format.name.is_empty() {
        return block(at, value);
    }
    let is_neutral = !format.is_named && at % 3 == 2;
    let name = if is_neutral { NEUTRAL[seeded.below(NEUTRAL.len())] } else { format.name };
    named(seeded, at, name, value)
}

/// Notations: a file's name, and what stands before the credential's lines, in them and behind them. `{name}`, `{number}` and
/// the value, as it is, as the inside of a string of JSON or as a page shows it, are put in.
const NOTATIONS: [(&str, &str, &str, &str); 14] = [
    (
        "settings.json",
        "{\n  \"service\": \"billing-{number}\",\n  \"region\": \"eu-west-1\",\n",
        "  \"{name}\": \"{json}\"",
        ",\n  \"retries\": 3\n}\n",
    ),
    ("response.json", "{\"id\":{number},\"ok\":true,", "\"{name}\":\"{json}\"", ",\"next\":null}"),
    (
        "values.yaml",
        "replicas: 2\nimage: registry.acme.io/app:{number}\nenv:\n",
        "  {name}: \"{json}\"\n",
        "  LOG_LEVEL: info\n",
    ),
    ("deploy.yml", "# release {number}\nstages: [build, deploy]\n", "{name}: {value}\n", "timeout: 30\n"),
    (".env", "PORT={number}\nNODE_ENV=production\n", "{name}={value}\n", "LOG=debug\n"),
    ("setup.sh", "#!/bin/sh\nset -eu\n", "export {name}='{value}'\n", "exec ./server --port {number}\n"),
    (
        "client.py",
        "import os\n\nTIMEOUT = {number}\n",
        "{name} = \"{json}\"\n",
        "\n\ndef connect():\n    return Client(timeout=TIMEOUT)\n",
    ),
    (
        "index.js",
        "import {connect} from './net.js';\n\nexport const config = {\n",
        "  {name}: '{json}',\n",
        "  retries: {number},\n};\n",
    ),
    ("main.go", "package main\n\nfunc main() {\n", "\t{name} := \"{json}\"\n", "\trun({number})\n}\n"),
    (
        "worker.log",
        "2026-11-02T10:11:12Z INFO worker {number} starts\n2026-11-02T10:11:13Z DEBUG env ",
        "{name}={value}",
        " retries=3\n2026-11-02T10:11:14Z INFO ready\n",
    ),
    (
        "page.html",
        "<!doctype html>\n<title>Setup {number}</title>\n<pre><code>",
        "{name}={html}",
        "</code></pre>\n<p>Restart the service.</p>\n",
    ),
    (
        "change.diff",
        "--- a/config\n+++ b/config\n@@ -{number},3 +{number},4 @@\n PORT=80\n",
        "+{name}={value}\n",
        " LOG=debug\n",
    ),
    ("main.tf", "variable \"region\" {}\n\nlocals {\n", "  {name} = \"{json}\"\n", "  count = {number}\n}\n"),
    (
        "notes.md",
        "# Ticket {number}\n\nThe worker fails when started with ",
        "`{name}={value}`",
        " since Tuesday.\n",
    ),
];

/// `value` behind `name`, in the notation of turn `at`.
pub(super) fn named(seeded: &mut Seeded, at: usize, name: &str, value: &str) -> Text {
    let number = (seeded.below(9000) + 1000).to_string();
    let (file, before, shown, after) = NOTATIONS[at % NOTATIONS.len()];
    let around = |text: &str| text.replace("{number}", &number).replace("{name}", name);
    // The value last: nothing in it is put in.
    let shown = around(shown);
    let shown = match shown.split_once("{json}") {
        Some((before, after)) => format!("{before}{}{after}", json(value)),
        None => match shown.split_once("{html}") {
            Some((before, after)) => format!("{before}{}{after}", html(value)),
            None => shown.replace("{value}", value),
        },
    };
    Text::new(file, &around(before), &shown, &around(after))
}

/// A text that is the credential: a key file, a document.
fn block(at: usize, value: &str) -> Text {
    let end = if value.ends_with('\n') { "" } else { "\n" };
    match at % 4 {
        0 => Text::new("key.txt", "", value, end),
        1 => Text::new("ticket.txt", "Here is what I use:\n\n", value, &format!("{end}\nThanks!\n")),
        2 => Text::new(
            "body.json",
            "{\"file\":\"upload\",\"content\":\"",
            &json(value),
            "\",\"mode\":\"0600\"}",
        ),
        _ => {
            let added: String = value.lines().map(|line| format!("+{line}\n")).collect();
            Text::new("change.diff", "--- /dev/null\n+++ b/secret\n@@ -0,0 +1,9 @@\n", &added, "")
        }
    }
}

/// As the inside of a string of JSON.
fn json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn html(value: &str) -> String {
    value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
