//! Several files and folders, and when they count as changed.

use std::path::{Path, PathBuf};

use decant_config::{Config, Mode, Overrides, Problems, load, load_texts};
use tempfile::TempDir;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn read(folder: &TempDir, sources: &[&str]) -> Result<Config, Problems> {
    let sources: Vec<PathBuf> = sources.iter().map(|name| folder.path().join(name)).collect();
    load(&sources, &Overrides::default())
}

/// All files of `texts` in one go, later ones over earlier ones.
fn merged(texts: &[&str]) -> Config {
    let names: Vec<String> = (0..texts.len()).map(|index| format!("{index}.yaml")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().copied()).collect();
    read(&folder(&files), &["."]).unwrap_or_else(|problems| panic!("{problems}"))
}

fn routes(config: &Config) -> Vec<&str> {
    config.policies["default"].routes.iter().map(|route| route.name.as_str()).collect()
}

fn bottles(config: &Config) -> Vec<&str> {
    config.bottles.iter().map(|bottle| bottle.name.as_str()).collect()
}

#[test]
fn later_files_win_by_key() {
    let config = merged(&[
        "mode: observe\nlog: {level: debug, format: text}\nlimits: {connections: 5000}",
        "log: {level: warn}\nlimits: {coding_layers: 2}",
    ]);
    assert_eq!(
        (config.mode, config.log.level.as_str(), config.log.format.as_str()),
        (Mode::Observe, "warn", "text")
    );
    assert_eq!((config.limits.connections, config.limits.coding_layers), (5000, 2));
}

#[test]
fn lists_without_names_are_replaced() {
    let config = merged(&["upstream: {roots: [system, bundled]}", "upstream: {roots: system}"]);
    assert_eq!(config.upstream.roots.len(), 1);
}

#[test]
fn named_things_merge_by_name() {
    let config = merged(&[
        "bottles: [{name: a, sources: 10.0.0.1, labels: {x: y}}, {name: b, sources: 10.0.0.2}]",
        "bottles: [{name: a, sources: 10.0.0.3}, {name: c, sources: 10.0.0.4}, {name: d, sources: 10.0.0.5, before: b}]",
    ]);
    assert_eq!(bottles(&config), ["a", "d", "b", "c"]);
    assert_eq!(config.bottles[0].sources[0].to_string(), "10.0.0.3/32");
    assert!(config.bottles[0].labels.is_empty(), "the later one replaces the whole");
}

#[test]
fn routes_merge_by_name_preset_or_first_host() {
    let base =
        "policies: {default: {routes: [{use: pypi}, {hosts: [a.test, b.test]}, {name: x, hosts: c.test}]}}";
    let over = |routes: &str| merged(&[base, &format!("policies: {{default: {{routes: [{routes}]}}}}")]);
    assert_eq!(routes(&over("{use: pypi, access: read}")), ["pypi", "a.test", "x"]);
    assert_eq!(routes(&over("{hosts: a.test, ports: 8443}")), ["pypi", "pypi/upload", "a.test", "x"]);
    assert_eq!(
        routes(&over("{name: x, hosts: d.test, before: a.test}")),
        ["pypi", "pypi/upload", "x", "a.test"]
    );
    assert_eq!(routes(&over("{hosts: d.test}")), ["pypi", "pypi/upload", "a.test", "x", "d.test"]);
    assert_eq!(
        routes(&over("{name: x, hosts: d.test, before: pypi}")),
        ["x", "pypi", "pypi/upload", "a.test"]
    );
    let two = over("{hosts: a.test, matches: [{methods: GET}]}, {hosts: a.test, action: deny}");
    assert_eq!(routes(&two), ["pypi", "pypi/upload", "a.test", "x", "a.test#2"]);
    let long = format!("{0}.{0}.{0}.test", "a".repeat(60));
    let two = over(&format!("{{hosts: {long}}}, {{hosts: {long}, action: deny}}"));
    assert_eq!(routes(&two)[4..], [&long[..120], &format!("{}#2", &long[..120])]);
}

#[test]
fn a_policy_may_be_spread_over_files() {
    let config =
        merged(&["policies: {default: {mode: observe}}", "policies: {default: {routes: [{hosts: a.test}]}}"]);
    assert_eq!(config.policies["default"].mode, Some(Mode::Observe));
}

