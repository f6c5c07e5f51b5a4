//! A configuration that uses every key, and the one that uses none.

use std::path::{Path, PathBuf};

use decant_config::{
    Action, Config, Environment, Expect, FilterTerm, Hold, HostPattern, MatchAction, Mode, Overrides,
    PathRule, Resolvers, Roots, SecretFrom, SecretSource, Surface, TestBody, TlsAction, TokenSource, load,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn full() -> Config {
    load(&[data("full.yaml")], &Overrides::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn shown<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn the_embedded_defaults_are_a_configuration() {
    let environment = Environment { home: Some("/home/dev".into()), ..Environment::default() };
    let config = load(&[], &Overrides { environment, ..Overrides::default() }).unwrap();
    assert_eq!(config.mode, Mode::Enforce);
    assert_eq!(shown(&config.listen.proxy), ["127.0.0.1:9099"]);
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:9190");
    assert_eq!(config.state_dir, Path::new("/home/dev/.local/state/decant"));
    assert_eq!((config.memory_budget, &config.allocator), (None, &None));
    let [bottle] = config.bottles.as_slice() else { panic!("{:?}", config.bottles) };
    assert_eq!((bottle.name.as_str(), bottle.policy.as_str()), ("local", "default"));
    assert_eq!(shown(&bottle.sources), ["127.0.0.0/8", "::1/128"]);
    let [route] = config.policies["default"].routes.as_slice() else { panic!("one route") };
    assert_eq!((route.hosts.as_slice(), route.action), ([HostPattern::Any].as_slice(), Action::Allow));
    assert_eq!((route.ports.as_slice(), route.tls), ([80..=80, 443..=443].as_slice(), TlsAction::Intercept));
    assert_eq!((route.git.fetch, route.git.push), (Action::Allow, Action::Deny));
    for direction in [&route.inspect.request, &route.inspect.response] {
        assert!(direction.detectors.selects("anything", &[""; 0]));
        assert_eq!(direction.action(MatchAction::Block), MatchAction::Block);
        assert_eq!(direction.action(MatchAction::Alert), MatchAction::Alert);
    }
    assert_eq!(route.inspect.request.hold, Hold::Strict);
    assert_eq!(route.inspect.response.hold, Hold::Prompt);
}

#[test]
fn state_belongs_where_the_environment_says() {
    let path = |text: &str| Some(PathBuf::from(text));
    let cases = [
        (path("/state"), path("/home/dev"), false, "/state/decant"),
        (path("state"), path("/home/dev"), false, "/home/dev/.local/state/decant"),
        (None, path("/home/dev"), false, "/home/dev/.local/state/decant"),
        (path("/state"), path("/root"), true, "/var/lib/decant"),
        (None, None, false, "/var/lib/decant"),
    ];
    for (xdg_state_home, home, root, wanted) in cases {
        let environment = Environment { xdg_state_home, home, root };
        assert_eq!(environment.state_dir(), Path::new(wanted), "{environment:?}");
    }
}

#[test]
fn flags_win_over_files() {
    let overrides = Overrides {
        state_dir: Some("/flag".into()),
        proxy: vec!["127.0.0.1:1".parse().unwrap()],
        admin: Some("127.0.0.1:2".parse().unwrap()),
        ..Overrides::default()
    };
    let config = load(&[data("full.yaml")], &overrides).unwrap();
    assert_eq!(config.state_dir, Path::new("/flag"));
    assert_eq!(shown(&config.listen.proxy), ["127.0.0.1:1"]);
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:2");
    assert_ne!(config.sha256, full().sha256, "flags are part of what is in effect");
}

#[test]
fn relative_paths_start_at_their_file() {
    let config = full();
    assert_eq!(config.state_dir, data("state"));
    assert_eq!(config.allocator, Some(data("run/gateway.sock")));
    let ca = config.ca.unwrap();
    assert_eq!((ca.cert, ca.key), (data("ca/cert.pem"), data("ca/key.pem")));
    assert_eq!(config.upstream.roots, [Roots::Bundled, Roots::System, Roots::File(data("roots/own.pem"))]);
    assert_eq!(config.detectors.files, [data("detectors.yaml")]);
    assert_eq!(config.secrets[1].from, SecretFrom::Value(SecretSource::File(data("secrets/key"))));
    assert_eq!(config.secrets[2].from, SecretFrom::Folder(data("secrets/mounted")));
    assert_eq!(config.secrets[3].from, SecretFrom::Canary);
    assert_eq!(config.tests[2].body, TestBody::File(data("bodies/one.json")));
}

#[test]
fn sections_are_read() {
    let config = full();
    assert_eq!(config.memory_budget, Some(48 << 20));
    assert_eq!((config.limits.header_read_timeout.as_secs(), config.limits.connections), (20, 100));
    assert_eq!(config.limits.connect_timeout.as_secs(), 10, "what is left out keeps its default");
    assert_eq!(config.metrics.bottles, 64);
    let resolvers = ["192.0.2.53:53", "[2001:db8::53]:5353"].map(|text| text.parse().unwrap());
    assert_eq!(config.upstream.resolvers, Resolvers::Addresses(resolvers.to_vec()));
    assert_eq!(shown(&config.upstream.resolve["origin.test"]), ["127.0.0.1"]);
    assert_eq!(shown(&config.upstream.allow_addresses), ["10.1.0.0/16"]);
    assert_eq!(shown(&config.upstream.refuse_addresses), ["10.1.2.3/32"]);
    let [ci, dev] = config.bottles.as_slice() else { panic!("two bottles") };
    assert_eq!((ci.name.as_str(), ci.policy.as_str(), ci.mode), ("ci", "default", None));
    assert!(matches!(ci.token, Some(TokenSource::Sha256([0x9f, 0x86, ..]))));
    assert_eq!(dev.token, Some(TokenSource::Value(SecretSource::Env("DEV_TOKEN".into()))));
    assert_eq!((dev.mode, dev.labels["note"].as_str()), (Some(Mode::Observe), "two words"));
    assert_eq!(shown(&dev.arrival), ["172.20.0.1"]);
}

#[test]
fn routes_are_read() {
    let config = full();
    let [ours, pypi, bank] = config.policies["default"].routes.as_slice() else { panic!("three routes") };
    assert_eq!(
        (ours.name.as_str(), pypi.name.as_str(), bank.name.as_str()),
        ("ours", "pypi", "bank.example.org")
    );
    assert_eq!(shown(&ours.hosts), ["api.example.org", "*.cdn.example.org", "192.0.2.9"]);
    assert_eq!(ours.ports, [443..=443, 8000..=8100]);
    let [rule] = ours.matches.as_slice() else { panic!("one alternative") };
    assert_eq!(rule.methods, ["GET", "HEAD"]);
    let paths = [
        PathRule::Prefix("/repos".into()),
        PathRule::Exact("/user".into()),
        PathRule::Regex(r"/x/\d+".into()),
    ];
    assert_eq!(rule.paths, paths);
    assert_eq!(
        (rule.headers[0].name.as_str(), rule.headers[0].value.as_str()),
        ("accept", "application/json")
    );
    let FilterTerm::NotId(id) = &ours.inspect.request.detectors.0[1] else { panic!("{:?}", ours.inspect) };
    assert_eq!(id.as_str(), "jwt");
    assert_eq!(ours.inspect.request.on_match, Some(MatchAction::Redact));
    assert!(ours.inspect.response.detectors.is_none());
    assert_eq!(ours.inspect.response.hold, Hold::Strict);
    assert_eq!(pypi.preset.as_deref(), Some("pypi"));
    assert_eq!((bank.tls, bank.ports.len()), (TlsAction::Passthrough, 2));
}

#[test]
fn entries_are_read() {
    let config = full();
    let [early, sample] = config.exceptions.as_slice() else { panic!("two exceptions") };
    assert_eq!((early.name.as_str(), early.action), ("early", MatchAction::Alert));
    assert_eq!(sample.fingerprints, [[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]]);
    assert!(sample.is_live("2027-01-31".parse().unwrap()));
    assert!(!sample.is_live("2027-02-01".parse().unwrap()));
    assert_eq!(config.secrets[1].surfaces, [Surface::Authorization, Surface::Header]);
    assert!(config.secrets[0].hosts.is_empty(), "a secret without `to` may go nowhere");
    let [first, second, third, fourth] = config.tests.as_slice() else { panic!("four tests") };
    assert!(matches!(&first.expect, Expect::Detector(id) if *id == "jwt"));
    assert_eq!(
        (second.method.as_str(), second.port, second.path.as_str()),
        ("GET", 443, "/repos/one?page=2")
    );
    assert_eq!(second.headers, [("accept".to_owned(), "application/json".to_owned())]);
    assert_eq!((third.scheme.as_str(), third.port, third.path.as_str()), ("http", 8080, "/"));
    assert_eq!(third.host.to_string(), "[2001:db8::1]");
    assert_eq!(fourth.expect, Expect::Secret);
}

#[test]
fn detectors_are_read_and_changed() {
    let config = full();
    let [jwt, plain] = config.detectors.list.as_slice() else { panic!("{:?}", config.detectors.list) };
    assert_eq!((jwt.id.as_str(), jwt.action), ("jwt", MatchAction::Alert));
    assert_eq!((jwt.max_length, jwt.validate.as_deref()), (Some(4096), Some("jwt")));
    assert_eq!(jwt.context.as_ref().unwrap().within, 40);
    assert_eq!(jwt.at.line, 4);
    assert_eq!((plain.action, plain.severity.as_str()), (MatchAction::Redact, "high"));
    assert_eq!(shown(&plain.home[0].hosts), ["home.example.org"]);
    assert_eq!(plain.ignore.patterns, ["^abc0"]);
}

#[test]
fn terms_are_read_from_left_to_right() {
    let select = |terms: &str| {
        let text = format!(
            "policies: {{default: {{routes: [{{hosts: a.test, inspect: {{request: {{detectors: {terms}}}}}}}]}}}}"
        );
        let config = decant_config::parse("a.yaml", &text, &Overrides::default()).unwrap();
        let filter = config.policies["default"].routes[0].inspect.request.detectors.clone();
        ["jwt", "aws", "mail"].map(|id| filter.selects(id, if id == "mail" { &["pii"] } else { &["key"] }))
    };
    assert_eq!(select("all"), [true, true, true]);
    assert_eq!(select("none"), [false, false, false]);
    assert_eq!(select("jwt"), [true, false, false]);
    assert_eq!(select("-jwt"), [false, true, true]);
    assert_eq!(select("[\"tag:key\", -aws]"), [true, false, false]);
    assert_eq!(select("[\"-tag:key\", aws]"), [false, true, true]);
    assert_eq!(select("[all, \"-tag:pii\"]"), [true, true, false]);
}

#[test]
fn overrides_change_what_they_name() {
    let pack: &[(&str, &str)] = &[(
        "pack.yaml",
        "detectors:\n\
         - {id: a, description: x, pattern: x, home: {hosts: [a.test], surfaces: [authorization]}}\n\
         - {id: b, description: x, pattern: x}\n\
         - {id: c, description: x, pattern: x, enabled: false}\n\
         - {id: d, description: x, pattern: x}\n\
         - {id: e, description: x, pattern: x, home: [{hosts: [a.test], surfaces: [cookie]}, {hosts: [b.test]}]}\n",
    )];
    let text = "detectors:\n  overrides:\n\
                \x20 - {id: a, home: {hosts: [b.test]}}\n\
                \x20 - {id: b, home: {hosts: [b.test], surfaces: [body]}}\n\
                \x20 - {id: c, enabled: true}\n\
                \x20 - {id: d, enabled: false}\n\
                \x20 - {id: e, home: {hosts: [c.test]}}\n";
    let overrides = Overrides { pack: Some(pack), ..Overrides::default() };
    let config = decant_config::parse("a.yaml", text, &overrides).unwrap();
    let [a, b, c, e] = config.detectors.list.as_slice() else { panic!("{:?}", config.detectors.list) };
    let hosts = e.home.iter().map(|home| shown(&home.hosts)).collect::<Vec<_>>();
    assert_eq!(hosts, [vec!["a.test", "c.test"], vec!["b.test"]]);
    assert_eq!((e.home[0].surfaces.as_slice(), e.home[1].surfaces.len()), ([Surface::Cookie].as_slice(), 0));
    assert_eq!(
        (shown(&a.home[0].hosts), a.home[0].surfaces.as_slice()),
        (vec!["a.test".into(), "b.test".into()], [Surface::Authorization].as_slice())
    );
    assert_eq!(
        (shown(&b.home[0].hosts), b.home[0].surfaces.as_slice()),
        (vec!["b.test".into()], [Surface::Body].as_slice())
    );
    assert_eq!(c.id.as_str(), "c");
    let text = "detectors: {builtin: false, overrides: [{id: a, action: alert}]}";
    assert!(
        decant_config::parse("a.yaml", text, &overrides).is_err(),
        "without the pack there is no such detector"
    );
}

#[test]
fn newer_detectors_only_alert() {
    let pack: &[(&str, &str)] = &[(
        "pack.yaml",
        "detectors:\n\
         - {id: old, description: x, pattern: x, added: 2026-01-01}\n\
         - {id: new, description: x, pattern: x, added: 2026-06-01}\n\
         - {id: kept, description: x, pattern: x, added: 2026-06-01}\n",
    )];
    let text = "detectors: {newer: alert, pinned: 2026-03-01, overrides: [{id: kept, action: block}]}";
    let overrides = Overrides { pack: Some(pack), ..Overrides::default() };
    let config = decant_config::parse("a.yaml", text, &overrides).unwrap();
    let actions: Vec<_> = config.detectors.list.iter().map(|one| one.action).collect();
    assert_eq!(actions, [MatchAction::Block, MatchAction::Alert, MatchAction::Block]);
}
