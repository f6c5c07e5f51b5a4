//! Known values: read from where they are kept, and made for each bottle.
//!
//! Owns every value of `secrets` between its source and the engine. Invariants: a value that is configured is looked for,
//! or the configuration is refused; no message, log or `Debug` shows one, and each is overwritten when it is dropped.
//!
//! Place in the path: a rule book is compiled with what this reads; judges never see it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

use decant_config::{Config, Home, Limits, Location, Problem, SecretFrom, SecretSource, secret_files};
use zeroize::Zeroizing;

use crate::audit::Fingerprints;

/// What the names of known values begin with among those of detectors, which hold no colon.
const PREFIX: &str = "secret:";

/// The name of every known value in metrics: there may be thousands.
pub(crate) const FAMILY: &str = "secret";

/// Characters of a canary: those that all bottles' have in common, by which it is found, and those of its bottle.
const COMMON_CHARS: usize = 32;
const BOTTLE_CHARS: usize = 8;

/// What is looked for.
type Value = Zeroizing<Vec<u8>>;

/// One known value, ready for the engine.
#[derive(Clone)]
pub(crate) struct Secret {
    /// As findings name it.
    pub(crate) id: Arc<str>,
    pub(crate) value: Value,
    /// Where it may go; `None`: nowhere.
    pub(crate) to: Option<Home>,
    /// Where it was configured.
    pub(crate) at: Location,
}

impl fmt::Debug for Secret {
    /// Without the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The name in `secrets` of what a finding names `id`; `None` of a detector.
pub(crate) fn name_of(id: &str) -> Option<&str> {
    id.strip_prefix(PREFIX)
}

/// Reads every known value that `config` names.
///
/// # Errors
/// Every value that cannot be read, is empty, too long, or configured twice, each where it was written.
pub(crate) fn read(config: &Config) -> Result<Vec<Secret>, Vec<Problem>> {
    let (mut secrets, mut problems) = (Vec::new(), Vec::new());
    for entry in &config.secrets {
        let to = (!entry.hosts.is_empty())
            .then(|| Home { hosts: entry.hosts.clone(), surfaces: entry.surfaces.clone() });
        let mut add = |name: &str, value| {
            let id = format!("{PREFIX}{name}").into();
            secrets.push(Secret { id, value, to: to.clone(), at: entry.at.clone() });
        };
        let read = match &entry.from {
            SecretFrom::Value(source) => value(source, &config.limits).map(|value| add(&entry.name, value)),
            SecretFrom::Canary => {
                add(&entry.name, Canaries::of(&config.state_dir).common(&entry.name));
                Ok(())
            }
            SecretFrom::Folder(folder) => folder_values(folder, &config.limits).map(|all| {
                all.into_iter().for_each(|(file, value)| add(&format!("{}/{file}", entry.name), value));
            }),
        };
        if let Err(message) = read {
            let message = format!("secret `{}`: {message}", entry.name);
            problems.push(Problem { at: entry.at.clone(), message });
        }
    }
    problems.extend(too_many(&secrets, config.limits.secrets));
    problems.extend(twice(&secrets));
    if problems.is_empty() { Ok(secrets) } else { Err(problems) }
}

fn too_many(secrets: &[Secret], limit: usize) -> Option<Problem> {
    let first_over = secrets.get(limit)?;
    let message = format!(
        "`secrets` holds {} values in all, the limit is {limit}: raise limits.secrets, or use fewer",
        secrets.len()
    );
    Some(Problem { at: first_over.at.clone(), message })
}

/// Values that two entries have: neither could say where the value may go.
fn twice(secrets: &[Secret]) -> Vec<Problem> {
    let mut known: HashMap<&[u8], &Secret> = HashMap::new();
    let mut problems = Vec::new();
    for secret in secrets {
        if let Some(first) = known.insert(&secret.value, secret) {
            let (one, other) = (shown(&secret.id), shown(&first.id));
            let message = format!(
                "secret `{one}`: `{other}` has the same value; keep one of them, with the hosts of both"
            );
            problems.push(Problem { at: secret.at.clone(), message });
        }
    }
    problems
}

fn shown(id: &str) -> &str {
    name_of(id).unwrap_or(id)
}

/// Reads one value, without the newline at its end. No message holds any of it.
fn value(source: &SecretSource, limits: &Limits) -> Result<Value, String> {
    match source {
        SecretSource::Env(name) => {
            let value = std::env::var_os(name)
                .ok_or_else(|| format!("the environment variable `{name}` is not set"))
                .map(OsString::into_vec)?;
            checked(Zeroizing::new(value), limits, &format!("the environment variable `{name}`"))
        }
        SecretSource::File(path) => file_value(path, limits),
    }
}

fn file_value(path: &Path, limits: &Limits) -> Result<Value, String> {
    let named = format!("the file {}", path.display());
    // A little more than may be there tells that there is more.
    let most = limits.secret_bytes + 3;
    let mut value = Zeroizing::new(Vec::with_capacity(most));
    File::open(path)
        .and_then(|file| file.take(most as u64).read_to_end(&mut value))
        .map_err(|error| format!("{named} cannot be read: {error}"))?;
    checked(value, limits, &named)
}

fn checked(mut value: Value, limits: &Limits, named: &str) -> Result<Value, String> {
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    let limit = limits.secret_bytes;
    match value.len() {
        0 => Err(format!("{named} is empty: write the value there, or remove the secret")),
        length if length > limit => Err(format!(
            "{named} holds more than {limit} bytes (limits.secret_bytes): raise the limit, or keep the secret part of \
             it alone"
        )),
        _ => Ok(value),
    }
}

/// The values of a folder, by the names of their files.
fn folder_values(folder: &Path, limits: &Limits) -> Result<Vec<(String, Value)>, String> {
    let files = secret_files(folder)
        .map_err(|error: io::Error| format!("the folder {} cannot be read: {error}", folder.display()))?;
    if files.is_empty() {
        return Err(format!("the folder {} holds no file that is not hidden", folder.display()));
    }
    let named = |file: &Path| {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        name.map(str::to_owned).ok_or_else(|| {
            format!(
                "the name of {:?} is none: use letters, digits, `-`, `_` and `.`",
                file.display().to_string()
            )
        })
    };
    files.iter().map(|file| Ok((named(file)?, file_value(file, limits)?))).collect()
}

/// Makes canaries: values that look like secrets, one for each bottle, and open nothing.
///
/// They follow from the fingerprint key of the state folder, so that they stay the same over restarts and need no list.
pub(crate) struct Canaries(Option<Fingerprints>);

impl Canaries {
    /// Those of a state folder. Where it has no key yet, or none for us to read, they are of nobody's.
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self(Fingerprints::of(state_dir))
    }

