//! Tests as an operator writes them, and the line that each must be answered with; empty where it holds.

use std::io::Write as _;

use decant_config::Overrides;

use super::*;

const PACK: &[(&str, &str)] = &[(
    "pack.yaml",
    "detectors:
  - {id: canary, description: A mark, pattern: 'canary-[a-z0-9]{8}', home: {hosts: [home.test], surfaces: [authorization]}}
  - {id: soft, description: Only a hint, pattern: 'soft-[a-z0-9]{8}', action: alert}
  - {id: painted, description: Overwritten, pattern: 'painted-[a-z0-9]{8}', action: redact}
",
)];

const POLICY: &str = "version: 1
mode: observe
bottles: [{name: dev, sources: [10.0.0.0/29]}]
policies:
  default:
    routes:
      - {name: pinned, hosts: [pinned.test], tls: passthrough}
      - {name: read, hosts: [api.test], matches: [{methods: [GET], paths: [{prefix: /v1}]}]}
      - {name: git, hosts: [git.test]}
      - {name: blind, hosts: [blind.test], inspect: {request: {detectors: none}}}
      - {name: loose, hosts: [loose.test], inspect: {request: {undecodable: pass}}}
      - {name: all, hosts: [home.test, other.test]}
exceptions:
  - {name: known, detector: canary, hosts: [other.test], surfaces: [url], until: 2999-01-01, reason: a fixture}
  - {name: over, detector: canary, hosts: [other.test], surfaces: [cookie], until: 2020-01-01, reason: a fixture}
";

/// The messages of the tests in `list` that fail, with their lines as the list counts them.
fn failures(list: &str) -> Vec<(u32, String)> {
    let folder = tempfile::tempdir().unwrap();
    let mut coded = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coded.write_all(b"a canary-12345678 inside").unwrap();
    std::fs::write(folder.path().join("coded"), coded.finish().unwrap()).unwrap();
    let name = folder.path().join("test.yaml");
    let text = format!("{POLICY}state_dir: state\ntests:\n{list}");
    let overrides = Overrides { pack: Some(PACK), ..Overrides::default() };
    let config = decant_config::parse(&name.to_string_lossy(), &text, &overrides)
        .unwrap_or_else(|problems| panic!("{problems}"));
    let book = RuleBook::compile(&config).unwrap_or_else(|problems| panic!("{problems:?}"));
    let before = u32::try_from(text.lines().count() - list.lines().count()).unwrap();
    let shown = |problem: Problem| {
        let folder = folder.path().to_string_lossy().into_owned();
        (problem.at.line - before, problem.message.replace(&folder, "DIR"))
    };
    run(&config, &Arc::new(book)).into_iter().map(shown).collect()
}

