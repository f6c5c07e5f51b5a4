//! What each preset lets its tool do, and what it does not: requests as the tools send them, judged as traffic is.

use std::collections::BTreeSet;

use decant_config::{Access, HostPattern, Overrides, preset, presets};

use super::*;

/// Requests of one preset's tool.
struct Uses {
    preset: &'static str,
    /// Pass with either access.
    reads: &'static [&'static str],
    /// Pass with `access: full` alone.
    writes: &'static [&'static str],
    /// Pass with neither.
    denied: &'static [&'static str],
}

const USES: [Uses; 16] = [
    Uses {
        preset: "anthropic",
        reads: &[
            "POST https://api.anthropic.com/v1/messages",
            "POST https://api.anthropic.com/v1/messages/count_tokens?beta=true",
            "GET https://api.anthropic.com/v1/models",
            "POST https://console.anthropic.com/v1/oauth/token",
            "POST https://platform.claude.com/v1/oauth/token",
        ],
        writes: &["POST https://api.anthropic.com/v1/files"],
        denied: &[
            "GET https://claude.ai/",
            "POST https://console.anthropic.com/v1/other",
            "GET http://api.anthropic.com/",
        ],
    },
    Uses {
        preset: "openai",
        reads: &[
            "POST https://api.openai.com/v1/responses",
            "POST https://api.openai.com/v1/chat/completions",
            "POST https://api.openai.com/v1/embeddings",
            "POST https://chatgpt.com/backend-api/codex/responses",
            "POST https://auth.openai.com/oauth/token",
        ],
        writes: &["POST https://api.openai.com/v1/files", "DELETE https://api.openai.com/v1/files/file-1"],
        denied: &["GET https://chatgpt.com/", "POST https://chatgpt.com/backend-api/conversation"],
    },
    Uses {
        preset: "google-ai",
        reads: &[
            "POST https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
            "POST https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            "POST https://cloudcode-pa.googleapis.com/v1internal:generateContent",
            "POST https://oauth2.googleapis.com/token",
        ],
        writes: &["POST https://generativelanguage.googleapis.com/upload/v1beta/files"],
        denied: &[
            "GET https://storage.googleapis.com/bucket/object",
            "POST https://oauth2.googleapis.com/revoke",
        ],
    },
    Uses {
        preset: "github",
        reads: &[
            "GET https://github.com/acme/app.git/info/refs?service=git-upload-pack",
            "POST https://github.com/acme/app.git/git-upload-pack",
            "POST https://github.com/acme/app.git/info/lfs/objects/batch",
            "POST https://gist.github.com/6f96.git/git-upload-pack",
            "GET https://api.github.com/repos/acme/app",
            "GET https://codeload.github.com/acme/app/tar.gz/main",
            "GET https://raw.githubusercontent.com/acme/app/main/README.md",
            "GET https://gist.githubusercontent.com/acme/6f96/raw/x",
            "GET https://media.githubusercontent.com/media/acme/app/main/x.bin",
            "GET https://objects.githubusercontent.com/github-production-release-asset/1",
            "GET https://release-assets.githubusercontent.com/github-production-release-asset/1",
            "GET https://github-cloud.githubusercontent.com/alambic/media/1",
            "GET https://github-cloud.s3.amazonaws.com/alambic/media/1",
        ],
        writes: &[
            "POST https://api.github.com/repos/acme/app/pulls",
            "POST https://uploads.github.com/repos/acme/app/releases/1/assets?name=x",
            "PUT https://github-cloud.s3.amazonaws.com/alambic/media/1",
        ],
        denied: &[
            "POST https://github.com/acme/app.git/git-receive-pack",
            "GET https://github.com/acme/app.git/info/refs?service=git-receive-pack",
            "GET https://other-bucket.s3.amazonaws.com/x",
            "GET https://acme.github.io/",
        ],
    },
    Uses {
        preset: "gitlab",
        reads: &[
            "GET https://gitlab.com/acme/app.git/info/refs?service=git-upload-pack",
            "POST https://gitlab.com/acme/group/app.git/git-upload-pack",
            "GET https://registry.gitlab.com/v2/acme/app/manifests/latest",
            "GET https://cdn.registry.gitlab-static.net/gitlab-gprd-registry/x",
            "GET https://cdn.artifacts.gitlab-static.net/x",
        ],
        writes: &[
            "POST https://gitlab.com/api/v4/projects/1/issues",
            "PUT https://registry.gitlab.com/v2/acme/app/manifests/latest",
        ],
        denied: &["POST https://gitlab.com/acme/app.git/git-receive-pack", "GET https://acme.gitlab.io/"],
    },
    Uses {
        preset: "npm",
        reads: &[
            "GET https://registry.npmjs.org/@acme%2ftool",
            "GET https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
            "GET https://registry.yarnpkg.com/left-pad",
            "POST https://registry.npmjs.org/-/npm/v1/security/advisories/bulk",
            "GET https://nodejs.org/dist/v24.0.0/node-v24.0.0-headers.tar.gz",
        ],
        writes: &[
            "PUT https://registry.npmjs.org/@acme%2ftool",
            "POST https://registry.npmjs.org/-/npm/v1/oidc/token/exchange/package/x",
        ],
        denied: &["GET https://www.npmjs.com/", "GET https://nodejs.org/en/blog"],
    },
    Uses {
        preset: "pypi",
        reads: &[
            "GET https://pypi.org/simple/requests/",
            "GET https://files.pythonhosted.org/packages/aa/bb/x-1.0-py3-none-any.whl",
        ],
        writes: &["POST https://upload.pypi.org/legacy/", "POST https://pypi.org/_/oidc/mint-token"],
        denied: &["POST https://pypi.org/pypi", "GET https://test.pypi.org/simple/"],
    },
    Uses {
        preset: "crates",
        reads: &[
            "GET https://index.crates.io/se/rd/serde",
            "GET https://static.crates.io/crates/serde/serde-1.0.0.crate",
            "GET https://crates.io/api/v1/crates/serde/1.0.0/download",
        ],
        writes: &[
            "PUT https://crates.io/api/v1/crates/new",
            "POST https://crates.io/api/v1/trusted_publishing/tokens",
        ],
        denied: &["GET https://docs.rs/", "POST https://crates.io/api/v1/crates/new"],
    },
    Uses {
        preset: "go",
        reads: &[
            "GET https://proxy.golang.org/golang.org/x/net/@v/list",
            "GET https://sum.golang.org/lookup/golang.org/x/net@v0.1.0",
            "GET https://storage.googleapis.com/proxy-golang-org-prod/x",
        ],
        writes: &[],
        denied: &["GET https://storage.googleapis.com/other/x", "POST https://proxy.golang.org/x"],
    },
    Uses {
        preset: "debian",
        reads: &[
            "GET http://deb.debian.org/debian/dists/trixie/InRelease",
            "GET https://deb.debian.org/debian/dists/trixie/InRelease",
            "GET http://security.debian.org/debian-security/dists/trixie-security/InRelease",
        ],
        writes: &[],
        denied: &["POST http://deb.debian.org/", "GET https://www.debian.org/"],
    },
    Uses {
        preset: "ubuntu",
        reads: &[
            "GET http://archive.ubuntu.com/ubuntu/dists/noble/InRelease",
            "GET http://de.archive.ubuntu.com/ubuntu/dists/noble/InRelease",
            "GET http://security.ubuntu.com/ubuntu/dists/noble-security/InRelease",
            "GET http://ports.ubuntu.com/ubuntu-ports/dists/noble/InRelease",
        ],
        writes: &[],
        denied: &["GET https://ubuntu.com/", "PUT http://archive.ubuntu.com/x"],
    },
    Uses {
        preset: "alpine",
        reads: &["GET https://dl-cdn.alpinelinux.org/alpine/v3.20/main/x86_64/APKINDEX.tar.gz"],
        writes: &[],
        denied: &["GET https://www.alpinelinux.org/", "POST https://dl-cdn.alpinelinux.org/"],
    },
    Uses {
        preset: "docker-hub",
        reads: &[
            "GET https://auth.docker.io/token?service=registry.docker.io",
            "HEAD https://registry-1.docker.io/v2/library/alpine/manifests/3.20",
            "GET https://index.docker.io/v1/repositories/library/alpine/images",
            "GET https://production.cloudflare.docker.com/registry-v2/docker/registry/v2/blobs/x",
            "GET https://production.cloudfront.docker.com/registry-v2/docker/registry/v2/blobs/x",
            "GET https://docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com/x",
        ],
        writes: &[
            "POST https://registry-1.docker.io/v2/acme/app/blobs/uploads/",
            "PUT https://registry-1.docker.io/v2/acme/app/manifests/1",
        ],
        denied: &[
            "GET https://hub.docker.com/",
            "POST https://auth.docker.io/other",
            "GET https://other.r2.cloudflarestorage.com/",
        ],
    },
    Uses {
        preset: "ghcr",
        reads: &[
            "GET https://ghcr.io/token?scope=repository:acme/app:pull",
            "GET https://ghcr.io/v2/acme/app/manifests/latest",
            "GET https://pkg-containers.githubusercontent.com/ghcr1/blobs/sha256:x",
        ],
        writes: &["PUT https://ghcr.io/v2/acme/app/manifests/latest"],
        denied: &["GET https://github.com/", "PUT https://pkg-containers.githubusercontent.com/x"],
    },
    Uses {
        preset: "quay",
        reads: &[
            "GET https://quay.io/v2/acme/app/manifests/latest",
            "GET https://cdn.quay.io/x",
            "GET https://cdn01.quay.io/x",
            "GET https://cdn02.quay.io/x",
            "GET https://cdn03.quay.io/x",
            "GET https://cdn04.quay.io/x",
            "GET https://cdn05.quay.io/x",
            "GET https://cdn06.quay.io/x",
        ],
        writes: &["PUT https://quay.io/v2/acme/app/manifests/latest"],
        denied: &["PUT https://cdn01.quay.io/x", "GET https://access.redhat.com/"],
    },
    Uses {
        preset: "huggingface",
        reads: &[
            "GET https://huggingface.co/acme/model/resolve/main/model.safetensors",
            "GET https://cas-bridge.xethub.hf.co/xet-bridge-us/x",
            "GET https://cdn-lfs.huggingface.co/x",
            "GET https://cdn-lfs-us-1.huggingface.co/x",
            "GET https://cdn-lfs-eu-1.huggingface.co/x",
            "POST https://huggingface.co/acme/model.git/git-upload-pack",
            "POST https://huggingface.co/api/models/acme/model/paths-info/main",
        ],
        writes: &[
            "POST https://huggingface.co/api/models/acme/model/commit/main",
            "POST https://cas-server.xethub.hf.co/v1/shards",
        ],
        denied: &["GET https://acme-space.hf.space/", "GET https://evil.huggingface.co/"],
    },
];

