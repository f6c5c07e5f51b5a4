//! Presets: what common tools need to reach, kept as data.
//!
//! Invariant: a preset names a service's own hosts and those that it sends its clients on to, and no more than its
//! tool needs; each says when that was last checked.

use std::sync::LazyLock;

use crate::keyword::keywords;
use crate::name::Name;
use crate::policy::Route;
use crate::policy::read::{ROUTE, route as read_route};
use crate::value::date::Date;
use crate::yaml::{Cx, Fields, Node, Row, Section, parse, text, word};

keywords! {
    /// How much of a preset a route takes.
    pub enum Access {
        /// What changes nothing at the service.
        Read = "read",
        /// Everything the tool does.
        Full = "full",
    }
}

/// The routes of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, as in `use: NAME`.
    pub name: Name,
    /// What it is for.
    pub description: String,
    /// When its hosts were last held against the service's own words.
    pub checked: Date,
    /// What `access: read` stands for.
    pub read: Vec<Route>,
    /// What `access: full` adds.
    pub write: Vec<Route>,
    /// The text that it was read from, for people to read.
    pub yaml: &'static str,
}

impl Preset {
    /// The routes of one degree of access, in the order they are tried.
    pub fn routes(&self, access: Access) -> impl Iterator<Item = Route> {
        let write: &[Route] = if access == Access::Full { &self.write } else { &[] };
        self.read.iter().chain(write).cloned()
    }
}

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of every preset.
        const FILES: &[(&str, &'static str)] = &[$(($name, include_str!(concat!("../presets/", $name, ".yaml")))),+];
    };
}

files![
    "anthropic",
    "openai",
    "google-ai",
    "github",
    "gitlab",
    "npm",
    "pypi",
    "crates",
    "go",
    "debian",
    "ubuntu",
    "alpine",
    "docker-hub",
    "ghcr",
    "quay",
    "huggingface",
];

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let mut cx = Cx::default();
    let read = |(name, text): &(&str, &'static str)| read_preset(name, text, &mut cx);
    let presets: Vec<Preset> = FILES.iter().filter_map(read).collect();
    assert!(cx.problems.is_empty(), "the presets are checked by tests: {}", cx.problems);
    presets
});

/// Every preset, in the order of the reference.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    presets().iter().find(|preset| preset.name == name)
}

static PRESET: Section = Section {
    path: "",
    rows: &[
        Row { key: "description", kind: "text", default: "required", words: "" },
        Row { key: "checked", kind: "date", default: "required", words: "" },
        Row { key: "read", kind: "list of routes", default: "[]", words: "" },
        Row { key: "write", kind: "list of routes", default: "[]", words: "" },
    ],
};

fn read_preset(name: &str, yaml: &'static str, cx: &mut Cx) -> Option<Preset> {
    let file = std::path::PathBuf::from(format!("presets/{name}.yaml"));
    let root = parse(&file.into(), yaml, cx)?;
    let map = Fields::open(&root, &PRESET, cx)?;
    let name = Name::identifier(name).ok()?;
    let description = map.required(cx, "description", text);
    let checked = map.required(cx, "checked", word);
    let route = |node: &Node, cx: &mut Cx| {
        let route = read_route(&Fields::open(node, &ROUTE, cx)?, cx)?;
        Some(Route { preset: Some(name.clone()), ..route })
    };
    let read = map.list(cx, "read", route);
    let write = map.list(cx, "write", route);
    Some(Preset { name: name.clone(), description: description?, checked: checked?, read, write, yaml })
}
