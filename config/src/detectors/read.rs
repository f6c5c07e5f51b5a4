//! Reads detector files.

use std::collections::BTreeSet;

use super::{
    ContextSpec, DetectorFile, DetectorOverride, DetectorSpec, Directions, Examples, Home, IgnoreSpec,
    Severity,
};
use crate::policy::MatchAction;
use crate::problem::quoted;
use crate::value::digits;
use crate::yaml::{Cx, Fields, Node, Row, Section, Value, hex, identifier, read_all, text, word};

/// The longest match that a detector may ask the engine to hold, in bytes.
const LENGTH_MAX: u64 = 64 * 1024;

/// The farthest that a context word may stand, in bytes.
const WITHIN_MAX: u64 = 4096;

pub(crate) static FILE: Section = Section {
    path: "(detector file) ",
    rows: &[
        Row { key: "version", kind: "1", default: "1", words: "The format." },
        Row {
            key: "detectors",
            kind: "list of maps",
            default: "[]",
            words: "Detectors; one of a name that exists already replaces it.",
        },
        Row {
            key: "overrides",
            kind: "list of maps",
            default: "[]",
            words: "Changes to detectors of other files.",
        },
    ],
};

pub(crate) static DETECTOR: Section = Section {
    path: "(detector file) detectors[]",
    rows: &[
        Row {
            key: "id",
            kind: "name",
            default: "required",
            words: "The detector's name in findings, exceptions and metrics.",
        },
        Row { key: "description", kind: "text", default: "required", words: "What it finds." },
        Row { key: "tags", kind: "list of names", default: "[]", words: "Groups, for `tag:` terms." },
        Row {
            key: "direction",
            kind: "request | response | both",
            default: "request",
            words: "Which way it looks.",
        },
        Row {
            key: "severity",
            kind: "low | medium | high",
            default: "medium",
            words: "How much a match matters.",
        },
        Row { key: "pattern", kind: "regular expression", default: "required", words: "Over bytes." },
        Row {
            key: "keywords",
            kind: "list of texts",
            default: "from the pattern",
            words: "Literals of which each match holds one.",
        },
        Row {
            key: "max_length",
            kind: "number",
            default: "from the pattern",
            words: "The longest match in bytes; needed where the pattern has no bound.",
        },
        Row { key: "validate", kind: "name", default: "none", words: "A named check on the matched text." },
        Row { key: "context", kind: "map", default: "none", words: "Words that must stand near." },
        Row {
            key: "home",
            kind: "map, or list of maps",
            default: "nowhere",
            words: "Where a match is expected, in either direction: there it passes, counted.",
        },
        Row { key: "ignore", kind: "map", default: "nothing", words: "Matches that are none." },
        Row {
            key: "action",
            kind: "block | redact | alert",
            default: "block",
            words: "What a match leads to, unless a route's `on_match` says otherwise.",
        },
        Row {
            key: "enabled",
            kind: "true | false",
            default: "true",
            words: "`false` takes the detector out until an override lets it run.",
        },
        Row { key: "added", kind: "date", default: "none", words: "Since when the built-in pack has it." },
        Row {
            key: "examples",
            kind: "map",
            default: "none",
            words: "Texts that prove it; `decant check` runs them.",
        },
    ],
};

pub(crate) static CONTEXT: Section = Section {
    path: "(detector file) detectors[].context",
    rows: &[
        Row {
            key: "any",
            kind: "list of texts",
            default: "required",
            words: "One of these must stand near, in any case.",
        },
        Row { key: "within", kind: "number", default: "80", words: "How far before or after, in bytes." },
    ],
};

pub(crate) static HOME: Section = Section {
    path: "(detector file) detectors[].home",
    rows: &[
        Row {
            key: "hosts",
            kind: "list of hosts",
            default: "[]",
            words: "The hosts where a match is expected.",
        },
        Row {
            key: "surfaces",
            kind: "list of surfaces",
            default: "every one",
            words: "method, url, authorization, cookie, header, body, trailer, websocket.",
        },
    ],
};

pub(crate) static IGNORE: Section = Section {
    path: "(detector file) detectors[].ignore",
    rows: &[
        Row {
            key: "patterns",
            kind: "list of regular expressions",
            default: "[]",
            words: "Searched for in the matched text.",
        },
        Row { key: "sha256", kind: "list of hex", default: "[]", words: "Digests of whole matched texts." },
    ],
};

pub(crate) static EXAMPLES: Section = Section {
    path: "(detector file) detectors[].examples",
    rows: &[
        Row { key: "match", kind: "list of texts", default: "[]", words: "Texts with a match." },
        Row { key: "ignore", kind: "list of texts", default: "[]", words: "Texts without." },
    ],
};

pub(crate) static OVERRIDE: Section = Section {
    path: "(detector file) overrides[]",
    rows: &[
        Row { key: "id", kind: "name", default: "required", words: "The detector it changes." },
        Row {
            key: "enabled",
            kind: "true | false",
            default: "as it was",
            words: "`false` takes the detector out, `true` lets one run that its file leaves out.",
        },
        Row {
            key: "action",
            kind: "block | redact | alert",
            default: "as it was",
            words: "Replaces the action.",
        },
        Row {
            key: "severity",
            kind: "low | medium | high",
            default: "as it was",
            words: "Replaces the severity.",
        },
        Row {
            key: "home",
            kind: "map",
            default: "as it was",
            words: "Hosts are added to its own (the first, where there are several); surfaces, where written, replace that one's.",
        },
        Row {
            key: "ignore",
            kind: "map",
            default: "as it was",
            words: "Patterns and digests added to what it ignores.",
        },
    ],
};