/// The tests of one preset under one degree of access, as entries of a configuration.
fn tests_of(uses: &Uses, access: &str) -> String {
    let writes = if access == "full" { "allow" } else { "policy" };
    let groups = [(uses.reads, "allow"), (uses.writes, writes), (uses.denied, "policy")];
    let entries =
        groups.iter().flat_map(|(requests, expect)| requests.iter().map(move |request| (request, expect)));
    entries
        .map(|(request, expect)| {
            format!("  - {{bottle: {}-{access}, request: '{request}', expect: {expect}}}\n", uses.preset)
        })
        .collect()
}

#[test]
fn every_preset_lets_its_tool_work_and_nothing_else() {
    let (mut bottles, mut policies, mut tests) = (String::new(), String::new(), String::new());
    for (number, uses) in USES.iter().enumerate() {
        for (side, access) in ["read", "full"].into_iter().enumerate() {
            let name = format!("{}-{access}", uses.preset);
            bottles
                .push_str(&format!("  - {{name: {name}, sources: 10.0.{number}.{side}, policy: {name}}}\n"));
            policies
                .push_str(&format!("  {name}: {{routes: [{{use: {}, access: {access}}}]}}\n", uses.preset));
            tests.push_str(&tests_of(uses, access));
        }
    }
    let text =
        format!("bottles:\n{bottles}policies:\n{policies}tests:\n{tests}detectors: {{builtin: false}}\n");
    let config = decant_config::parse("presets.yaml", &text, &Overrides::default())
        .unwrap_or_else(|problems| panic!("{problems}"));
    let book = RuleBook::compile(&config).unwrap_or_else(|problems| panic!("{problems:?}"));
    let failures: Vec<String> = run(&config, &Arc::new(book))
        .into_iter()
        .map(|problem| {
            format!(
                "{}\n    {}",
                text.lines().nth(problem.at.line as usize - 1).unwrap_or_default(),
                problem.message
            )
        })
        .collect();
    assert!(config.tests.len() > 150, "{} requests", config.tests.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A host that no request here goes to may be gone for years without anybody noticing.
#[test]
fn every_host_of_every_preset_has_its_use() {
    let known: BTreeSet<&str> = presets().iter().map(|preset| preset.name.as_str()).collect();
    assert_eq!(USES.iter().map(|uses| uses.preset).collect::<BTreeSet<_>>(), known);
    for uses in &USES {
        let reached = |pattern: &HostPattern| {
            uses.reads.iter().chain(uses.writes).any(|request| {
                let host = request.split('/').nth(2).expect("a URL");
                pattern.matches(&decant_config::Host::Name(host.into()))
            })
        };
        let routes = preset(uses.preset).expect("a preset").routes(Access::Full);
        let unused: Vec<String> = routes
            .flat_map(|route| route.hosts)
            .filter(|host| !reached(host))
            .map(|host| host.to_string())
            .collect();
        assert!(unused.is_empty(), "{}: {unused:?}", uses.preset);
    }
}
