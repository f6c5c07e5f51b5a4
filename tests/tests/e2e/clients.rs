//! Real clients through the gateway: their ordinary work passes, and a refusal reads well in each of them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use decant_tests::ca::TestCa;
use decant_tests::gateway::{Gateway, binary};
use decant_tests::origin::{Origin, counting, hex};
use decant_tests::secrets::{base64, github_pat};
use decant_tests::seed::Seeded;
use decant_tests::site;
use decant_tests::tools::{need, python_with, skip};
use http::Version;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{assert_absent, setup};

mod packages;
mod scripts;

/// The host that every client here is allowed to reach.
const SITE: &str = "site.test";

/// A host that policy denies.
const DENIED: &str = "denied.test";

/// The provider of the tokens that git uses here.
const PROVIDER: &str = "github.com";

/// A gateway with a site of files behind it.
struct Place {
    gateway: Gateway,
    origin: Origin,
    folder: TempDir,
}

/// What a program did.
struct Ran {
    success: bool,
    text: String,
}

impl Place {
    /// A site that serves the files of its folder over `version` alone.
    async fn files(version: Version) -> Self {
        Self::serving(version, |folder| Box::new(site::files(folder))).await
    }

    async fn serving(version: Version, handler: impl FnOnce(&Path) -> BoxedHandler) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let ca = TestCa::new();
        let origin = Origin::https_only(&ca, &[SITE], version, handler(folder.path())).await;
        let routes = format!("- {{name: site, hosts: [{SITE}], ports: [\"1-65535\"]}}");
        let gateway = setup().host(SITE).host(DENIED).trust(&ca).routes(&routes).start().await;
        Self { gateway, origin, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{SITE}:{}{path}", self.origin.port())
    }

    /// A URL on the denied host.
    fn denied(&self, path: &str) -> String {
        format!("https://{DENIED}:{}{path}", self.origin.port())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command by `decant exec`: nothing else says where the proxy is, or what to trust.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(binary());
        command.args(["exec", "--admin", &self.gateway.admin_address().to_string(), "--"]).arg(program);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", self.folder.path()).current_dir(self.folder.path()).kill_on_drop(true);
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs `program` with `arguments` to its end.
    async fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Ran {
        finish(self.command(program).args(arguments)).await
    }
}

type BoxedHandler = Box<
    dyn Fn(
            http::Request<hyper::body::Incoming>,
            std::sync::Arc<decant_tests::origin::Record>,
        ) -> decant_tests::origin::Answer
        + Send
        + Sync,
>;

async fn finish(command: &mut Command) -> Ran {
    let running = command.stdin(std::process::Stdio::null()).output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(120), running).await;
    let output = output.expect("the client ends in time").expect("the client starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Ran { success: output.status.success(), text: text.into_owned() }
}

impl Ran {
    fn succeeds(self) -> String {
        assert!(self.success, "the client failed: {}", self.text);
        self.text
    }