    /// Those of a state folder, whose key is made if there is none.
    ///
    /// # Errors
    /// A folder that cannot be made, or a key that cannot be read or made.
    pub(crate) fn make(state_dir: &Path) -> io::Result<Self> {
        crate::app::prepare_state_dir(state_dir)?;
        Fingerprints::make(state_dir).map(Some).map(Self)
    }

    /// What all canaries of the secret `name` begin with, long enough to be found by.
    fn common(&self, name: &str) -> Value {
        Zeroizing::new(self.text(COMMON_CHARS, &["canary", name]).into_bytes())
    }

    /// The canary of `bottle` that the secret `name` makes.
    pub(crate) fn value(&self, name: &str, bottle: &str) -> Zeroizing<String> {
        Zeroizing::new(
            self.text(COMMON_CHARS, &["canary", name]) + &self.text(BOTTLE_CHARS, &["canary", name, bottle]),
        )
    }

    /// Letters and digits that follow from the key and `words`.
    fn text(&self, length: usize, words: &[&str]) -> String {
        const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let digest = match &self.0 {
            Some(key) => key.derive(words.join("\0").as_bytes()),
            None => Fingerprints::of_nobody().derive(words.join("\0").as_bytes()),
        };
        digest
            .iter()
            .take(length)
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use decant_config::{Overrides, parse};

    use super::*;

    fn config(secrets: &str) -> Config {
        let text = format!("version: 1\nlimits: {{secret_bytes: 64, secrets: 3}}\nsecrets:\n{secrets}\n");
        parse("a.yaml", &text, &Overrides::default()).expect("it is right")
    }

    fn problems(secrets: &str) -> Vec<String> {
        let problems = read(&config(secrets)).expect_err("it is refused");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_value_is_read_without_its_last_newline() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        for (written, value) in [
            (&b"abcdefghijkl"[..], &b"abcdefghijkl"[..]),
            (b"abcdefghijkl\n", b"abcdefghijkl"),
            (b"abcdefghijkl\r\n", b"abcdefghijkl"),
            (b"abc\ndefghijkl\n\n", b"abc\ndefghijkl\n"),
        ] {
            std::fs::write(&path, written).expect("a writable folder");
            let config = config(&format!("  - {{name: a, from: {{file: {}}}}}", path.display()));
            let secrets = read(&config).expect("it is fine");
            assert_eq!((&*secrets[0].id, &**secrets[0].value), ("secret:a", value));
            assert!(!format!("{secrets:?}").contains("abcdef"));
        }
    }

    #[test]
    fn a_value_that_cannot_be_looked_for_is_an_error_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        for (name, value) in
            [("empty", ""), ("newline", "\n"), ("long", &"x".repeat(65)), ("good", "a-good-value")]
        {
            std::fs::write(at(name), value).expect("a writable folder");
        }
        std::fs::create_dir(at("none")).expect("a writable folder");
        let file = |name: &str| format!("  - {{name: a, from: {{file: {}}}}}", at(name));
        let cases = [
            (
                file("empty"),
                format!("the file {} is empty: write the value there, or remove the secret", at("empty")),
            ),
            (
                file("newline"),
                format!("the file {} is empty: write the value there, or remove the secret", at("newline")),
            ),
            (
                file("gone"),
                format!("the file {} cannot be read: No such file or directory (os error 2)", at("gone")),
            ),
            (
                file("long"),
                format!(
                    "the file {} holds more than 64 bytes (limits.secret_bytes): raise the limit, or keep the secret \
                     part of it alone",
                    at("long")
                ),
            ),
            (
                "  - {name: a, from: {env: DECANT_TEST_NOT_SET}}".to_owned(),
                "the environment variable `DECANT_TEST_NOT_SET` is not set".to_owned(),
            ),
            (
                format!("  - {{name: a, from: {{dir: {}}}}}", at("none")),
                format!("the folder {} holds no file that is not hidden", at("none")),
            ),
            (
                format!("  - {{name: a, from: {{dir: {}}}}}", at("gone")),
                format!("the folder {} cannot be read: No such file or directory (os error 2)", at("gone")),
            ),
        ];
        for (secrets, message) in cases {
            assert_eq!(problems(&secrets), [format!("a.yaml:4:5: secret `a`: {message}")]);
        }
        let same = format!("{}\n{}", file("good"), file("good").replace("name: a", "name: b"));
        assert_eq!(
            problems(&same),
            ["a.yaml:5:5: secret `b`: `a` has the same value; keep one of them, with the hosts of both"]
        );
    }