pub(crate) fn detector_file(node: &Node, cx: &mut Cx) -> Option<DetectorFile> {
    let map = Fields::open(node, &FILE, cx)?;
    map.optional(cx, "version", version);
    let detectors = map.list(cx, "detectors", detector);
    let overrides = map.list(cx, "overrides", detector_override);
    refuse_twice(detectors.iter().map(|one| (&one.id, &one.at)), cx);
    refuse_twice(overrides.iter().map(|one| (&one.id, &one.at)), cx);
    Some(DetectorFile { detectors, overrides })
}

/// The version of a file's format.
pub(crate) fn version(node: &Node, cx: &mut Cx) -> Option<()> {
    node.parsed(cx, |text| match text {
        "1" => Ok(()),
        _ => Err(format!("{} is not a version of this format: write 1", quoted(text))),
    })
}

fn refuse_twice<'a>(
    ids: impl Iterator<Item = (&'a crate::name::Name, &'a crate::problem::Location)>,
    cx: &mut Cx,
) {
    let mut seen = BTreeSet::new();
    for (id, at) in ids {
        if !seen.insert(id) {
            cx.problem(at, format!("the id `{id}` stands twice in this list: rename one of them"));
        }
    }
}

fn detector(node: &Node, cx: &mut Cx) -> Option<DetectorSpec> {
    let map = Fields::open(node, &DETECTOR, cx)?;
    let id = map.required(cx, "id", identifier);
    let description = map.required(cx, "description", text);
    let pattern = map.required(cx, "pattern", text);
    Some(DetectorSpec {
        tags: map.any_scalars(cx, "tags", identifier).unwrap_or_default(),
        direction: map.optional(cx, "direction", word).unwrap_or(Directions::Request),
        severity: map.optional(cx, "severity", word).unwrap_or(Severity::Medium),
        keywords: map.any_scalars(cx, "keywords", text).unwrap_or_default(),
        max_length: map.optional(cx, "max_length", |node, cx| length(node, LENGTH_MAX, cx)),
        validate: map.optional(cx, "validate", identifier).map(|name| name.to_string()),
        context: map.optional(cx, "context", context),
        home: map.optional(cx, "home", homes).unwrap_or_default(),
        ignore: map.optional(cx, "ignore", ignore).unwrap_or_default(),
        action: map.optional(cx, "action", word).unwrap_or(MatchAction::Block),
        enabled: map.optional(cx, "enabled", Node::boolean).unwrap_or(true),
        added: map.optional(cx, "added", word),
        examples: map.optional(cx, "examples", examples).unwrap_or_default(),
        id: id?,
        description: description?,
        pattern: pattern?,
        at: node.at.clone(),
        places: map.places(),
    })
}

pub(crate) fn detector_override(node: &Node, cx: &mut Cx) -> Option<DetectorOverride> {
    let map = Fields::open(node, &OVERRIDE, cx)?;
    let id = map.required(cx, "id", identifier);
    Some(DetectorOverride {
        enabled: map.optional(cx, "enabled", Node::boolean),
        action: map.optional(cx, "action", word),
        severity: map.optional(cx, "severity", word),
        home: map.optional(cx, "home", home).unwrap_or_default(),
        ignore: map.optional(cx, "ignore", ignore).unwrap_or_default(),
        id: id?,
        at: node.at.clone(),
    })
}

fn length(node: &Node, most: u64, cx: &mut Cx) -> Option<usize> {
    node.parsed(cx, |text| {
        let number = digits(text).filter(|number| (1..=most).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| format!("{} is not a length in bytes: write 1 to {most}", quoted(text)))
    })
}

fn context(node: &Node, cx: &mut Cx) -> Option<ContextSpec> {
    let map = Fields::open(node, &CONTEXT, cx)?;
    let any = map.required_scalars(cx, "any", text);
    let within = map.optional(cx, "within", |node, cx| length(node, WITHIN_MAX, cx)).unwrap_or(80);
    Some(ContextSpec { any: any?, within })
}

/// One place, or several whose surfaces differ.
fn homes(node: &Node, cx: &mut Cx) -> Option<Vec<Home>> {
    match &node.value {
        Value::List(items) => Some(read_all(items, cx, home)),
        _ => home(node, cx).map(|one| vec![one]),
    }
}

fn home(node: &Node, cx: &mut Cx) -> Option<Home> {
    let map = Fields::open(node, &HOME, cx)?;
    let hosts = map.any_scalars(cx, "hosts", word).unwrap_or_default();
    let surfaces = map.scalars(cx, "surfaces", word);
    Some(Home { hosts, surfaces })
}

fn ignore(node: &Node, cx: &mut Cx) -> Option<IgnoreSpec> {
    let map = Fields::open(node, &IGNORE, cx)?;
    let patterns = map.any_scalars(cx, "patterns", text).unwrap_or_default();
    let sha256 = map.any_scalars(cx, "sha256", hex).unwrap_or_default();
    Some(IgnoreSpec { patterns, sha256 })
}

fn examples(node: &Node, cx: &mut Cx) -> Option<Examples> {
    let map = Fields::open(node, &EXAMPLES, cx)?;
    let matching = map.any_scalars(cx, "match", text).unwrap_or_default();
    let ignored = map.any_scalars(cx, "ignore", text).unwrap_or_default();
    Some(Examples { matching, ignored })
}
