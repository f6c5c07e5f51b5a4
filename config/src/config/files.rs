//! From files to a configuration: reading, merging, defaults, flags.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::read::{DetectorSection, Top, top};
use super::{CaFiles, Config, Resolvers, Roots, SecretFrom, TestBody, check};
use crate::bottle::{SecretSource, TokenSource};
use crate::detectors::{DetectorFile, DetectorsConfig, Merged};
use crate::inputs::{Inputs, files_of};
use crate::merge::merge;
use crate::problem::{Location, Problems};
use crate::yaml::{Cx, Node, Value, parse as parse_yaml};

/// Bytes of one configuration or detector file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Files that a configuration is made of.
const FILES_MAX: usize = 256;

/// The bounds of reading files, for the reference.
pub(crate) const READING_LIMITS: &[(&str, u64)] = &[
    ("bytes of one configuration or detector file", FILE_BYTES_MAX),
    ("files of one configuration", FILES_MAX as u64),
];

/// The name under which the embedded defaults stand in places.
pub(super) const EMBEDDED: &str = "(embedded defaults)";

/// What is in effect where nothing is configured.
const DEFAULTS: &str = include_str!("../../defaults.yaml");

/// What the caller knows and the files do not say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces `state_dir`.
    pub state_dir: Option<PathBuf>,
    /// Replaces `listen.proxy` where not empty.
    pub proxy: Vec<SocketAddr>,
    /// Replaces `listen.admin`.
    pub admin: Option<SocketAddr>,
    /// Whose process this is.
    pub environment: Environment,
    /// The built-in detectors as named texts. Without them, references to detectors are not checked.
    pub pack: Option<&'static [(&'static str, &'static str)]>,
}

/// What a process's environment says about where its state belongs.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `XDG_STATE_HOME`, where it is set and absolute.
    pub xdg_state_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// Whether the process is root's.
    pub root: bool,
}

impl Environment {
    /// The folder for state: `/var/lib/decant` for root and where no home is known, else `decant` in the XDG one.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        let xdg = self.xdg_state_home.clone().filter(|path| path.is_absolute());
        let folder = xdg.or_else(|| self.home.as_ref().map(|home| home.join(".local/state")));
        match folder {
            Some(folder) if !self.root => folder.join("decant"),
            _ => PathBuf::from("/var/lib/decant"),
        }
    }
}

/// Reads a configuration from files and folders; from none, the embedded defaults.
///
/// # Errors
/// Every problem of every file.
pub fn load(sources: &[PathBuf], overrides: &Overrides) -> Result<Config, Problems> {
    let mut reading = Reading::default();
    let texts = reading.sources(sources);
    reading.config(&texts, overrides)
}

/// Reads a configuration from the texts that an earlier one was read from, whatever its files say by now. The files are
/// watched all the same: that they differ counts as a change.
///
/// # Errors
/// Every problem of the texts.
pub fn load_texts(sources: &[PathBuf], texts: &Texts, overrides: &Overrides) -> Result<Config, Problems> {
    let mut reading = Reading { kept: texts.detectors.iter().cloned().collect(), ..Reading::default() };
    for folder in sources.iter().filter(|source| source.is_dir()) {
        reading.inputs.add_folder(folder, &files_of(folder).unwrap_or_default());
    }
    for (file, text) in &texts.files {
        reading.inputs.add_read(file, text.as_bytes());
    }
    reading.config(&texts.files, overrides)
}

/// Reads a configuration from one text, as if it were the file `name`.
///
/// # Errors
/// Every problem of it and of the files it names.
pub fn parse(name: &str, text: &str, overrides: &Overrides) -> Result<Config, Problems> {
    Reading::default().config(&[(PathBuf::from(name), text.to_owned())], overrides)
}

/// What one reading has come across.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) cx: Cx,
    pub(crate) inputs: Inputs,
    pub(crate) digest: Sha256,
    /// Texts that stand for files.
    kept: HashMap<PathBuf, String>,
    /// The detector files that were read.
    detectors: Vec<(PathBuf, String)>,
}

/// The texts of which a configuration was made: its own files and its detector files, the built-in ones apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// The configuration's files, in the order they were merged.
    pub files: Vec<(PathBuf, String)>,
    /// The detector files it names.
    pub detectors: Vec<(PathBuf, String)>,
}

