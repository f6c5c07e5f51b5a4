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

/// `value` behind `name`, in the notation of turn `at`.
pub(super) fn named(seeded: &mut Seeded, at: usize, name: &str, value: &str) -> Text {
    let number = seeded.below(9000) + 1000;
    let json = json(value);
    let (file, before, shown, after) = match at % 14 {
        0 => (
            "settings.json",
            format!("{{\n  \"service\": \"billing-{number}\",\n  \"region\": \"eu-west-1\",\n"),
            format!("  \"{name}\": \"{json}\""),
            ",\n  \"retries\": 3\n}\n".to_owned(),
        ),
        1 => (
            "response.json",
            format!("{{\"id\":{number},\"ok\":true,"),
            format!("\"{name}\":\"{json}\""),
            ",\"next\":null}".to_owned(),
        ),
        2 => (
            "values.yaml",
            format!("replicas: 2\nimage: registry.acme.io/app:{number}\nenv:\n"),
            format!("  {name}: \"{json}\"\n"),
            "  LOG_LEVEL: info\n".to_owned(),
        ),
        3 => (
            "deploy.yml",
            format!("# release {number}\nstages: [build, deploy]\n"),
            format!("{name}: {value}\n"),
            "timeout: 30\n".to_owned(),
        ),
        4 => (
            ".env",
            format!("PORT={number}\nNODE_ENV=production\n"),
            format!("{name}={value}\n"),
            "LOG=debug\n".to_owned(),
        ),
        5 => (
            "setup.sh",
            "#!/bin/sh\nset -eu\n".to_owned(),
            format!("export {name}='{value}'\n"),
            format!("exec ./server --port {number}\n"),
        ),
        6 => (
            "client.py",
            format!("import os\n\nTIMEOUT = {number}\n"),
            format!("{name} = \"{json}\"\n"),
            "\n\ndef connect():\n    return Client(timeout=TIMEOUT)\n".to_owned(),
        ),
        7 => (
            "index.js",
            "import {connect} from './net.js';\n\nexport const config = {\n".to_owned(),
            format!("  {name}: '{json}',\n"),
            format!("  retries: {number},\n}};\n"),
        ),
        8 => (
            "main.go",
            "package main\n\nfunc main() {\n".to_owned(),
            format!("\t{name} := \"{json}\"\n"),
            format!("\trun({number})\n}}\n"),
        ),
        9 => (
            "worker.log",
            format!("2026-11-02T10:11:12Z INFO worker {number} starts\n2026-11-02T10:11:13Z DEBUG env "),
            format!("{name}={value}"),
            " retries=3\n2026-11-02T10:11:14Z INFO ready\n".to_owned(),
        ),
        10 => (
            "page.html",
            format!("<!doctype html>\n<title>Setup {number}</title>\n<pre><code>"),
            format!("{name}={}", html(value)),
            "</code></pre>\n<p>Restart the service.</p>\n".to_owned(),
        ),
        11 => (
            "change.diff",
            format!("--- a/config\n+++ b/config\n@@ -{number},3 +{number},4 @@\n PORT=80\n"),
            format!("+{name}={value}\n"),
            " LOG=debug\n".to_owned(),
        ),
        12 => (
            "main.tf",
            "variable \"region\" {}\n\nlocals {\n".to_owned(),
            format!("  {name} = \"{json}\"\n"),
            format!("  count = {number}\n}}\n"),
        ),
        _ => (
            "notes.md",
            format!("# Ticket {number}\n\nThe worker fails when started with "),
            format!("`{name}={value}`"),
            " since Tuesday.\n".to_owned(),
        ),
    };
    Text::new(file, &before, &shown, &after)
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