#[test]
fn embedded_sections_stand_until_one_is_named() {
    let config = merged(&["log: {level: warn}"]);
    assert_eq!((bottles(&config), routes(&config)), (vec!["local"], vec!["public"]));
    let config = merged(&["policies: {default: {routes: [{hosts: a.test}]}}"]);
    assert_eq!((bottles(&config), routes(&config)), (vec!["local"], vec!["a.test"]));
    let config = merged(&["bottles: [{name: a, sources: 10.0.0.1}]"]);
    assert_eq!((bottles(&config), routes(&config)), (vec!["a"], vec!["public"]));
    let config = merged(&["bottles: []\npolicies: {}"]);
    assert!(config.bottles.is_empty() && config.policies.is_empty());
}

#[test]
fn a_later_null_takes_the_allocator_away() {
    let config = merged(&["allocator: {}", "allocator: null"]);
    assert_eq!(config.allocator, None);
    assert_eq!(merged(&["allocator: {}"]).allocator, Some("/run/decant/gateway.sock".into()));
}

#[test]
fn folders_are_read_in_name_order() {
    let files = [
        ("conf/20.yaml", "mode: enforce"),
        ("conf/10.yaml", "mode: observe\nlog: {level: debug}"),
        ("conf/.30.yaml", "mode: nonsense"),
        ("conf/readme.txt", "mode: nonsense"),
        ("conf/40.yml", "mode: nonsense"),
        ("last.yaml", "log: {level: warn}"),
    ];
    let config = read(&folder(&files), &["conf", "last.yaml"]).unwrap();
    assert_eq!((config.mode, config.log.level.as_str()), (Mode::Enforce, "warn"));
}

#[test]
fn each_value_keeps_its_own_folder() {
    let files = [
        ("one/a.yaml", "upstream: {roots: roots.pem}\ntls: {ca: {cert: cert.pem}}"),
        ("two/b.yaml", "tls: {ca: {key: key.pem}}"),
    ];
    let folder = folder(&files);
    let ca = read(&folder, &["one/a.yaml", "two/b.yaml"]).unwrap().ca.unwrap();
    assert_eq!(ca.cert, folder.path().join("one/cert.pem"));
    assert_eq!(ca.key, folder.path().join("two/key.pem"));
}

