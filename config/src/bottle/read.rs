//! Reads bottles and the places of secrets.

use std::collections::BTreeMap;

use super::{Bottle, SecretSource, TokenSource};
use crate::config::SecretFrom;
use crate::name::Name;
use crate::problem::quoted;
use crate::value::network::{parse_address, parse_network};
use crate::yaml::{Cx, Fields, Node, Row, Section, hex, identifier, path, text, word};

const LABELS_MAX: usize = 16;
const LABEL_CHARS_MAX: usize = 128;

pub(crate) static BOTTLE: Section = Section {
    path: "bottles[]",
    rows: &[
        Row {
            key: "name",
            kind: "name",
            default: "required",
            words: "The bottle's name in logs and metrics.",
        },
        Row {
            key: "sources",
            kind: "list of networks",
            default: "required",
            words: "Where its connections come from. No two bottles may overlap.",
        },
        Row {
            key: "arrival",
            kind: "list of addresses",
            default: "any",
            words: "The gateway's own addresses that its connections arrive at.",
        },
        Row {
            key: "token",
            kind: "{env: NAME}, {file: PATH} or {sha256: HEX}",
            default: "none",
            words: "A second factor, sent in `Proxy-Authorization`.",
        },
        Row { key: "policy", kind: "name", default: "default", words: "The policy that judges it." },
        Row {
            key: "mode",
            kind: "enforce | observe",
            default: "the policy's",
            words: "Overrides the policy's and the global mode.",
        },
        Row {
            key: "labels",
            kind: "map of texts",
            default: "{}",
            words: "Words for logs; at most 16, each at most 128 characters long.",
        },
        Row {
            key: "before",
            kind: "name",
            default: "the end",
            words: "Places the bottle before the one of this name.",
        },
    ],
};

static TOKEN_SOURCE: Section = Section {
    path: "",
    rows: &[
        Row { key: "env", kind: "name", default: "", words: "" },
        Row { key: "file", kind: "path", default: "", words: "" },
        Row { key: "sha256", kind: "hex", default: "", words: "" },
    ],
};

pub(crate) fn bottle(node: &Node, cx: &mut Cx) -> Option<Bottle> {
    let map = Fields::open(node, &BOTTLE, cx)?;
    let name = map.required(cx, "name", identifier);
    let sources = map.required_scalars(cx, "sources", |node, cx| node.parsed(cx, parse_network));
    let arrival = map.scalars(cx, "arrival", |node, cx| node.parsed(cx, parse_address));
    let token = map.optional(cx, "token", token_source);
    let policy = map.optional(cx, "policy", identifier);
    let mode = map.optional(cx, "mode", word);
    let labels = map.optional(cx, "labels", labels).unwrap_or_default();
    map.optional(cx, "before", identifier);
    Some(Bottle {
        name: name?,
        sources: sources?,
        arrival,
        token,
        policy: policy.unwrap_or_else(default_policy),
        mode,
        labels,
        at: node.at.clone(),
    })
}

/// The policy of bottles that name none.
pub(crate) fn default_policy() -> Name {
    Name::new("default").expect("a valid name")
}

fn labels(node: &Node, cx: &mut Cx) -> Option<BTreeMap<String, String>> {
    let entries = node.entries(cx)?;
    if entries.len() > LABELS_MAX {
        return cx.refuse(node, format!("{} labels stand here: at most {LABELS_MAX} do", entries.len()));
    }
    let mut labels = BTreeMap::new();
    for (key, value) in entries {
        if let Err(message) = Name::identifier(&key.text) {
            cx.problem(&key.at, message);
        }
        if let Some(value) = value.parsed(cx, label) {
            labels.insert(key.text.clone(), value);
        }
    }
    Some(labels)
}

fn label(text: &str) -> Result<String, String> {
    if text.chars().count() > LABEL_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(format!(
            "{} is not a label: write up to {LABEL_CHARS_MAX} characters, none of them a control character",
            quoted(text)
        ));
    }
    Ok(text.to_owned())
}

fn token_source(node: &Node, cx: &mut Cx) -> Option<TokenSource> {
    let map = one_of(node, &TOKEN_SOURCE, cx, "{env: NAME}, {file: PATH} or {sha256: HEX}")?;
    let digest = map.optional(cx, "sha256", hex).map(TokenSource::Sha256);
    digest.or_else(|| secret_location(&map, cx).map(TokenSource::Value))
}

static SECRET_FROM: Section = Section {
    path: "",
    rows: &[
        Row { key: "env", kind: "name", default: "", words: "" },
        Row { key: "file", kind: "path", default: "", words: "" },
        Row { key: "dir", kind: "path", default: "", words: "" },
        Row { key: "canary", kind: "bottle", default: "", words: "" },
        Row { key: "sha256", kind: "hex", default: "", words: "" },
    ],
};

/// Where known values come from. The messages here never repeat what stands there: it may be the secret.
pub(crate) fn secret_from(node: &Node, cx: &mut Cx) -> Option<SecretFrom> {
    let wanted = "{env: NAME}, {file: PATH}, {dir: PATH} or {canary: bottle}";
    let map = one_of(node, &SECRET_FROM, cx, wanted)?;
    if map.get("sha256").is_some() {
        return cx.refuse(node, format!("a digest is not enough here: write {wanted}"));
    }
    let folder = map.optional(cx, "dir", path).map(SecretFrom::Folder);
    let canary = || map.optional(cx, "canary", for_bottle).map(|()| SecretFrom::Canary);
    folder.or_else(canary).or_else(|| secret_location(&map, cx).map(SecretFrom::Value))
}

fn for_bottle(node: &Node, cx: &mut Cx) -> Option<()> {
    match node.text(cx)? {
        "bottle" => Some(()),
        _ => cx.refuse(node, "write `bottle`: one is made for each bottle"),
    }
}

fn secret_location(map: &Fields<'_>, cx: &mut Cx) -> Option<SecretSource> {
    let file = map.optional(cx, "file", path).map(SecretSource::File);
    file.or_else(|| map.optional(cx, "env", variable).map(SecretSource::Env))
}

fn variable(node: &Node, cx: &mut Cx) -> Option<String> {
    let name = text(node, cx)?;
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        Some(name)
    } else {
        cx.refuse(node, "this is not the name of an environment variable: write letters, digits and `_`")
    }
}

fn one_of<'n>(node: &'n Node, section: &'static Section, cx: &mut Cx, wanted: &str) -> Option<Fields<'n>> {
    let keys = match &node.value {
        crate::yaml::Value::Map(entries) => entries.len(),
        _ => {
            return cx
                .refuse(node, format!("the value itself never stands in a configuration: write {wanted}"));
        }
    };
    let map = Fields::open(node, section, cx)?;
    if keys == 1 { Some(map) } else { cx.refuse(node, format!("write exactly one key: {wanted}")) }
}