#[test]
fn each_request_gets_the_verdict_of_the_data_path() {
    // What stands in the entry beside the bottle, and what the test is answered with.
    let cases = [
        ("request: GET https://api.test/v1/x, expect: allow", ""),
        ("request: GET https://api.test/v2, expect: policy", ""),
        (
            "request: POST https://api.test/v1/x, expect: allow",
            "this request must pass, but policy `default` refuses it: no route of policy `default` allows POST here",
        ),
        ("request: GET https://nowhere.test/, expect: policy", ""),
        ("request: GET http://home.test:81/, expect: policy", ""),
        (
            "request: GET https://api.test/v1/x, expect: policy",
            "policy must refuse this request, but route `read` lets it pass",
        ),
        (
            "name: reading, request: GET https://api.test/v1/x, expect: canary",
            "test `reading`: `canary` must stop this request, but route `read` lets it pass",
        ),
        (
            "request: GET https://api.test/v1/%2e%2e/v2, expect: policy",
            "policy must refuse this request, but its form is refused: the path means different things before and \
             after decoding",
        ),
        ("request: 'GET https://git.test/r.git/info/refs?service=git-upload-pack', expect: allow", ""),
        ("request: 'GET https://git.test/r.git/info/refs?service=git-receive-pack', expect: policy", ""),
        ("request: GET https://pinned.test/canary-12345678, expect: allow", ""),
        ("request: POST https://other.test/, body: a canary-12345678, expect: canary", ""),
        (
            "request: POST https://other.test/, body: a canary-12345678, expect: allow",
            "this request must pass, but `canary` blocks what stands in the body at offset 2",
        ),
        (
            "request: POST https://other.test/, body: a canary-12345678, expect: soft",
            "`soft` must stop this request, but `canary` blocks what stands in the body at offset 2",
        ),
        (
            "request: POST https://other.test/, body_file: coded, headers: {content-encoding: gzip}, expect: canary",
            "",
        ),
        (
            "request: POST https://other.test/, body_file: coded, headers: {content-encoding: gzip}, expect: allow",
            "this request must pass, but `canary` blocks what stands in the body at offset 2, in gzip",
        ),
        (
            "request: POST https://other.test/, body_file: coded, expect: allow",
            "this request must pass, but `canary` blocks what stands in the body at offset 10, in gzip",
        ),
        (
            "request: POST https://other.test/, body_file: coded, headers: {content-encoding: br}, expect: canary",
            "`canary` must stop this request, but it cannot be inspected: the coded body is broken: \
             not a brotli stream (the body at offset 0, in br)",
        ),
        (
            "request: POST https://loose.test/, body_file: coded, headers: {content-encoding: odd}, expect: allow",
            "this request must pass, but `canary` blocks what stands in the body at offset 10, in gzip",
        ),
        (
            "request: POST https://other.test/, body_file: missing, expect: allow",
            "`body_file` DIR/missing cannot be read: No such file or directory (os error 2)",
        ),
        ("request: POST https://blind.test/canary-12345678, body: canary-12345678, expect: allow", ""),
        ("request: POST https://other.test/, body: a soft-12345678, expect: allow", ""),
        ("request: POST https://other.test/, body: a painted-12345678, expect: painted", ""),
        (
            "request: GET https://home.test/, headers: {authorization: Bearer canary-12345678}, expect: allow",
            "",
        ),
        (
            "request: GET https://home.test/, headers: {x-key: canary-12345678}, expect: allow",
            "this request must pass, but `canary` blocks what stands in the header `x-key` at offset 7",
        ),
        ("request: GET https://other.test/canary-12345678, expect: allow", ""),
        ("request: GET https://other.test/, headers: {cookie: a=canary-12345678}, expect: canary", ""),
        ("request: GET https://canary-12345678.other.test/, expect: policy", ""),
        ("request: GET https://decant.internal/blocks, expect: allow", ""),
        (
            "request: POST https://other.test/, headers: {content-length: x}, expect: allow",
            "this request must pass, but its form is refused: Content-Length is not one plain number",
        ),
    ];
    let list: String = cases.iter().map(|(entry, _)| format!("  - {{bottle: dev, {entry}}}\n")).collect();
    let found = failures(&list);
    for (line, (entry, wanted)) in (1..).zip(cases) {
        let message = found.iter().find(|(at, _)| *at == line).map_or("", |(_, message)| message);
        assert_eq!(message, wanted, "{entry}");
    }
}

#[test]
fn an_exception_for_a_value_counts_where_its_fingerprint_can_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let fingerprint = |dir: &std::path::Path| {
        let limits = crate::audit::AuditLimits { file_bytes: 1000, files: 2, per_minute: 1 };
        crate::audit::Audit::open(dir, &limits).unwrap().fingerprint(b"canary-12345678")
    };
    let fingerprint = fingerprint(folder.path());
    let expectations = |state_dir: &std::path::Path| {
        let text = format!(
            "{}  - {{name: this, detector: canary, fingerprints: [{fingerprint}], until: 2999-01-01, reason: r}}\n\
             state_dir: {}\ntests:\n\
             \x20 - {{bottle: dev, request: POST https://other.test/, body: canary-12345678, expect: allow}}\n\
             \x20 - {{bottle: dev, request: POST https://other.test/, body: canary-87654321, expect: canary}}\n",
            POLICY,
            state_dir.display()
        );
        let overrides = Overrides { pack: Some(PACK), ..Overrides::default() };
        let config = decant_config::parse("test.yaml", &text, &overrides).unwrap();
        let book = RuleBook::compile(&config).unwrap();
        run(&config, &Arc::new(book)).len()
    };
    assert_eq!(expectations(folder.path()), 0);
    assert_eq!(expectations(&folder.path().join("elsewhere")), 1, "without the key no value is known");
}
