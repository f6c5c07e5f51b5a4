//! Policies as text, requests as rows, verdicts as words: one check for all of them.

use decant_config::Overrides;
use decant_detectors::BuildLimits;
use http::{HeaderMap, HeaderName, Method};

use super::*;
use crate::rules::Detectors;

const TEXT: &str = r#"
version: 1
bottles: [{name: dev, sources: [10.0.0.0/29], policy: main}]
policies:
  main:
    routes:
      - {name: blocked, hosts: [bad.example.org], action: deny}
      - {name: pinned, hosts: [pinned.example.org], tls: passthrough}
      - name: api
        hosts: [api.example.org, "*.cdn.example.org"]
        matches:
          - {methods: [GET, HEAD], paths: [{prefix: /repos}, {exact: /user}, {regex: '/x/\d+'}]}
          - {methods: [POST], headers: [{name: x-team, value: a}]}
      - {name: code, hosts: [git.example.org], ports: [443, 8000-8999]}
      - {name: push, hosts: [forge.example.org], git: {fetch: deny, push: allow}}
"#;

/// Authority, method, path and query, fields, verdict.
type Case = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

fn policy() -> Arc<Policy> {
    let config = decant_config::parse("test.yaml", TEXT, &Overrides::default())
        .unwrap_or_else(|problems| panic!("{problems}"));
    let detectors = Detectors::compile(&config.detectors, &[], BuildLimits::default()).unwrap();
    compile(&config, &detectors).unwrap().get("main").unwrap().clone()
}

fn target(authority: &str) -> Target {
    Target::from_authority(authority).unwrap()
}

/// `route:NAME`, `denied` or `ambiguous`.
fn verdict(
    policy: &Policy,
    authority: &str,
    method: &str,
    path_and_query: &str,
    fields: &[(&str, &str)],
) -> String {
    let headers: HeaderMap =
        fields.iter().map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse().unwrap())).collect();
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let head = Head { method: &method, path, query, headers: &headers };
    match policy.request(&target(authority), &head) {
        Verdict::Granted(grant) => format!("route:{}", grant.route.name),
        Verdict::Denied { .. } => "denied".to_owned(),
        Verdict::Ambiguous(_) => "ambiguous".to_owned(),
    }
}

#[test]
fn requests_get_the_verdict_of_the_first_route_that_matches() {
    let policy = policy();
    let cases: &[Case] = &[
        ("api.example.org:443", "GET", "/repos", &[], "route:api"),
        ("api.example.org:443", "GET", "/repos/a/b?x=/../y", &[], "route:api"),
        ("api.example.org:443", "GET", "/reposx", &[], "denied"),
        ("api.example.org:443", "DELETE", "/repos", &[], "denied"),
        ("api.example.org:443", "GET", "/user", &[], "route:api"),
        ("api.example.org:443", "GET", "/x/42", &[], "route:api"),
        ("api.example.org:443", "GET", "/x/42/y", &[], "denied"),
        ("api.example.org:443", "POST", "/anything", &[("x-team", "a")], "route:api"),
        ("api.example.org:443", "POST", "/anything", &[("x-team", "b")], "denied"),
        ("a.cdn.example.org:443", "GET", "/repos", &[], "route:api"),
        ("cdn.example.org:443", "GET", "/repos", &[], "denied"),
        ("API.Example.ORG.:443", "GET", "/repos", &[], "route:api"),
        ("api.example.org:8443", "GET", "/repos", &[], "denied"),
        ("other.example.org:443", "GET", "/", &[], "denied"),
        ("bad.example.org:443", "GET", "/", &[], "denied"),
        // Both spellings of a path must lead to the same verdict.
        ("api.example.org:443", "GET", "/repos/../admin", &[], "ambiguous"),
        ("api.example.org:443", "GET", "/repos/%2e%2e/admin", &[], "ambiguous"),
        ("api.example.org:443", "GET", "/%72epos", &[], "ambiguous"),
        ("api.example.org:443", "GET", "/repos/a%2Fb", &[], "route:api"),
        ("api.example.org:443", "GET", "/repos/%7Euser", &[], "route:api"),
        // Where rules look at method and path, no field may ask for others.
        ("api.example.org:443", "GET", "/repos", &[("x-http-method-override", "DELETE")], "ambiguous"),
        ("api.example.org:443", "GET", "/repos", &[("x-original-url", "/admin")], "ambiguous"),
        ("git.example.org:443", "GET", "/", &[("x-http-method-override", "DELETE")], "route:code"),
        // Git: fetch passes and push does not, unless the route says otherwise.
        ("git.example.org:8443", "GET", "/o/r/info/refs?service=git-upload-pack", &[], "route:code"),
        ("git.example.org:8443", "GET", "/o/r/info/refs?service=git-receive-pack", &[], "denied"),
        ("git.example.org:443", "POST", "/o/r/git-receive-pack", &[], "denied"),
        ("forge.example.org:443", "POST", "/o/r/git-receive-pack", &[], "route:push"),
        ("forge.example.org:443", "POST", "/o/r/git-upload-pack", &[], "denied"),
    ];
    for (authority, method, path, fields, expected) in cases {
        let got = verdict(&policy, authority, method, path, fields);
        assert_eq!(&got, expected, "{method} {authority}{path} {fields:?}");
    }
}

#[test]
fn a_host_is_judged_before_any_request() {
    let policy = policy();
    let word = |authority: &str| match policy.host(&target(authority)) {
        HostVerdict::Possible => "possible",
        HostVerdict::Passthrough(..) => "passthrough",
        HostVerdict::Denied => "denied",
    };
    let cases = [
        ("api.example.org:443", "possible"),
        ("pinned.example.org:443", "passthrough"),
        ("pinned.example.org:22", "denied"),
        ("bad.example.org:443", "denied"),
        ("nowhere.example.org:443", "denied"),
        ("1.2.3.4:443", "denied"),
    ];
    for (authority, expected) in cases {
        assert_eq!(word(authority), expected, "{authority}");
    }
}

#[test]
fn an_expression_that_does_not_compile_is_reported_where_its_route_stands() {
    let text = TEXT.replace(r"/x/\d+", "/x/(");
    match decant_config::parse("test.yaml", &text, &Overrides::default()) {
        Err(problems) => assert!(problems.to_string().contains("test.yaml:")),
        Ok(config) => {
            let detectors = Detectors::compile(&config.detectors, &[], BuildLimits::default()).unwrap();
            let problems = compile(&config, &detectors).unwrap_err();
            assert!(problems[0].to_string().starts_with("test.yaml:9:"), "{}", problems[0]);
            assert!(problems[0].message.contains("/x/("));
        }
    }
}