    #[test]
    fn every_file_of_a_folder_is_a_value() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["one", "two", ".hidden"] {
            std::fs::write(folder.path().join(name), format!("value-{name}\n")).expect("a writable folder");
        }
        let entry = format!("  - {{name: all, from: {{dir: {}}}}}", folder.path().display());
        let secrets = read(&config(&entry)).expect("they are fine");
        let ids: Vec<&str> = secrets.iter().map(|one| &*one.id).collect();
        assert_eq!(ids, ["secret:all/one", "secret:all/two"]);
        for name in ["three", "four"] {
            std::fs::write(folder.path().join(name), format!("value-{name}")).expect("a writable folder");
        }
        assert_eq!(
            problems(&entry),
            [
                "a.yaml:4:5: `secrets` holds 4 values in all, the limit is 3: raise limits.secrets, or use fewer"
            ]
        );
        std::fs::write(folder.path().join("a b"), "value").expect("a writable folder");
        assert!(problems(&entry)[0].contains("use letters, digits, `-`, `_` and `.`"));
    }

    #[test]
    fn canaries_are_each_bottle_s_own_and_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let canaries = Canaries::make(folder.path()).expect("a writable folder");
        let (one, other) = (canaries.value("bait", "a"), canaries.value("bait", "b"));
        assert_eq!(one.len(), COMMON_CHARS + BOTTLE_CHARS);
        assert_ne!(*one, *other);
        assert_eq!(*Canaries::of(folder.path()).value("bait", "a"), *one);
        assert!(one.as_bytes().starts_with(&canaries.common("bait")));
        assert_ne!(*canaries.value("lure", "a"), *one);
        let elsewhere = tempfile::tempdir().expect("a folder");
        assert_ne!(*Canaries::make(elsewhere.path()).expect("a writable folder").value("bait", "a"), *one);
    }
}
