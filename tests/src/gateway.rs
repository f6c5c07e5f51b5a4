//! Gateways under test: the real `decant` program, started with an overlay configuration and watched from outside.
//!
//! Invariant: each has a state folder and ports of its own, is ready when it is handed out, and is gone when it is
//! dropped; what it printed is shown when a test fails.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

pub use crate::program::{Outcome, binary, run};

use crate::ca::{TestCa, roots_from_pem};
use crate::cgroup::Cgroup;
use crate::client::Client;
use crate::docker::docker;
use crate::metrics::Metrics;
use crate::process::Observed;
use crate::seed::Seeded;

mod machine;
mod workers;

pub use machine::plain_get;

use machine::{
    clock_nanos, collect_files, container_of, engine_run, free_port, indented, printed, spawn_logged,
};

/// Longest time a gateway may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Longest time a gateway may take to stop when asked to.
const STOPPED_WITHIN: Duration = Duration::from_secs(45);

/// Longest time [`Gateway::wait_for_finding`] waits.
const FINDING_WITHIN: Duration = Duration::from_secs(10);

/// Attempts at ports that nobody else takes in the meantime.
const START_ATTEMPTS: usize = 5;

/// What a gateway is started with.
pub struct Setup {
    hosts: Vec<(String, Vec<IpAddr>)>,
    roots: Vec<String>,
    routes: Option<String>,
    policies: Vec<(String, String)>,
    observing: Vec<String>,
    bottles: Option<String>,
    extra: String,
    upstream: String,
    loopback: bool,
    allowed: Vec<String>,
    everywhere: bool,
    files: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    memory_limit: Option<u64>,
    image: Option<String>,
    program: Option<PathBuf>,
}

/// A running gateway.
pub struct Gateway {
    child: Child,
    /// The program itself, where the child only stands for it: in a container.
    pid: Option<u32>,
    state: TempDir,
    proxy: SocketAddr,
    admin: SocketAddr,
    ca_pem: String,
    cgroup: Option<Cgroup>,
}