    fn fails_saying(self, expected: &str) -> String {
        assert!(!self.success, "the client succeeded: {}", self.text);
        assert!(self.text.contains(expected), "no {expected:?} in what the client said: {}", self.text);
        self.text
    }
}

fn sum_of(path: &Path) -> String {
    hex(&Sha256::digest(fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_downloads_resumes_uploads_and_reads_refusals() {
    if !need(&["curl"]) {
        return;
    }
    for (version, flag) in [(Version::HTTP_11, "--http1.1"), (Version::HTTP_2, "--http2")] {
        let place = Place::files(version).await;
        site::random_file(&place.path("big.bin"), 5_000_000, Seeded::from_seed(61));
        let sum = sum_of(&place.path("big.bin"));
        let got = place
            .run("curl", &["-sS", flag, "-w", "%{http_version}", "-o", "got.bin", &place.url("/big.bin")])
            .await;
        let spoken = got.succeeds();
        assert_eq!(spoken, if version == Version::HTTP_2 { "2" } else { "1.1" });
        assert_eq!(sum_of(&place.path("got.bin")), sum);
        let whole = fs::read(place.path("got.bin")).expect("a file");
        fs::write(place.path("got.bin"), &whole[..1_234_567]).expect("a writable folder");
        place
            .run("curl", &["-sS", flag, "-C", "-", "-o", "got.bin", &place.url("/big.bin")])
            .await
            .succeeds();
        assert_eq!(sum_of(&place.path("got.bin")), sum, "{flag}: resumed");
        place
            .run("curl", &["-sSf", flag, "-T", "big.bin", &place.url("/index.html")])
            .await
            .fails_saying("404");
        let upload = place.origin.uploads(3).await.pop().expect("an upload");
        assert_eq!((upload.bytes, hex(&upload.sha256)), (5_000_000, sum), "{flag}: uploaded");
        let refused = place.run("curl", &["-sS", flag, &place.denied("/")]).await.succeeds();
        assert!(refused.contains("\"reason\":\"policy\"") && refused.contains(DENIED), "{refused}");
        let failed = place.run("curl", &["-sSfv", flag, &place.denied("/")]).await.fails_saying("error: 403");
        if version == Version::HTTP_11 {
            assert!(failed.contains("HTTP/1.1 403 Blocked by Decant: policy denied.test"), "{failed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_reads_why_its_upload_was_refused() {
    if !need(&["curl"]) {
        return;
    }
    let place = Place::serving(Version::HTTP_2, |_folder| Box::new(counting())).await;
    let secret = github_pat(&mut Seeded::named("curl upload"));
    fs::write(place.path("note.txt"), format!("token = {secret}\n")).expect("a writable folder");
    for flag in ["--http1.1", "--http2"] {
        let upload = ["-sS", flag, "--data-binary", "@note.txt", &place.url("/notes")];
        let refused = place.run("curl", &upload).await.succeeds();
        for told in ["\"detector\":\"github-pat\"", "\"surface\":\"body\"", "\"offset\":8"] {
            assert!(refused.contains(told), "no {told} in {refused}");
        }
        assert_absent(refused.as_bytes(), &secret, "the refusal");
    }
    assert!(place.origin.record().requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wget_downloads_and_reads_refusals() {
    if !need(&["wget"]) {
        return;
    }
    let place = Place::files(Version::HTTP_11).await;
    site::random_file(&place.path("big.bin"), 3_000_000, Seeded::from_seed(62));
    place.run("wget", &["-q", "-O", "got.bin", &place.url("/big.bin")]).await.succeeds();
    assert_eq!(sum_of(&place.path("got.bin")), sum_of(&place.path("big.bin")));
    let refused = place.run("wget", &["-t", "1", "-O", "none", &place.denied("/")]).await;
    refused.fails_saying("ERROR 403: Blocked by Decant: policy denied.test");
}

async fn repository(place: &Place) {
    fs::create_dir(place.path("work")).expect("a writable folder");
    site::random_file(&place.path("work/data.bin"), 2_000_000, Seeded::from_seed(63));
    fs::write(place.path("work/read.me"), "words ".repeat(10_000)).expect("a writable folder");
    let script = "cd work && git init -q -b main && git add . && \
                  git -c user.name=t -c user.email=t@site.test commit -q -m first && cd .. && \
                  git clone -q --bare work work.git";
    place.run("bash", &["-c", script]).await.succeeds();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_clones_over_https_and_reads_refusals() {
    if !need(&["git", "bash"]) {
        return;
    }
    for (version, spoken) in [(Version::HTTP_11, "HTTP/1.1"), (Version::HTTP_2, "HTTP/2")] {
        let place = Place::serving(version, |folder| Box::new(site::git(folder))).await;
        repository(&place).await;
        let http = format!("http.version={spoken}");
        place.run("git", &["-c", &http, "clone", "-q", &place.url("/work.git"), "copy"]).await.succeeds();
        for file in ["data.bin", "read.me"] {
            assert_eq!(
                sum_of(&place.path(&format!("copy/{file}"))),
                sum_of(&place.path(&format!("work/{file}")))
            );
        }
        let refused = place.run("git", &["-c", &http, "clone", &place.denied("/work.git"), "none"]).await;
        let said = refused.fails_saying("403");
        assert!(said.contains("policy"), "git shows the reason: {said}");
    }
}

/// A token goes to its provider, and a push goes where a route allows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_pushes_with_its_token_where_a_route_allows_it() {
    if !need(&["git", "bash"]) {
        return;
    }
    let (ca, folder) = (TestCa::new(), TempDir::new().expect("a temporary folder"));
    let origin = Origin::https_only(&ca, &[PROVIDER, SITE], Version::HTTP_11, site::git(folder.path())).await;
    let routes = format!(
        "- {{name: push, hosts: [{PROVIDER}], ports: [\"1-65535\"], git: {{push: allow}}}}\n\
         - {{name: fetch, hosts: [{SITE}], ports: [\"1-65535\"]}}"
    );
    let gateway = setup().host(PROVIDER).host(SITE).trust(&ca).routes(&routes).start().await;
    let place = Place { gateway, origin, folder };
    repository(&place).await;
    let token = github_pat(&mut Seeded::named("git push"));
    // As a checkout in CI hands it over: git sends it with every request, asked or not.
    let basic = base64(format!("x-access-token:{token}").as_bytes());
    let push = async |host: &str, header: &str| {
        let git = format!("git -c 'http.extraHeader={header}'");
        let url = format!("https://{host}:{}/work.git", place.origin.port());
        let commit = "git -c user.name=t -c user.email=t@site.test commit -q --allow-empty -m more";
        let script = format!(
            "rm -rf copy && {git} clone -q {url} copy && cd copy && {commit} && {git} push -q origin HEAD:main"
        );
        place.run("bash", &["-c", &script]).await
    };
    let header = format!("Authorization: Basic {basic}");
    push(PROVIDER, &header).await.succeeds();
    let log = place.run("git", &["--git-dir", "work.git", "log", "--format=%s", "main"]).await.succeeds();
    assert_eq!(log, "more\nfirst\n");
    let said = push(SITE, "X-Nothing: here").await.fails_saying("403");
    assert!(said.contains("does not allow git push"), "git shows why it may not push: {said}");
    let leak = push(SITE, &header).await.fails_saying("403");
    assert!(leak.contains("github-pat"), "git shows what is wrong with the token there: {leak}");
    assert_absent(&place.gateway.everything_written(), &token, "the files and output of the gateway");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apt_updates_and_downloads_from_a_repository_and_reads_refusals() {
    if !need(&["apt-get", "dpkg-deb", "dpkg-scanpackages", "bash"]) {
        return;
    }
    let place = Place::files(Version::HTTP_11).await;
    packages::debian_repository(&place).await;
    let options = packages::apt_options(&place, &place.url("/debian"));
    packages::apt_get(&place, &options, &["update"]).await.succeeds();
    packages::apt_get(&place, &options, &["download", "decant-sample"]).await.succeeds();
    let downloaded = place.path("decant-sample_1.0_all.deb");
    assert_eq!(sum_of(&downloaded), sum_of(&place.path("debian/decant-sample_1.0_all.deb")));
    let denied = packages::apt_options(&place, &place.denied("/debian"));
    let refused = packages::apt_get(&place, &denied, &["-o", "APT::Update::Error-Mode=any", "update"]).await;
    refused.fails_saying("Blocked by Decant: policy denied.test");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pip_installs_from_an_index_and_reads_refusals() {
    let Some(python) = python_with(&["pip"]) else { return };
    let place = Place::files(Version::HTTP_11).await;
    packages::python_index(&place);
    let install = |package: &str| {
        let arguments =
            ["-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0"];
        let mut command = place.command(&python);
        command.args(arguments).args([
            "--target",
            "installed",
            "--index-url",
            &place.url("/simple/"),
            package,
        ]);
        command
    };
    finish(&mut install("decant-sample")).await.succeeds();
    let module = fs::read_to_string(place.path("installed/decant_sample.py")).expect("an installed module");
    assert_eq!(module, packages::PYTHON_MODULE);
    // The index may be reached, the host of the file may not.
    finish(&mut install("decant-elsewhere")).await.fails_saying("Blocked by Decant: policy denied.test");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_requests_works_and_reads_refusals() {
    let Some(python) = python_with(&["requests"]) else { return };
    let place = Place::serving(Version::HTTP_11, |_folder| Box::new(counting())).await;
    let secret = github_pat(&mut Seeded::named("requests"));
    let said = scripts::run(&place, &python, scripts::REQUESTS, &secret).await;
    assert_absent(said.as_bytes(), &secret, "what the client read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_refused_early_reads_its_403_every_time() {
    let Some(python) = python_with(&["requests"]) else { return };
    let place = Place::serving(Version::HTTP_11, |_folder| Box::new(counting())).await;
    let secret = github_pat(&mut Seeded::named("a large upload"));
    let said = scripts::run(&place, &python, scripts::LARGE_UPLOAD, &secret).await;
    assert!(said.contains("30 of 30"), "{said}");
    assert!(
        place.origin.record().uploads().iter().all(|upload| upload.end == decant_tests::origin::End::Cut)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_httpx_works_over_both_versions_and_reads_refusals() {
    let Some(python) = python_with(&["httpx", "h2"]) else { return };
    for version in crate::support::VERSIONS {
        let place = Place::serving(version, |_folder| Box::new(counting())).await;
        let secret = github_pat(&mut Seeded::named("httpx"));
        scripts::run(&place, &python, scripts::HTTPX, &secret).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_aiohttp_works_and_reads_refusals() {
    let Some(python) = python_with(&["aiohttp"]) else { return };
    let place = Place::serving(Version::HTTP_11, |_folder| Box::new(counting())).await;
    let secret = github_pat(&mut Seeded::named("aiohttp"));
    scripts::run(&place, &python, scripts::AIOHTTP, &secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cargo_fetches_from_a_sparse_registry_and_reads_refusals() {
    if !need(&["rustc", "tar"]) {
        return;
    }
    for version in crate::support::VERSIONS {
        let place = Place::files(version).await;
        packages::cargo_registry(&place).await;
        packages::cargo(&place, "wanted", &["fetch"]).await.succeeds();
        let sources = place.path(".cargo/registry/src");
        let registry = fs::read_dir(sources).expect("a registry's sources").next().expect("one registry");
        let module = registry.expect("a folder").path().join("decant-sample-1.0.0/src/lib.rs");
        assert_eq!(fs::read_to_string(module).expect("a fetched crate"), packages::RUST_MODULE);
        let refused = packages::cargo(&place, "unwanted", &["fetch"]).await.fails_saying("got 403");
        assert!(refused.contains("Blocked by Decant: policy denied.test"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_undici_works_and_reads_refusals() {
    const UNDICI: &str = "/usr/share/nodejs/undici";
    if !need(&["node"]) {
        return;
    }
    if !Path::new(UNDICI).is_dir() {
        return skip("needs Debian's node-undici");
    }
    let place = Place::serving(Version::HTTP_11, |_folder| Box::new(counting())).await;
    let secret = github_pat(&mut Seeded::named("undici"));
    scripts::run(&place, Path::new("node"), scripts::UNDICI, &secret).await;
}