impl Reading {
    /// The texts of all files, folders spread out in name order.
    fn sources(&mut self, sources: &[PathBuf]) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        for source in sources {
            if !source.is_dir() {
                files.push(source.clone());
                continue;
            }
            match files_of(source) {
                Ok(found) => {
                    self.inputs.add_folder(source, &found);
                    files.extend(found);
                }
                Err(error) => self.unreadable(source, &error.to_string()),
            }
        }
        if let Some(surplus) = files.get(FILES_MAX) {
            self.unreadable(surplus, &format!("more than {FILES_MAX} files: join some of them"));
        }
        files.truncate(FILES_MAX);
        files.into_iter().filter_map(|file| self.text_of(&file).map(|text| (file, text))).collect()
    }

    fn unreadable(&mut self, file: &Path, reason: &str) {
        self.cx.problem(&Location::start_of(file), format!("cannot be read: {reason}"));
    }

    /// The text of one file; what it says goes into the digest.
    pub(crate) fn text_of(&mut self, file: &Path) -> Option<String> {
        let kept = self.kept.get(file).map(|text| text.clone().into_bytes());
        let bytes = match kept.map_or_else(|| read_bounded(file), Ok) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.inputs.add_referenced(file);
                self.unreadable(file, &error.to_string());
                return None;
            }
        };
        self.inputs.add_read(file, &bytes);
        if bytes.len() as u64 > FILE_BYTES_MAX {
            self.unreadable(file, &format!("more than {FILE_BYTES_MAX} bytes: divide it"));
            return None;
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                let at = end_of(file, &error.as_bytes()[..error.utf8_error().valid_up_to()]);
                self.cx.problem(&at, "this is not UTF-8: save the file as UTF-8");
                None
            }
        }
    }

    fn config(mut self, texts: &[(PathBuf, String)], overrides: &Overrides) -> Result<Config, Problems> {
        let root = self.tree(texts);
        let top = top(&root, &mut self.cx);
        if let Some(top) = &top {
            check::whole(&root, top, &mut self.cx);
        }
        let detectors = top.as_ref().map(|top| self.detectors(&root, &top.detectors, overrides));
        self.cx.problems.into_result(&self.inputs)?;
        let (top, detectors) = top.zip(detectors).expect("a tree without problems is a configuration");
        let mut config = assemble(top, detectors, self.inputs, overrides);
        config.texts = Texts { files: texts.to_vec(), detectors: self.detectors };
        config.sha256 = flags(self.digest, overrides).finalize().into();
        config.watch_referenced();
        Ok(config)
    }

    /// All files merged, and under them the embedded sections that none of them names.
    fn tree(&mut self, texts: &[(PathBuf, String)]) -> Node {
        let mut merged = empty();
        for (file, text) in texts {
            self.digest.update((text.len() as u64).to_be_bytes());
            self.digest.update(text.as_bytes());
            let Some(node) = parse_yaml(&file.as_path().into(), text, &mut self.cx) else { continue };
            // Read by itself first: a value that a later file replaces must be right all the same.
            self.cx.partial = true;
            top(&node, &mut self.cx);
            self.cx.partial = false;
            merged = merge(merged, node, &mut self.cx);
        }
        self.digest.update(DEFAULTS.as_bytes());
        let defaults = parse_yaml(&Path::new(EMBEDDED).into(), DEFAULTS, &mut self.cx);
        under(merged, defaults.expect("the embedded defaults are YAML"))
    }

    fn detectors(
        &mut self,
        root: &Node,
        section: &DetectorSection,
        overrides: &Overrides,
    ) -> DetectorsConfig {
        let mut files = Vec::new();
        if let Some(pack) = overrides.pack.filter(|_| section.builtin) {
            files.extend(pack.iter().filter_map(|(name, text)| self.detector_file(Path::new(name), text)));
        }
        for file in &section.files {
            let Some(text) = self.text_of(file) else { continue };
            self.digest.update((text.len() as u64).to_be_bytes());
            self.digest.update(text.as_bytes());
            files.extend(self.detector_file(file, &text));
            self.detectors.push((file.clone(), text));
        }
        let complete = overrides.pack.is_some() || !section.builtin;
        let (mut merged, changes) = Merged::of(files);
        merged.quieten(section.newer, section.pinned);
        for change in changes.iter().chain(&section.overrides) {
            merged.change(change, complete, &mut self.cx);
        }
        if complete {
            check::detector_references(root, &merged, &mut self.cx);
        }
        merged.list.retain(|detector| detector.enabled);
        let DetectorSection { builtin, files, newer, pinned, .. } = section.clone();
        DetectorsConfig { builtin, files, newer, pinned, list: merged.list }
    }

    fn detector_file(&mut self, file: &Path, text: &str) -> Option<DetectorFile> {
        let node = parse_yaml(&file.into(), text, &mut self.cx)?;
        crate::detectors::read::detector_file(&node, &mut self.cx)
    }
}