impl Setup {
    /// Hosts and routes are still to be named; everything else is the embedded default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hosts: Vec::new(),
            roots: Vec::new(),
            routes: None,
            policies: Vec::new(),
            observing: Vec::new(),
            bottles: None,
            extra: String::new(),
            upstream: String::new(),
            loopback: true,
            allowed: Vec::new(),
            everywhere: false,
            files: Vec::new(),
            environment: Vec::new(),
            memory_limit: None,
            image: None,
            program: None,
        }
    }

    /// Lets `name` resolve to 127.0.0.1.
    #[must_use]
    pub fn host(self, name: &str) -> Self {
        self.host_at(name, &[IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }

    /// Lets `name` resolve to `addresses`.
    #[must_use]
    pub fn host_at(mut self, name: &str, addresses: &[IpAddr]) -> Self {
        self.hosts.push((name.to_owned(), addresses.to_vec()));
        self
    }

    /// Trusts the origins that `ca` signs.
    #[must_use]
    pub fn trust(mut self, ca: &TestCa) -> Self {
        self.roots.push(ca.pem().to_owned());
        self
    }

    /// The routes of the policy `default`, as a YAML list. Without it, every named host may be reached on every port.
    #[must_use]
    pub fn routes(mut self, yaml: &str) -> Self {
        self.routes = Some(yaml.to_owned());
        self
    }

    /// A policy beside `default`, by its name and its routes as a YAML list.
    #[must_use]
    pub fn policy(mut self, name: &str, routes: &str) -> Self {
        self.policies.push((name.to_owned(), routes.to_owned()));
        self
    }

    /// Lets a policy beside `default` only observe; the others enforce.
    #[must_use]
    pub fn observing(mut self, name: &str) -> Self {
        self.observing.push(name.to_owned());
        self
    }

    /// The `bottles` section as YAML. Without it, loopback clients are the embedded bottle `local`.
    #[must_use]
    pub fn bottles(mut self, yaml: &str) -> Self {
        self.bottles = Some(yaml.to_owned());
        self
    }

    /// Further top-level sections, as YAML.
    #[must_use]
    pub fn section(mut self, yaml: &str) -> Self {
        self.extra.push_str(yaml);
        self.extra.push('\n');
        self
    }

    /// Further keys of `upstream`, as YAML.
    #[must_use]
    pub fn upstream(mut self, yaml: &str) -> Self {
        let _ = writeln!(self.upstream, "  {yaml}");
        self
    }

    /// Allows no address beyond the public ones; otherwise loopback is allowed.
    #[must_use]
    pub const fn public_addresses_only(mut self) -> Self {
        self.loopback = false;
        self
    }

    /// Allows addresses of this network too.
    #[must_use]
    pub fn allow(mut self, network: &str) -> Self {
        self.allowed.push(network.to_owned());
        self
    }

    /// Lets its proxy listen on every address of this machine, not on loopback alone.
    #[must_use]
    pub const fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// A file beside the configuration, which may name it by a relative path.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// A variable in the gateway's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it in a control group of at most `bytes` of memory, as a container engine would. Where none can be made,
    /// the same number becomes its configured budget.
    #[must_use]
    pub const fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Starts it in a container of this image, on the host's network: what the engine does with `memory_limit` is what
    /// holds it then.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.image = Some(image.to_owned());
        self
    }

    /// Starts this program instead of the one under test.
    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Starts the gateway and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready; what it printed is in the message.
    pub async fn start(self) -> Gateway {
        let mut seeded = Seeded::from_seed(u64::from(std::process::id()) ^ clock_nanos());
        for _ in 1..START_ATTEMPTS {
            if let Ok(gateway) = self.attempt(&mut seeded).await {
                return gateway;
            }
        }
        self.attempt(&mut seeded).await.unwrap_or_else(|why| panic!("the gateway does not start: {why}"))
    }

    /// Writes the configuration into `folder` and returns its path.
    #[must_use]
    pub fn write(&self, folder: &Path) -> PathBuf {
        for (number, pem) in self.roots.iter().enumerate() {
            fs::write(folder.join(format!("root-{number}.pem")), pem).expect("the state folder is writable");
        }
        for (name, text) in &self.files {
            fs::write(folder.join(name), text).expect("the state folder is writable");
        }
        let path = folder.join("decant.yaml");
        fs::write(&path, self.yaml()).expect("the state folder is writable");
        path
    }

    fn yaml(&self) -> String {
        let loopback = self.loopback.then_some("127.0.0.0/8");
        let allowed: Vec<&str> =
            loopback.into_iter().chain(self.allowed.iter().map(String::as_str)).collect();
        let allowed = allowed.join(", ");
        let mut yaml = format!("version: 1\nupstream:\n  addresses: {{allow: [{allowed}]}}\n");
        let roots: Vec<String> = (0..self.roots.len()).map(|number| format!("root-{number}.pem")).collect();
        let roots = if roots.is_empty() { "bundled".to_owned() } else { roots.join(", ") };
        let _ = writeln!(yaml, "  roots: [{roots}]");
        let answers = self.hosts.iter().map(|(name, addresses)| {
            let addresses: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
            format!("\"{name}\": [{}]", addresses.join(", "))
        });
        let _ = writeln!(yaml, "  resolve: {{{}}}", answers.collect::<Vec<_>>().join(", "));
        yaml.push_str(&self.upstream);
        if let Some(bottles) = &self.bottles {
            let _ = writeln!(yaml, "{bottles}");
        }
        if let Some(routes) = self.routes_yaml() {
            let _ = writeln!(yaml, "policies:\n  default:\n    routes:\n{}", indented(&routes, 6));
        }
        for (name, routes) in &self.policies {
            let mode = if self.observing.contains(name) { "observe" } else { "enforce" };
            let _ = writeln!(yaml, "  {name}:\n    mode: {mode}\n    routes:\n{}", indented(routes, 6));
        }
        yaml.push_str(&self.extra);
        yaml
    }

    /// The routes: those that were given, else one to every named host, else none (the embedded policy stays).
    fn routes_yaml(&self) -> Option<String> {
        let names: Vec<String> = self.hosts.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let every_host = || format!("- {{name: all, hosts: [{}], ports: [\"1-65535\"]}}", names.join(", "));
        self.routes.clone().or_else(|| (!names.is_empty()).then(every_host))
    }

    async fn attempt(&self, seeded: &mut Seeded) -> Result<Gateway, String> {
        let state = TempDir::new().expect("a temporary folder");
        let config = self.write(state.path());
        let (proxy, admin) = (free_port(seeded), free_port(seeded));
        let own_limit = self.memory_limit.filter(|_| self.image.is_none());
        let cgroup = own_limit.and_then(Cgroup::limited_to);
        let program = self.program.as_deref().unwrap_or_else(|| binary());
        let mut command = match (&self.image, &cgroup) {
            (Some(image), _) => engine_run(image, self.memory_limit, state.path()),
            (None, Some(group)) => group.command(program),
            (None, None) => Command::new(program),
        };
        command.args(["run", "--config"]).arg(config).arg("--state-dir").arg(state.path().join("state"));
        let listen = if self.everywhere { (Ipv4Addr::UNSPECIFIED, proxy.port()).into() } else { proxy };
        command.args(["--proxy", &listen.to_string(), "--admin", &admin.to_string()]);
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null());
        let child = spawn_logged(&mut command, state.path());
        let mut gateway = Gateway { child, pid: None, state, proxy, admin, ca_pem: String::new(), cgroup };
        gateway.wait_until_ready().await?;
        if self.image.is_some() {
            let pid =
                docker(&["inspect", "--format", "{{.State.Pid}}", &container_of(gateway.state.path())])?;
            gateway.pid = pid.parse().ok();
            gateway.cgroup = gateway.pid.map(Cgroup::of_process);
        }
        gateway.ca_pem = gateway.admin("/ca.pem").await.map(|(_, pem)| pem).unwrap_or_default();
        Ok(gateway)
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Gateway {
    /// Where its proxy listens.
    #[must_use]
    pub const fn proxy(&self) -> SocketAddr {
        self.proxy
    }

    /// The admin port.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The proxy as a URL, for the clients that want one.
    #[must_use]
    pub fn proxy_url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// Its CA certificate as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A file that holds its CA certificate.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        let path = self.state.path().join("exported-ca.pem");
        fs::write(&path, &self.ca_pem).expect("the state folder is writable");
        path
    }

    /// A client of it that trusts its CA.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.proxy, roots_from_pem(&self.ca_pem))
    }

    /// The control group that it runs in, where it was given one.
    #[must_use]
    pub const fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// A GET of `path` on the admin port: status and body.
    ///
    /// # Errors
    /// When the port does not answer.
    pub async fn admin(&self, path: &str) -> std::io::Result<(u16, String)> {
        plain_get(self.admin, path).await
    }

    /// Its metrics now.
    pub async fn metrics(&self) -> Metrics {
        let (status, text) = self.admin("/metrics").await.expect("the admin port answers");
        assert_eq!(status, 200, "{text}");
        Metrics::new(text)
    }

    /// The findings it has written so far.
    #[must_use]
    pub fn findings(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.state_dir().join("findings.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for a finding that `wanted` accepts, and returns it.
    ///
    /// # Panics
    /// When none comes within ten seconds.
    pub async fn wait_for_finding(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            if let Some(finding) = self.findings().into_iter().find(|finding| wanted(finding)) {
                return finding;
            }
            assert!(started.elapsed() < FINDING_WITHIN, "no finding of {what} in {:?}", self.findings());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its state folder.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.state.path().join("state")
    }

    /// The configuration it was started with.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.state.path().join("decant.yaml")
    }

    /// Has it read its configuration again, and waits until it says what became of that.
    ///
    /// # Panics
    /// When it does not say so in time.
    pub async fn reload(&self) {
        let before = self.metrics().await.sum("decant_config_reloads_total", &[]);
        self.signal(Signal::HUP);
        let started = Instant::now();
        while self.metrics().await.sum("decant_config_reloads_total", &[]) <= before {
            assert!(started.elapsed() < READY_WITHIN, "it does not reload: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All that it printed so far, on both streams.
    #[must_use]
    pub fn log(&self) -> String {
        printed(self.state.path())
    }

    /// Every file it wrote, its private keys apart, together with all that it printed: where a secret must not be.
    #[must_use]
    pub fn everything_written(&self) -> Vec<u8> {
        let mut all = self.log().into_bytes();
        collect_files(&self.state_dir(), &mut all);
        all
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        Observed::new(self.child.id()).signal(signal);
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it does not within 45 seconds.
    pub async fn ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            assert!(started.elapsed() < STOPPED_WITHIN, "the gateway does not stop");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return Err(format!("it ended with {status}\n{}", self.log()));
            }
            if self.admin("/readyz").await.is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("not ready within {READY_WITHIN:?}\n{}", self.log()))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for child in self.supervisor().children() {
            child.signal(Signal::KILL);
        }
        if self.pid.is_some() {
            let _gone_already = docker(&["rm", "-f", &container_of(self.state.path())]);
        }
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let shown = log.lines().count().saturating_sub(60);
            eprintln!("--- the gateway printed, at last:");
            log.lines().skip(shown).for_each(|line| eprintln!("{line}"));
        }
    }
}
