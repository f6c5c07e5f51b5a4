//! The presets hold what their promise says.

use std::collections::BTreeSet;

use decant_config::{Access, Action, HostPattern, Overrides, TlsAction, parse, preset, presets};

const NAMES: [&str; 16] = [
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

#[test]
fn they_are_complete_and_well_formed() {
    let names: Vec<&str> = presets().iter().map(|preset| preset.name.as_str()).collect();
    assert_eq!(names, NAMES);
    for preset in presets() {
        assert!(!preset.description.is_empty() && !preset.read.is_empty(), "{}", preset.name);
        assert!(preset.checked >= "2026-01-01".parse().unwrap(), "{}", preset.name);
        let mut names = BTreeSet::new();
        for route in preset.routes(Access::Full) {
            let own = route.name.as_str() == preset.name.as_str();
            let below =
                route.name.strip_prefix(preset.name.as_str()).is_some_and(|rest| rest.starts_with('/'));
            assert!(own || below, "{}", route.name);
            assert!(names.insert(route.name.clone()), "{}", route.name);
            assert_eq!(route.preset.as_ref(), Some(&preset.name));
            assert_eq!((route.action, route.tls), (Action::Allow, TlsAction::Intercept));
            assert!(!route.hosts.iter().any(|host| matches!(host, HostPattern::Any | HostPattern::Ip(_))));
        }
    }
}

#[test]
fn reading_never_means_every_request() {
    for preset in presets() {
        for route in preset.routes(Access::Read) {
            assert!(!route.matches.is_empty(), "{}", route.name);
            for rule in &route.matches {
                assert!(!rule.methods.is_empty(), "{}", route.name);
                let harmless = rule.methods.iter().all(|method| ["GET", "HEAD"].contains(&method.as_str()));
                assert!(harmless || !rule.paths.is_empty(), "{} lets any path be written", route.name);
            }
        }
        assert!(preset.routes(Access::Read).count() == preset.read.len());
    }
}

#[test]
fn a_route_stands_for_those_of_its_preset() {
    let routes = |text: &str| {
        let text = format!("policies: {{default: {{routes: [{text}]}}}}");
        let config =
            parse("a.yaml", &text, &Overrides::default()).unwrap_or_else(|problems| panic!("{problems}"));
        config.policies["default"].routes.clone()
    };
    let names = |text: &str| routes(text).iter().map(|route| route.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names("{use: pypi}"), ["pypi", "pypi/upload"]);
    assert_eq!(names("{use: pypi, access: read}"), ["pypi"]);
    assert_eq!(names("{use: pypi, name: python}"), ["python", "python/upload"]);
    assert_eq!(names("{use: go}, {use: go, action: deny}"), ["go", "go/storage", "go#2", "go/storage#2"]);
    for route in routes("{use: github, git: {push: allow}, inspect: {response: {detectors: none}}}") {
        assert_eq!(route.git.push, Action::Allow);
        assert!(route.inspect.response.detectors.is_none());
        assert_eq!((route.at.line, route.at.column), (1, 31));
    }
    assert!(preset("pypi").is_some() && preset("pipy").is_none());
}