/// Reads a detector file from its text, as if it were the file `name`.
///
/// # Errors
/// Every problem of it.
pub fn parse_detectors(name: &str, text: &str) -> Result<DetectorFile, Problems> {
    let mut reading = Reading::default();
    let file = reading.detector_file(Path::new(name), text);
    reading.cx.problems.into_result(&reading.inputs)?;
    Ok(file.expect("a tree without problems is a detector file"))
}

fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The place just after `text`, the beginning of `file`.
fn end_of(file: &Path, text: &[u8]) -> Location {
    let text = String::from_utf8_lossy(text);
    let line = u32::try_from(text.matches('\n').count() + 1).unwrap_or(u32::MAX);
    let column = text.rsplit('\n').next().map_or(0, |last| last.chars().count());
    Location { line, column: u32::try_from(column + 1).unwrap_or(u32::MAX), ..Location::start_of(file) }
}

fn empty() -> Node {
    Node { at: Location::start_of("(nothing)"), value: Value::Map(Vec::new()) }
}

/// `node` with those entries of `defaults` whose keys it lacks.
fn under(mut node: Node, defaults: Node) -> Node {
    if let (Value::Map(entries), Value::Map(more)) = (&mut node.value, defaults.value) {
        for (key, value) in more {
            if entries.iter().all(|(one, _)| one.text != key.text) {
                entries.push((key, value));
            }
        }
    }
    node
}

fn flags(mut digest: Sha256, overrides: &Overrides) -> Sha256 {
    let Overrides { state_dir, proxy, admin, .. } = overrides;
    digest.update(format!("{state_dir:?} {proxy:?} {admin:?}"));
    digest
}

fn assemble(top: Top, detectors: DetectorsConfig, inputs: Inputs, overrides: &Overrides) -> Config {
    let mut listen = top.listen;
    if !overrides.proxy.is_empty() {
        listen.proxy.clone_from(&overrides.proxy);
    }
    listen.admin = overrides.admin.unwrap_or(listen.admin);
    let state_dir = overrides.state_dir.clone().or(top.state_dir);
    Config {
        mode: top.mode,
        listen,
        state_dir: state_dir.unwrap_or_else(|| overrides.environment.state_dir()),
        memory_budget: top.memory_budget,
        limits: top.limits,
        ca: top.ca,
        upstream: top.upstream,
        allocator: top.allocator,
        bottles: top.bottles,
        policies: top.policies,
        detectors,
        secrets: top.secrets,
        exceptions: top.exceptions,
        tests: top.tests,
        log: top.log,
        metrics: top.metrics,
        sha256: [0; 32],
        inputs,
        texts: Texts::default(),
    }
}

impl Config {
    /// Watches the files that the configuration names and others read.
    fn watch_referenced(&mut self) {
        let mut named: Vec<PathBuf> = Vec::new();
        named.extend(self.ca.iter().flat_map(|CaFiles { cert, key }| [cert.clone(), key.clone()]));
        named.extend(self.upstream.roots.iter().filter_map(|roots| match roots {
            Roots::File(file) => Some(file.clone()),
            Roots::Bundled | Roots::System => None,
        }));
        if let Resolvers::File(file) = &self.upstream.resolvers {
            named.push(file.clone());
        }
        let tokens = self.bottles.iter().filter_map(|bottle| match &bottle.token {
            Some(TokenSource::Value(source)) => Some(source),
            _ => None,
        });
        let secrets = self.secrets.iter().filter_map(|secret| match &secret.from {
            SecretFrom::Value(source) => Some(source),
            SecretFrom::Folder(_) | SecretFrom::Canary => None,
        });
        named.extend(secrets.chain(tokens).filter_map(|source| match source {
            SecretSource::File(file) => Some(file.clone()),
            SecretSource::Env(_) => None,
        }));
        named.extend(self.tests.iter().filter_map(|test| match &test.body {
            TestBody::File(file) => Some(file.clone()),
            TestBody::Text(_) | TestBody::Empty => None,
        }));
        named.iter().for_each(|file| self.inputs.add_referenced(file));
        for secret in &self.secrets {
            if let SecretFrom::Folder(folder) = &secret.from {
                self.inputs.add_secrets(folder);
            }
        }
    }
}
