//! Another proxy as a process of its own, in a folder of its own, on a port of its own.
//!
//! Invariant: it is set up to do this job as well as it can, and gone with its value.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use decant_tests::ca::TestCa;
use decant_tests::process::Observed;
use tempfile::TempDir;
use tokio::net::TcpStream;

mod nginx;

/// Longest time a peer may take to listen, in tenths of a second.
const LISTENS_WITHIN: u32 = 300;

/// A running proxy.
pub(crate) struct Peer {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

/// Which proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Hudsucker,
    Squid,
    MitmproxyStreaming,
    MitmproxyBuffering,
}

/// What a peer is set up with: an authority that it trusts and signs with, and the origin.
pub(crate) struct Surroundings<'a> {
    pub(crate) ca: &'a TestCa,
    pub(crate) name: &'a str,
    pub(crate) origin: SocketAddr,
}

impl Peer {
    /// Starts the proxy and waits until it listens.
    ///
    /// # Panics
    /// When it is not installed, or does not listen in time.
    pub(crate) async fn start(kind: Kind, around: &Surroundings<'_>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        write(folder.path(), "ca.pem", around.ca.pem());
        write(folder.path(), "key.pem", &around.ca.key_pem());
        let address = free_address();
        let mut command = match kind {
            Kind::Nginx => nginx::command(folder.path(), address, around),
            Kind::Hudsucker => hudsucker(folder.path(), address),
            Kind::Squid => squid(folder.path(), address),
            Kind::MitmproxyStreaming => mitmproxy(folder.path(), address, around.ca, true),
            Kind::MitmproxyBuffering => mitmproxy(folder.path(), address, around.ca, false),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let peer = Self { child, address, _folder: folder };
        peer.wait_until_listening(&command).await;
        peer
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process(&self) -> Observed {
        Observed::new(self.child.id())
    }

    async fn wait_until_listening(&self, command: &Command) {
        for _attempt in 0..LISTENS_WITHIN {
            if TcpStream::connect(self.address).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{command:?} does not listen on {}", self.address);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// hudsucker, by the small program beside this one.
fn hudsucker(folder: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program("HUDSUCKER_BIN", "hudsucker-proxy"));
    command.arg(address.to_string()).arg(folder);
    command
}

/// squid with ssl-bump: opens every tunnel, caches nothing, one process that stays in the foreground. As root it gives
/// up its rights to `proxy`, which Debian's package makes: the folder has to be that user's.
fn squid(folder: &Path, address: SocketAddr) -> Command {
    let folder = folder.display().to_string();
    let helper = "/usr/lib/squid/security_file_certgen";
    let made = Command::new(helper).args(["-c", "-s", &format!("{folder}/leaves"), "-M", "4MB"]).output();
    assert!(made.is_ok_and(|made| made.status.success()), "squid's certificate store cannot be made");
    let text = format!(
        "http_port {address} ssl-bump tls-cert={folder}/ca.pem tls-key={folder}/key.pem \
         generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program {helper} -s {folder}/leaves -M 4MB
acl opening at_step SslBump1
ssl_bump peek opening
ssl_bump bump all
tls_outgoing_options cafile={folder}/ca.pem
http_access allow all
cache deny all
cache_mem 0
access_log none
cache_log {folder}/log
pid_filename none
coredump_dir {folder}
client_persistent_connections on
server_persistent_connections on
shutdown_lifetime 0 seconds
"
    );
    write(Path::new(&folder), "squid.conf", &text);
    let _not_root = Command::new("chown").args(["-R", "proxy:proxy", &folder]).status();
    let mut command = Command::new("squid");
    // Its shared memory is named after the service.
    let service = format!("compare{}", address.port());
    command.args(["-N", "-n", &service, "-f", &format!("{folder}/squid.conf")]).stderr(Stdio::null());
    command
}

/// mitmproxy's `mitmdump`, with bodies streamed past its add-ons or kept for them.
fn mitmproxy(folder: &Path, address: SocketAddr, ca: &TestCa, streaming: bool) -> Command {
    write(folder, "mitmproxy-ca.pem", &format!("{}{}", ca.key_pem(), ca.pem()));
    let mut command = Command::new(program("MITMDUMP_BIN", "mitmdump"));
    command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &address.port().to_string()]);
    command.arg("--set").arg(format!("confdir={}", folder.display()));
    command.arg("--set").arg(format!("ssl_verify_upstream_trusted_ca={}/ca.pem", folder.display()));
    if streaming {
        command.args(["--set", "stream_large_bodies=1"]);
    }
    command
}

fn program(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

fn write(folder: &Path, file: &str, text: &str) {
    fs::write(folder.join(file), text).expect("a writable folder");
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener")
}
