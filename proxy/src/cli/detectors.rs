//! `decant detectors` and `decant explain`: what runs, and what the engine makes of it.

use std::fmt::Write as _;

use decant_config::{Config, DetectorSpec, Home, HostPattern, Name};
use decant_detectors::{PART_BITS, PART_BYTES};

use super::args::{ConfigArgs, ExplainArgs};
use super::{Exit, Failure, load, print, printable};
use crate::rules::Detectors;
use crate::secrets;

/// Lists every detector, one a line.
pub(super) fn list(args: &ConfigArgs) -> Result<Exit, Failure> {
    let config = load::config(args)?;
    let mut text = String::new();
    for spec in &config.detectors.list {
        let tags: Vec<&str> = spec.tags.iter().map(Name::as_str).collect();
        let (id, direction, action) = (&spec.id, spec.direction, spec.action);
        line(
            &mut text,
            format_args!("{id:<36} {direction:<9} {action:<7} {:<7} {}", spec.severity, tags.join(",")),
        );
    }
    print(&text)
}

/// Explains one detector.
pub(super) fn explain(args: &ExplainArgs) -> Result<Exit, Failure> {
    let config = load::config(&args.config)?;
    if let Some(name) = secrets::name_of(&args.id) {
        return secret(&config, name);
    }
    let Some(spec) = config.detectors.list.iter().find(|spec| spec.id.as_str() == args.id) else {
        return Err(Failure::usage(format!(
            "no detector is called `{}`; `decant detectors` lists them",
            printable(&args.id)
        )));
    };
    print(&explanation(&config, spec)?)
}

/// Explains a known value by its entry; of the value itself nothing is said.
fn secret(config: &Config, name: &str) -> Result<Exit, Failure> {
    let entry = name.split('/').next().unwrap_or(name);
    let Some(secret) = config.secrets.iter().find(|secret| secret.name.as_str() == entry) else {
        return Err(Failure::usage(format!("no secret is called `{}`", printable(entry))));
    };
    let to = Home { hosts: secret.hosts.clone(), surfaces: secret.surfaces.clone() };
    let to = if secret.hosts.is_empty() { "nowhere".to_owned() } else { place(&to) };
    let mut text = String::new();
    line(&mut text, format_args!("secret:{name}: a known value, looked for in every request"));
    line(&mut text, format_args!("defined      {}", secret.at));
    line(&mut text, format_args!("action       block; no route, mode of matching or exception changes that"));
    line(&mut text, format_args!("expected     {to}"));
    line(
        &mut text,
        format_args!(
            "found        as it is, reversed, in any case and encoding, with other characters between its own, and in \
             parts of {PART_BYTES} bytes and {PART_BITS} bits or more"
        ),
    );
    print(&text)
}

fn explanation(config: &Config, spec: &DetectorSpec) -> Result<String, Failure> {
    let limits = crate::budget::detectors(&config.limits);
    let detectors =
        Detectors::compile(&config.detectors, &[], limits).map_err(|problems| load::report(&problems))?;
    let mut text = String::new();
    line(&mut text, format_args!("{}: {}", spec.id, printable(&spec.description)));
    line(&mut text, format_args!("defined      {}", spec.at));
    line(&mut text, format_args!("direction    {}", spec.direction));
    line(&mut text, format_args!("severity     {}", spec.severity));
    line(&mut text, format_args!("action       {}", spec.action));
    line(&mut text, format_args!("pattern      {}", printable(&spec.pattern)));
    line(&mut text, format_args!("validate     {}", spec.validate.as_deref().unwrap_or("none")));
    if let Some(context) = &spec.context {
        line(
            &mut text,
            format_args!("context      one of {} within {} bytes", context.any.join(", "), context.within),
        );
    }
    line(&mut text, format_args!("home         {}", home(spec)));
    if let Some(rule) = detectors.rules.rule_id(spec.id.as_str()) {
        let info = detectors.rules.info(rule);
        line(&mut text, format_args!("starts at    {}", printable(&info.anchor.to_string())));
        line(&mut text, format_args!("length       {} to {} bytes", info.min_length, info.max_length));
        line(&mut text, format_args!("looks back   {} bytes before what it starts at", info.look_behind));
        line(&mut text, format_args!("automaton    {} bytes", info.automaton_bytes));
    }
    for example in &spec.examples.matching {
        line(&mut text, format_args!("matches      {}", printable(example)));
    }
    for example in &spec.examples.ignored {
        line(&mut text, format_args!("ignores      {}", printable(example)));
    }
    Ok(text)
}

fn home(spec: &DetectorSpec) -> String {
    if spec.home.is_empty() {
        return "none: it acts everywhere".to_owned();
    }
    let place = |home| format!("expected {}", place(home));
    spec.home.iter().map(place).collect::<Vec<_>>().join("\n             ")
}

fn place(home: &Home) -> String {
    let hosts: Vec<String> = home.hosts.iter().map(HostPattern::to_string).collect();
    let surfaces: Vec<&str> = home.surfaces.iter().map(|surface| surface.as_str()).collect();
    let surfaces = if surfaces.is_empty() { "every surface".to_owned() } else { surfaces.join(", ") };
    format!("in {surfaces} with {}", hosts.join(", "))
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{line}");
}