#[test]
fn every_problem_of_every_file_is_told() {
    let files = [
        ("a.yaml", "mode: wrong\nbottles: [{name: a, sources: 10.0.0.1}]"),
        ("b.yaml", "mode: enforce\nbottle: 1"),
        ("c.yaml", "log: {level: loud}\nlog: {}\nbottles: [{name: b, sources: 10.0.0.0/8}]"),
    ];
    let folder = folder(&files);
    let text = read(&folder, &["a.yaml", "b.yaml", "c.yaml", "d.yaml"]).unwrap_err().to_string();
    let folder = format!("{}/", folder.path().display());
    assert_eq!(
        text.replace(&folder, ""),
        "a.yaml:1:7: `wrong` is not `enforce` or `observe`\n\
         b.yaml:2:1: unknown key `bottle` (did you mean `bottles`?)\n\
         c.yaml:1:14: `loud` is not `error`, `warn`, `info`, `debug` or `trace`\n\
         c.yaml:2:1: duplicate key `log`: it stands in line 1 already; keep one of them\n\
         c.yaml:3:11: the source 10.0.0.0/8 of bottle `b` overlaps 10.0.0.1/32 of `a` at a.yaml:2:11: no connection may fit two bottles\n\
         d.yaml:1:1: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn what_is_no_text_is_refused_where_it_stops_being_one() {
    let folder = folder(&[]);
    std::fs::write(folder.path().join("a.yaml"), b"mode: enforce\n\xc3\xa4: \xff").unwrap();
    let problems = read(&folder, &["a.yaml"]).unwrap_err();
    let at = &problems.iter().next().unwrap().at;
    assert_eq!((at.line, at.column), (2, 4));
}

#[test]
fn large_files_are_refused() {
    let folder = folder(&[("a.yaml", &"# comment\n".repeat(500_000))]);
    let problems = read(&folder, &["a.yaml"]).unwrap_err();
    assert!(
        problems.to_string().ends_with("cannot be read: more than 4194304 bytes: divide it"),
        "{problems}"
    );
}

#[test]
fn changes_are_seen_by_content() {
    let folder = folder(&[
        ("conf/a.yaml", "detectors: {builtin: false, files: [../d.yaml]}\nupstream: {roots: [../roots.pem]}"),
        ("d.yaml", "detectors: []"),
        ("roots.pem", "one"),
    ]);
    let path = |name: &str| folder.path().join(name);
    let load = || read(&folder, &["conf"]).unwrap();
    let config = load();
    assert_eq!(config.inputs.changed(), None);
    let rewrite = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();

    rewrite("conf/a.yaml", &std::fs::read_to_string(path("conf/a.yaml")).unwrap());
    assert_eq!(config.inputs.changed(), None, "the same content is no change");
    rewrite("roots.pem", "two");
    assert_eq!(config.inputs.changed(), Some(path("conf/../roots.pem").as_path()));
    assert_eq!(load().sha256, config.sha256, "what others read is not part of the configuration's digest");
    rewrite("roots.pem", "one");
    assert_eq!(config.inputs.changed(), None);
    rewrite("d.yaml", "detectors: [] # changed");
    assert_eq!(config.inputs.changed(), Some(path("conf/../d.yaml").as_path()));
    assert_ne!(load().sha256, config.sha256);
    rewrite("d.yaml", "detectors: []");
    rewrite("conf/b.yaml", "mode: observe");
    assert_eq!(config.inputs.changed(), Some(path("conf").as_path()), "a file more in a folder");
    std::fs::remove_file(path("conf/b.yaml")).unwrap();
    std::fs::remove_file(path("d.yaml")).unwrap();
    assert!(config.inputs.changed().is_some(), "a file that is gone");
}

#[test]
fn a_configuration_can_be_read_again_from_its_texts_whatever_its_files_say() {
    let folder = folder(&[
        ("conf/a.yaml", "detectors: {builtin: false, files: [../d.yaml]}"),
        ("conf/b.yaml", "mode: observe"),
        ("d.yaml", "detectors: [{id: a, description: d, pattern: 'abc', examples: {match: [abc]}}]"),
    ]);
    let config = read(&folder, &["conf"]).unwrap();
    let again = || {
        let sources = [folder.path().join("conf")];
        load_texts(&sources, &config.texts, &Overrides::default()).unwrap()
    };
    assert_eq!((again().sha256, again().inputs.changed()), (config.sha256, None));
    for name in ["conf/a.yaml", "conf/b.yaml", "d.yaml"] {
        std::fs::write(folder.path().join(name), "nonsense: [").unwrap();
    }
    assert!(read(&folder, &["conf"]).is_err());
    let kept = again();
    assert_eq!((kept.sha256, kept.mode, kept.detectors.list.len()), (config.sha256, Mode::Observe, 1));
    assert!(kept.inputs.changed().is_some(), "that the files differ is seen");
}

#[test]
fn a_swapped_link_is_a_change() {
    let folder = folder(&[("v1/a.yaml", "mode: observe"), ("v2/a.yaml", "mode: enforce")]);
    let link = folder.path().join("current");
    let point_to = |target: &str| {
        let fresh = folder.path().join("fresh");
        std::os::unix::fs::symlink(Path::new(target), &fresh).unwrap();
        std::fs::rename(&fresh, &link).unwrap();
    };
    point_to("v1");
    let config = read(&folder, &["current"]).unwrap();
    assert_eq!((config.mode, config.inputs.changed()), (Mode::Observe, None));
    point_to("v2");
    assert!(config.inputs.changed().is_some());
    point_to("v1");
    assert_eq!(config.inputs.changed(), None);
}

#[test]
fn a_refused_configuration_can_be_waited_on() {
    let folder = folder(&[("a.yaml", "detectors: {files: [d.yaml, e.yaml]}"), ("d.yaml", "detectors: 1")]);
    let problems = read(&folder, &["a.yaml"]).unwrap_err();
    assert_eq!(problems.inputs().changed(), None);
    std::fs::write(folder.path().join("e.yaml"), "").unwrap();
    assert_eq!(problems.inputs().changed(), Some(folder.path().join("e.yaml").as_path()));
}
